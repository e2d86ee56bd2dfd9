"""Ctrl-C, as a signal, around the editor of lines: to the editor while it runs, never into the middle of its loop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prompt_toolkit.application import Application


class LineInterrupts:
    """Hands a signal to an application. prompt_toolkit's own handler raises while its loop begins and ends.

    Attributes:
        counts: whether a press before there is a line is meant for that line, not for what went before.
    """

    def __init__(self, application: Application[Any]) -> None:
        self._application = application
        self._late = False
        self.counts = False

    def begun(self) -> None:
        """Take or forget what was pressed before there was a line; for prompt_toolkit to call when there is one."""
        if self.taken() and self.counts:
            self._application.exit(exception=KeyboardInterrupt())

    def taken(self) -> bool:
        """Whether it was pressed while there was no line, or when that was sent; forgotten then."""
        late, self._late = self._late, False
        return late

    @contextmanager
    def handed_on(self) -> Iterator[None]:
        """Do it inside, around the editor and what is between two lines."""
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            yield
            return
        self._late = False
        before = signal.signal(signal.SIGINT, self._signalled)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _signalled(self, _number: int, _frame: object) -> None:
        loop = self._application.loop
        if loop is None or loop.is_closed() or not self._application.is_running:
            self._late = True
        else:
            loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        if self._application.is_done:
            self._late = True
        else:
            self._application.key_processor.send_sigint()
