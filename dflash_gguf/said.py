"""What the target has said lately, with the ids it was said in.

A text can be spelled with other tokens than the tokenizer would choose. Where a conversation quotes an answer,
the ids of that answer keep the prompt equal to what was read and written before, so that it need not be read
again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

_ANSWERS = 64  # remembered; the ids of a long conversation take a few hundred KiB


class Said:
    """Remembers answers; the oldest go first."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, tuple[int, ...]] = OrderedDict()

    def remember(self, text: str, ids: Sequence[int], data: bytes) -> None:
        """Keep an answer: its text, the ids that spell it, and the bytes that they spell."""
        # a text that was cut short, or is not all characters, has no ids that spell just it
        if text and data == text.encode("utf-8", "surrogatepass"):
            self._ids[text] = tuple(ids)
            self._ids.move_to_end(text)
            if len(self._ids) > _ANSWERS:
                self._ids.popitem(last=False)

    def ids(self, text: str) -> tuple[int, ...]:
        """Return the ids of an answer; none if it is not remembered."""
        return self._ids.get(text, ())
