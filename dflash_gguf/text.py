"""Bytes to text, piece by piece: a character split over tokens or blocks appears when it is whole."""

from __future__ import annotations

import codecs
import re

_SURROGATES = re.compile("[\ud800-\udfff]")
_PICTURES = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
_PICTURES |= dict.fromkeys(range(0x7F, 0xA0), "\u2421")


def whole_characters(text: str) -> str:
    """Return `text` with lone surrogates, which bytes that are not UTF-8 become, replaced by U+FFFD."""
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)


def visible(text: str) -> str:
    """Return `text` with pictures for control characters but line ends and tabs: it shall not steer a terminal."""
    return text.translate(_PICTURES)


class Utf8Stream:
    """Decodes UTF-8 as it arrives.

    `feed` returns the text that is complete so far; `close` returns what an unfinished end decodes to:
    nothing, since the missing bytes will not come (a stray U+FFFD would help nobody). Bytes that can never
    become a character are replaced by U+FFFD.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, data: bytes) -> str:
        """Return the characters that `data` completes."""
        return self._decoder.decode(data)

    def close(self) -> str:
        """Drop an incomplete character at the end."""
        self._decoder.reset()
        return ""
