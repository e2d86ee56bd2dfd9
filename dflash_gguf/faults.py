"""The wording of errors about files: one line, whatever stands in the file."""

from __future__ import annotations

_LONGEST = 1000


def one_line(text: str) -> str:
    """Return `text` with what would break a line or a terminal escaped, cut if very long.

    Names of keys and tensors come from files and may hold anything.
    """
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[:_LONGEST])
    return shown if len(text) <= _LONGEST else shown + "..."
