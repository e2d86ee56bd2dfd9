"""The wording of errors about files: one line, whatever stands in the file."""

from __future__ import annotations

_LONGEST = 1000


def one_line(text: str) -> str:
    """Return `text` with what would break a line or a terminal escaped, its middle left out if very long.

    Names of keys and tensors come from files and may hold anything; the file stands before them, what to do
    behind.
    """
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]}...{text[-_LONGEST // 2 :]}"
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
