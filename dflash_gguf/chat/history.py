"""What was typed, in a file, with which nothing may go wrong for the one who types."""

from __future__ import annotations

from collections.abc import Iterable

from prompt_toolkit.history import FileHistory


class PatientHistory(FileHistory):
    """A history whose file may be unreadable, gone or full; it then lasts as long as the chat."""

    def __init__(self, filename: str) -> None:
        super().__init__(filename)
        self._name = filename
        self._problem = ""
        self._told = False

    def problem(self) -> str:
        """Return why the file is not used, "" for nothing, or if that has been told."""
        told, self._told = self._told, bool(self._problem)
        return "" if told else self._problem

    def load_history_strings(self) -> Iterable[str]:
        """Return what is in the file, newest first."""
        try:
            return list(super().load_history_strings())
        except OSError as error:
            self._note(error)
            return []

    def store_string(self, string: str) -> None:
        """Add a text to it."""
        try:
            super().store_string(string)
        except OSError as error:
            self._note(error)

    def _note(self, error: OSError) -> None:
        self._problem = f"{self._name}: {error.strerror or error}"
