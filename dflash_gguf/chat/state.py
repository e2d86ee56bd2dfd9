"""What a chat knows between two turns."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..terminal import say
from .conversation import Conversation, Turn

if TYPE_CHECKING:
    from ..engine import Engine
    from ..params import Params
    from ..prompt import Prompt
    from ..stats import Stats
    from ..template import Message
    from .screen import Screen

_SHARE = 4  # a quarter of the context is kept for an answer, or less if it may not be as long


@dataclass(slots=True)
class Chat:
    """A conversation with an engine.

    Attributes:
        engine: answers.
        params: of the next answers.
        screen: draws them.
        conversation: what was said.
        attached: texts of files that go before the next message.
        file: where the conversation was saved to or read from.
        kept: whether it is written there after each turn.
        stats: of the answers so far.
        seeded: whether a person chose the seed; else /regen draws another one.
        warned: whether it has been said that the oldest turns go.
        left_out: so many of the oldest turns are kept, but not asked any more.
        mark: what the file looked like when it was last read or written here; None: it was not there.
        origins: where settings come from that are not the defaults of this program, by their names in `/set`.
    """

    engine: Engine
    params: Params
    screen: Screen | None
    conversation: Conversation = field(default_factory=Conversation)
    attached: list[str] = field(default_factory=list)
    file: Path | None = None
    kept: bool = False
    stats: list[Stats] = field(default_factory=list)
    seeded: bool = False
    warned: bool = False
    left_out: int = 0
    mark: tuple[int, ...] | None = None
    origins: dict[str, str] = field(default_factory=dict)

    def ask(self, text: str) -> Turn:
        """Add a question, behind the files that were read for it."""
        turn = Turn("\n\n".join([*self.attached, text] if text else self.attached))
        self.attached = []
        self.conversation.turns.append(turn)
        return turn

    def prompt(self) -> Prompt:
        """Return what the engine is asked now; oldest turns go where the context is nearly full.

        Without a chat template every question stands alone.
        """
        if not self.engine.has_chat_template:
            return self.conversation.turns[-1].user
        room = self.engine.n_ctx
        reserve = min(room // _SHARE, self.params.max_tokens or room)

        def count(messages: list[Message]) -> int:
            return len(self.engine.encode(messages, template=self.params.template))

        self.left_out = min(self.left_out, len(self.conversation.turns) - 1)
        while self.left_out:  # after /undo there may be room again
            more = Conversation(
                self.conversation.system, self.conversation.turns[self.left_out - 1 :]
            )
            if count(more.messages()) > room // 2:
                break
            self.left_out -= 1
        asked = self.asked()
        gone = asked.shorten(count, room, reserve)
        self.left_out += gone
        if gone and not self.warned:
            self.warned = True
            say(
                f"note: the context of {room} tokens is nearly full: the oldest turns are left out "
                f"({gone} now); a larger one: -c"
            )
        return asked.messages()

    def asked(self) -> Conversation:
        """Return what is asked of the conversation: without the oldest turns that are left out."""
        return Conversation(self.conversation.system, self.conversation.turns[self.left_out :])

    def draw_seed(self) -> bool:
        """Take another seed, for another answer; False if the text would not change."""
        sampling = self.params.sampling
        if sampling is None or sampling.greedy or self.seeded:
            return False
        self.params = replace(self.params, sampling=replace(sampling, seed=None))
        return True

    def at_home(self, file: Path | None) -> None:
        """Take a file, as it looks now, for the conversation's own."""
        self.file, self.mark = file, _mark(file)

    def save(self, file: Path, *, lost: str = "nothing was written") -> None:
        """Write the conversation to a file, which is its own from then on.

        Raises UsageError, naming what is lost, if that fails, or if another program has written to its own
        since: a second chat, say.
        """
        problem = ""
        if file == self.file and _mark(file) not in {None, self.mark}:
            problem = "another program has written to it"
        else:
            try:
                self.conversation.save(file, self.engine.name)
            except OSError as error:
                problem = error.strerror or str(error)
        if problem:
            text = f"{file}: {problem}; {lost}; /save FILE writes elsewhere"
            raise UsageError(text)
        self.at_home(file)

    def keep(self) -> None:
        """Write the conversation to its file, if it is kept there; errors as of `save`."""
        if self.kept and self.file is not None:
            self.save(self.file, lost="the last turn is not in it")


def _mark(file: Path | None) -> tuple[int, ...] | None:
    """Return what tells one state of a file from another; None if it is not there."""
    with suppress(OSError):
        if file is not None:
            found = file.stat()
            return found.st_ino, found.st_size, found.st_mtime_ns
    return None
