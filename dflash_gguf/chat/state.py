"""What a chat knows between two turns."""

from __future__ import annotations

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
        turns = self.conversation.turns
        self.left_out = min(self.left_out, len(turns) - 1)
        asked = Conversation(self.conversation.system, turns[self.left_out :])
        room = self.engine.n_ctx
        reserve = min(room // _SHARE, self.params.max_tokens or room)
        gone = asked.shorten(
            lambda messages: len(self.engine.encode(messages, template=self.params.template)),
            room,
            reserve,
        )
        self.left_out += gone
        if gone and not self.warned:
            self.warned = True
            say(
                f"note: the context of {room} tokens is nearly full: the oldest turns are left out "
                f"({gone} now); a larger one: -c"
            )
        return asked.messages()

    def draw_seed(self) -> bool:
        """Take another seed, for another answer; False if the text would not change."""
        sampling = self.params.sampling
        if sampling is None or sampling.greedy or self.seeded:
            return False
        self.params = replace(self.params, sampling=replace(sampling, seed=None))
        return True

    def keep(self) -> None:
        """Write the conversation to its file, if it is kept there; raises UsageError if that fails."""
        if not self.kept or self.file is None:
            return
        try:
            self.conversation.save(self.file, self.engine.name)
        except OSError as error:
            text = f"{self.file}: {error.strerror or error}; the last turn is not in it; /save FILE writes elsewhere"
            raise UsageError(text) from None
