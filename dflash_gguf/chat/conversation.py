"""A conversation: what was asked and answered, what goes when it gets long, and its file.

Nothing here draws or computes answers. What a model thought is kept apart from what it answered: whether later
turns see it is the chat template's decision.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from ..errors import UsageError
from ..template import Message
from ..text import whole_characters

_KIND = "dflash-gguf conversation"
_TEXTS = ("user", "answer", "reasoning", "finish_reason")


@dataclass(slots=True)
class Turn:
    """A question and what came of it.

    Attributes:
        user: the question.
        answer: what was answered, without the thinking; as far as it got.
        reasoning: what was thought before.
        finish_reason: as of Sequence ("cancelled": Ctrl-C); "" while there is no answer.
    """

    user: str
    answer: str = ""
    reasoning: str = ""
    finish_reason: str = ""

    def messages(self) -> list[Message]:
        """Return the turn as the template takes it."""
        asked: Message = {"role": "user", "content": self.user}
        if not self.finish_reason:
            return [asked]
        said = {"role": "assistant", "content": self.answer}
        return [asked, said | ({"reasoning_content": self.reasoning} if self.reasoning else {})]


@dataclass(slots=True)
class Conversation:
    """Turns behind a system prompt, which is "" if there is none."""

    system: str = ""
    turns: list[Turn] = field(default_factory=list)

    def messages(self) -> list[Message]:
        """Return all of it as the template takes it."""
        first: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        return first + [message for turn in self.turns for message in turn.messages()]

    def shorten(self, count: Callable[[list[Message]], int], room: int, reserve: int) -> int:
        """Let the oldest turns go if fewer than `reserve` tokens are left for the next answer.

        So many go that the rest fills half of the room, that it need not be done again in the next turn. The
        system prompt and the last turn stay. If these alone are too long, all stay: it is for the engine to refuse.

        Args:
            count: returns the tokens of messages.
            room: tokens of prompt and answer together.
            reserve: tokens kept for an answer.

        Returns how many turns went.
        """
        if count(self.messages()) + reserve <= room:
            return 0
        left = type(self)(self.system, list(self.turns))
        while len(left.turns) > 1 and count(left.messages()) > room // 2:
            del left.turns[0]
        if count(left.messages()) >= room:  # no use
            return 0
        gone = len(self.turns) - len(left.turns)
        self.turns = left.turns
        return gone

    def save(self, path: Path, model: str) -> None:
        """Write it as JSON, in place at once; `model` is noted. Raises OSError."""
        content = {"kind": _KIND, "version": 1, "model": model, **asdict(self)}
        text = json.dumps(content, ensure_ascii=False, indent=1)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
                file.write(text + "\n")
            os.replace(name, path)  # noqa: PTH105
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the conversation in a file.

        Raises UsageError, naming what was found, if it is none of ours, OSError if it cannot be read.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            text = f"{path.name} is no conversation: not JSON ({error}); expected a file that /save wrote"
            raise UsageError(text) from None
        problem = _problem(content)
        if problem:
            text = f"{path.name} is no conversation: {problem}; expected a file that /save wrote"
            raise UsageError(text)
        turns = [
            Turn(**{name: whole_characters(turn.get(name, "")) for name in _TEXTS})
            for turn in content["turns"]
        ]
        return cls(whole_characters(content["system"]), turns)


def _problem(content: Any) -> str:
    """Return what a file's content lacks of a conversation; "" for nothing."""
    if not isinstance(content, dict) or content.get("kind") != _KIND:
        return f"its kind is not {_KIND!r}"
    if content.get("version") != 1:
        return f"its version is {content.get('version')!r}, not 1"
    if not isinstance(content.get("system"), str) or not isinstance(content.get("turns"), list):
        return "it has no system prompt (text) or no turns (list)"
    for number, turn in enumerate(content["turns"], 1):
        if not isinstance(turn, dict) or "user" not in turn:
            return f"turn {number} has no 'user'"
        wrong = [name for name in _TEXTS if not isinstance(turn.get(name, ""), str)]
        if wrong:
            return f"{wrong[0]!r} of turn {number} is {turn[wrong[0]]!r}, not text"
    return ""
