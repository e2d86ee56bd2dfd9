"""A line at the bottom of a terminal, below text that goes on scrolling.

The text scrolls in a region above it (DECSTBM, as package managers draw their progress), so that nothing of it
is drawn twice and lines can be copied whole.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from ..terminal import encodable

_SAVE, _RESTORE, _CLEAR, _UP = "\x1b7", "\x1b8", "\x1b[K", "\x1b[1A"
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_FEWEST = 4  # rows of a terminal that has room for it


class StatusLine:
    """One such line on a terminal; `open` and `close` it once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rows = self._columns = 0
        self._taken = False

    def open(self) -> None:
        """Take the last row, if the terminal has one to spare."""
        self._columns, self._rows = os.get_terminal_size(self._stream.fileno())
        self._taken = self._rows >= _FEWEST
        if not self._taken:
            return
        # a line feed first: where the cursor is in the last row, the text moves up
        self._write(f"\n{_SAVE}\x1b[1;{self._rows - 1}r{_RESTORE}{_UP}")

    def show(self, text: str) -> None:
        """Write it, cut to the width; a terminal that was resized gets it in its new last row."""
        if os.get_terminal_size(self._stream.fileno()) != (self._columns, self._rows):
            if self._taken:
                self._write(f"{_SAVE}\x1b[r{_RESTORE}")
            self.open()
        if not self._taken:
            return
        cut = encodable(text, self._stream)[: max(0, self._columns - 1)]
        self._write(f"{_SAVE}\x1b[{self._rows};1H{_DIM}{cut}{_PLAIN}{_CLEAR}{_RESTORE}")

    def close(self) -> None:
        """Give the row back."""
        if self._taken:
            self._write(f"{_SAVE}\x1b[r\x1b[{self._rows};1H{_CLEAR}{_RESTORE}")
            self._taken = False

    def _write(self, text: str) -> None:
        sys.stdout.flush()  # both streams are one terminal
        self._stream.write(text)
        self._stream.flush()
