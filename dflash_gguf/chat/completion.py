"""What Tab completes in a chat: commands, their words, and files."""

from __future__ import annotations

from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from .commands import COMMANDS
from .settings import NAMES

_WORDS = {
    "set": (*NAMES, "system"),
    "show": ("settings", "system", "info", "prompt"),
    "think": ("on", "off", "show", "hide"),
    "draft": ("on", "off", "auto"),
}
_FILES = {"read", "save", "load"}


class CommandCompleter(Completer):
    """Completes lines that begin with a slash."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        """Yield what the text before the cursor may go on with."""
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        name, space, rest = text[1:].partition(" ")
        if not space:
            for each in dict.fromkeys(COMMANDS.values()):
                if each.names[0].startswith(name):
                    yield Completion(
                        "/" + each.names[0], start_position=-len(text), display_meta=each.help
                    )
        elif name in _FILES:
            yield from self._paths.get_completions(Document(rest), event)
        else:
            for word in _WORDS.get(name, ()):
                if word.startswith(rest):
                    yield Completion(word, start_position=-len(rest))
