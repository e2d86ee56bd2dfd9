"""What `run` does with a loaded engine: one answer, or a chat on a terminal or a pipe. Returns exit codes."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from .. import chat as chats
from ..chat import Chat, Screen, warn_without_template
from ..chat.commands import read_conversation
from ..chat.conversation import Conversation
from ..chat.document import document
from ..chat.header import header
from ..chat.reader import Reader, on_terminal, piped
from ..chat.settings import in_force
from ..engine import Engine
from ..hardware import default_threads
from ..params import Params
from ..terminal import say

_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Talk:
    """How to talk: a system prompt, the file that keeps the conversation, whether what is typed is remembered."""

    system: str
    session: Path | None
    history: bool
    quiet: bool

    def begin(
        self,
        engine: Engine,
        params: Params,
        screen: Screen | None,
        *,
        seeded: bool,
        origins: dict[str, str] | None = None,
    ) -> Chat:
        """Return a chat, with what its file holds; a given system prompt goes before the file's.

        Raises UsageError, naming the file, if it holds something else.
        """
        warn_without_template(engine, quiet=self.quiet)
        kept = self.session is not None
        known = self.session is not None and self.session.exists()
        conversation = read_conversation(self.session) if known and self.session else Conversation()
        if self.system:
            conversation.system = self.system
        state = Chat(
            engine,
            params,
            screen,
            conversation,
            kept=kept,
            seeded=seeded,
            warned=self.quiet,
            origins=origins or {},
        )
        state.at_home(self.session)
        return state

    def introduce(self, state: Chat, threads: int | None, *, chat: bool) -> None:
        """Say on a person's terminal what was loaded, if a chat begins, and which sampling is in force."""
        suggested = state.engine.suggested
        if self.quiet:
            return
        for note in suggested.notes:
            say(f"note: {note}")
        if sys.stderr.isatty() and chat:
            for line in header(state.engine, threads or default_threads()):
                say(line)
        if sys.stderr.isatty() and (chat or suggested.values):
            say(in_force(state.params, state.origins))

    def answer(self, state: Chat, question: str) -> int:
        """Answer one question."""
        came = chats.turn(state, question, quiet=self.quiet)
        if state.screen is None:
            made = document(state.engine, state.params, came)
            print(json.dumps(made, ensure_ascii=False, indent=1))  # noqa: T201
        return _INTERRUPTED if came.sequence.finish_reason == "cancelled" else 0

    def chat(self, state: Chat) -> int:
        """Answer messages until there is no other."""
        person = sys.stdin.isatty() and sys.stdout.isatty()
        read = self._prompted() if person else piped(sys.stdin)
        return _INTERRUPTED if chats.chat(state, read, commands=person, quiet=self.quiet) else 0

    def _prompted(self) -> Reader:
        from ..chat.completion import CommandCompleter

        return on_terminal(CommandCompleter(), history_file() if self.history else None)


def history_file() -> Path | None:
    """Return where what is typed is remembered, for its owner alone; None if that cannot be written."""
    from platformdirs import user_state_path

    file = user_state_path("dflash-gguf", appauthor=False) / "history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError:
        return None
    return file
