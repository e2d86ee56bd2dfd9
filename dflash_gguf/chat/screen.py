"""How answers look: the answer on stdout and nothing else, thinking dim on stderr, a line of figures below.

Off a terminal there is only the answer. NO_COLOR and TERM=dumb leave escape sequences out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ..terminal import plain_terminal, stop_here, suspensions, write
from ..text import visible
from ..thinking import Said
from .status_line import StatusLine

_DIM, _TINT, _PLAIN = "\x1b[2m", "\x1b[36m", "\x1b[0m"
_EVERY = 0.12  # seconds between two looks of the figures


class Screen:
    """Draws answers.

    Attributes:
        thinking_shown: whether thinking is shown where stderr is a terminal; else only that there was some.
        tinted: whether text that was accepted from the draft looks different, where stdout is a terminal.
    """

    def __init__(
        self, *, quiet: bool = False, thinking_shown: bool = True, tinted: bool = False
    ) -> None:
        self.thinking_shown = thinking_shown
        self.tinted = tinted
        self._quiet = quiet
        self._styled = not plain_terminal()
        self._to_person = sys.stderr.isatty()
        self._answer_to_person = sys.stdout.isatty()
        self._line: StatusLine | None = None
        self._thinking = False
        self._drawn = 0.0
        self._asked_to_pause: Callable[[], bool] = lambda: False

    @contextmanager
    def answer(self) -> Iterator[None]:
        """Draw one answer inside."""
        live = self._styled and self._to_person and self._answer_to_person and not self._quiet
        self._line = StatusLine(sys.stderr) if live else None
        if self._line:
            self._line.open()
        with suspensions(noted=live) as self._asked_to_pause:
            try:
                yield
            except BaseException:
                with suppress(OSError):  # the terminal itself may be gone
                    self._end()
                raise
            self._end()

    def pause(self) -> None:
        """Stop here if Ctrl-Z was pressed, with the whole terminal given back; return when the shell says so."""
        if self._line and self._asked_to_pause():
            self._line.close()
            stop_here()
            self._line.open()

    def show(self, said: Said, *, accepted: bool = False) -> None:
        """Draw what was thought and said; accepted: it comes from a draft."""
        if said.reasoning:
            self._think(visible(said.reasoning))
        if said.content:
            self._end_thinking()
            content = visible(said.content) if self._answer_to_person else said.content
            tint = accepted and self.tinted and self._styled and self._answer_to_person
            write(f"{_TINT}{content}{_PLAIN}" if tint else content)

    def _end(self) -> None:
        self._end_thinking()
        line, self._line = self._line, None
        if line:
            line.close()
        write("\n")

    def wants_figures(self) -> bool:
        """Whether it is time for `figures`."""
        return self._line is not None and time.monotonic() - self._drawn >= _EVERY

    def figures(self, text: str) -> None:
        """Show a line below the answer, until it ends."""
        if self._line:
            self._line.show(text)
            self._drawn = time.monotonic()

    def _think(self, text: str) -> None:
        if not self._to_person:
            return
        if not self._thinking and not (self._styled and self.thinking_shown):
            self._aside("[thinking]\n" if self.thinking_shown else "[thinking ...]\n")
        self._thinking = True
        if self.thinking_shown:
            self._aside(text)

    def _end_thinking(self) -> None:
        if self._thinking:
            self._thinking = False
            marked = self.thinking_shown and not self._styled
            end = "\n[answer]\n" if marked else "\n\n"
            self._aside(end if self.thinking_shown else "")

    def _aside(self, text: str) -> None:
        sys.stderr.write(f"{_DIM}{text}{_PLAIN}" if self._styled and text else text)
        sys.stderr.flush()
