"""One answer: from a prompt to what was thought and said, drawn while it comes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ..errors import UsageError
from ..sequence import Unread
from ..terminal import Again, interrupts, say
from ..text import Utf8Stream
from ..thinking import Said, ThinkingSplitter, opens_thinking, split_thinking

if TYPE_CHECKING:
    from ..engine import Engine
    from ..params import Params
    from ..prompt import Prompt
    from ..sequence import Chunk, Sequence
    from ..stats import Stats
    from .screen import Screen

_TAIL = 8  # tokens that hold an opened <think> and the white space behind it


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a prompt.

    Attributes:
        sequence: the engine's, which has ended.
        said: its text taken apart.
        leaving: what ended it together with the program, for the caller to raise once the answer is kept: Again,
            SystemExit of a signal, OSError of an output that is gone. None: the program goes on.
    """

    sequence: Sequence
    said: Said
    leaving: BaseException | None = None


class Stop:
    """Ctrl-C while it is entered ends an answer, be it begun or not; pressed again, it raises Again."""

    def __init__(self) -> None:
        self._sequence: Sequence | None = None
        self._stack = ExitStack()
        self.pressed: Callable[[], bool] = lambda: False

    def __enter__(self) -> Self:
        self.pressed = self._stack.enter_context(interrupts(self._end))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ends(self, sequence: Sequence) -> None:
        """Have it end this answer, at once if Ctrl-C has been pressed before."""
        self._sequence = sequence
        if self.pressed():
            sequence.interrupt()

    def _end(self) -> None:
        if self._sequence is not None:
            self._sequence.interrupt()


def answer(
    engine: Engine, prompt: Prompt, params: Params, screen: Screen | None, stop: Stop
) -> Answer:
    """Have a prompt answered and draw it while it comes; without a screen only that.

    `stop` ends it as `Sequence.interrupt` does: what was said stays, its finish_reason is "cancelled". So does
    what ends the program, which is returned, not raised. Raises as `Engine.start` and `Engine.step` do.
    """
    sequence = engine.start(prompt, params)
    inside = thinks_first(engine, sequence, params)
    warned = len(engine.warnings)
    leaving: BaseException | None = None
    try:
        stop.ends(sequence)
        with ExitStack() as stack:
            drawing = _Drawing(engine, sequence, screen, inside=inside) if screen else None
            if screen:
                stack.enter_context(screen.answer())
            while sequence.finish_reason is None:
                engine.step()
                if stop.pressed():
                    engine.cancel(sequence)
                if drawing:
                    drawing.draw()
    except (Again, SystemExit, OSError) as error:
        engine.cancel(sequence)
        leaving = error
    if sequence.error is not None:
        raise UsageError(sequence.error)
    for warning in engine.warnings[warned:]:
        say(f"warning: {warning}")
    return Answer(sequence, split_thinking(sequence.text, inside=inside), leaving)


class _Drawing:
    """Passes what is new of an answer on to a screen."""

    def __init__(self, engine: Engine, sequence: Sequence, screen: Screen, *, inside: bool) -> None:
        self._engine, self._sequence, self._screen = engine, sequence, screen
        self._splitter = ThinkingSplitter(inside=inside)
        self._decoder = Utf8Stream()
        self._unread = Unread(sequence)

    def draw(self) -> None:
        self._screen.pause()
        if (chunk := self._unread.take()) is not None:
            for text, accepted in self._pieces(chunk):
                self._screen.show(self._splitter.feed(text), accepted=accepted)
        if self._sequence.finish_reason is not None:
            self._screen.show(self._splitter.close())
        elif self._screen.wants_figures():
            self._screen.figures(live_line(self._engine.so_far(self._sequence)))

    def _pieces(self, chunk: Chunk) -> list[tuple[str, bool]]:
        """Texts, and whether they were accepted from the draft: all tokens of a round but the last."""
        if not self._screen.tinted:
            return [(chunk.text, False)]
        texts = [self._decoder.feed(self._engine.piece(token)) for token in chunk.tokens]
        if "".join(texts) != chunk.text:  # some of it is held back, for a stop string
            return [(chunk.text, False)]
        return [(text, i < len(texts) - 1) for i, text in enumerate(texts)]


def live_line(stats: Stats) -> str:
    """Return the figures of an answer that goes on: tokens, speed, accept length."""
    parts = [f"{stats.emitted} tok"]
    if stats.tokens_per_second is not None:
        parts.append(f"{stats.tokens_per_second:,.1f} tok/s")
    if stats.accept_length is not None:
        parts.append(f"accept {stats.accept_length:.1f}/{stats.block}")
    return " · ".join(parts)


def thinks_first(engine: Engine, sequence: Sequence, params: Params) -> bool:
    """Whether the prompt has the answer begin with thinking.

    Not where a grammar binds the text: it binds all of it, and has no thinking.
    """
    if params.gbnf is not None:
        return False
    tail = b"".join(engine.piece(token, special=True) for token in sequence.prompt[-_TAIL:])
    return opens_thinking(tail.decode(errors="replace"))
