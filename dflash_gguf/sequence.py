"""One request: its tokens as they come, its text, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .stats import Stats
from .text import Utf8Stream

if TYPE_CHECKING:
    from . import _core


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """How likely the target thought a token, drafted or not.

    By the model itself: the softmax of its logits at temperature 1, before penalties, biases, filters and
    grammars, as in OpenAI's API and llama-server.

    Attributes:
        token: the id.
        logprob: natural log of its probability.
        top: the most likely tokens and theirs, best first, as many as were asked for.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """What was added to an answer: its tokens and the text that they completed, which may be none yet.

    The last chunk carries the finish_reason; it alone may have no tokens. `logprobs` belongs to the tokens,
    if they were asked for.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: str | None
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(slots=True)
class Sequence:
    """A request in an engine, growing with each of its steps.

    Attributes:
        prompt: the token ids that were read.
        tokens: the token ids written so far, an end token included.
        text: what they spell, without end tokens, up to a stop string; what may begin one is not in it yet.
        finish_reason: "stop" (an end token or stop string), "length" (the limit or the context's edge),
            "cancelled", "error", or None while it goes on.
        error: why nothing can follow, where the finish_reason is "error".
        logprobs: one for each token, if they were asked for.
        stats: counts and times; None while it goes on.
    """

    prompt: tuple[int, ...]
    block: int | str
    id: int = -1
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    stats: Stats | None = None
    error: str | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    _stream: Utf8Stream = field(default_factory=Utf8Stream, repr=False)
    _interrupt: _core.Interrupt | None = field(default=None, repr=False)

    def interrupt(self) -> None:
        """Have it end as "cancelled" in the engine's step in progress, or in the next one. From any thread.

        A decode that no other answer shares is given up if it does not end within half a second. That may cost
        a target with recurrent state what it has read since the last state that was kept. Harmless later.
        """
        if self._interrupt is not None:
            self._interrupt.set()

    def add(
        self,
        tokens: list[int],
        data: bytes,
        finish_reason: str | None,
        logprobs: tuple[TokenLogprobs, ...] = (),
    ) -> Chunk:
        """Append a round's tokens, which spell `data`, and return what is new."""
        text = self._stream.feed(data)
        if finish_reason is not None:
            text += self._stream.close()
        self.tokens += tokens
        self.logprobs += logprobs
        self.text += text
        self.finish_reason = finish_reason
        return Chunk(text, tuple(tokens), finish_reason, logprobs)


class Unread:
    """What one reader of a growing request has not been given yet."""

    __slots__ = ("_counted", "_said", "_sequence")

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence
        self._said = self._counted = 0

    def take(self) -> Chunk | None:
        """Return all that is new, None if nothing is. At the end a chunk with the finish_reason, each time."""
        sequence, said, counted = self._sequence, self._said, self._counted
        if len(sequence.tokens) == counted and sequence.finish_reason is None:
            return None
        self._said, self._counted = len(sequence.text), len(sequence.tokens)
        return Chunk(
            sequence.text[said:],
            tuple(sequence.tokens[counted:]),
            sequence.finish_reason,
            tuple(sequence.logprobs[counted:]),
        )
