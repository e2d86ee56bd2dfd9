"""What an engine finds out while it answers and its user should know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .shifts import Shifts

if TYPE_CHECKING:
    from . import _core


class Notices:
    """Warnings, each said once.

    Attributes:
        texts: they, oldest first.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._shifts = Shifts()
        self._hinted = False

    def of_session(self, session: _core.Session) -> None:
        """Look at a session after its step."""
        if failure := session.draft_failure:
            self._say(f"drafting stopped, plain decoding goes on: {failure}")
        if failure := session.shift_failure:
            rows = session.depth + 1
            self._say(f"blocks stay at {rows} rows, there is no memory for more: {failure}")

    def of_answer(self, counters: _core.Counters) -> None:
        """Look at an answer at its end."""
        self._shifts += Shifts(*counters.shifts)
        hint = self._shifts.hint()
        if hint is not None and not self._hinted:
            self._hinted = True
            self._say(hint)

    def _say(self, text: str) -> None:
        if text not in self.texts:
            self.texts.append(text)
