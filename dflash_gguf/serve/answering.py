"""A request in the engine, and what comes of it on its way out.

What the engine says is shaped in its thread, where tokens can be spelt, and becomes text in the event loop, which does so
while the engine is in its next decode. An answer goes on at the engine's pace whoever reads: what has not been fetched
is kept up to a limit, beyond which this answer alone is given up.
"""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import UsageError
from ..openai_choices import Shape
from ..sequence import Chunk
from ..stats import Stats
from . import answers, errors
from .events import DONE, Lines
from .requests import Asked

if TYPE_CHECKING:
    from ..engine import Engine
    from ..sequence import Sequence
    from ..worker import Item, Ticket
    from .service import Service

_FINGERPRINT = {"system_fingerprint": f"dflash-gguf-{__version__}"}


class Answering:
    """All choices of one request. Belongs to the event loop, but for `_hear`, which is the engine's thread's.

    Args:
        service: whose engine answers.
        asked: the request.

    Attributes:
        error: why there is no whole answer; None so far.
        done: whether every choice has ended.
        cancelled: whether nobody wants it any more.

    Raises ServeError if there is no place (429), the models are not loaded or the server ends (503).
    """

    def __init__(self, service: Service, asked: Asked) -> None:
        self.error: errors.ServeError | None = None
        self.done = False
        self._service = service
        self._asked = asked
        count = len(asked.choices)
        worker = service.worker()
        service.places.take(count)
        self._began = time.monotonic()
        self._waiter: asyncio.Future[None] | None = None
        self._ready: list[bytes] = []
        self._held = 0  # bytes of them
        self._over = [False] * count
        self.cancelled = False
        self._stats: list[Stats | None] = [None] * count
        self._whole: list[dict[str, Any] | None] = [None] * count
        self._lines: Lines | None = None
        self._reason: str | None = None  # of the last piece
        self._shapes: dict[int, Shape] = {}  # the engine's thread's own
        self._tickets: list[Ticket] = []
        self._known = threading.Lock()  # held until the tickets are there for the engine's thread
        service.answering.add(self)
        try:
            with self._known:
                for index in range(count):
                    hear, begin = partial(self._hear, index), partial(self._begin, index)
                    self._tickets.append(worker.enqueue(hear, begin))
        except UsageError:  # it has been closed this moment
            self.cancel()
            service.answering.discard(self)
            service.places.taken -= count - len(self._tickets)
            raise errors.ended() from None

    @property
    def begun(self) -> int:
        """How many of its choices the engine has begun and not ended."""
        going = zip(self._tickets, self._over, strict=True)
        return sum(ticket.sequence is not None and not over for ticket, over in going)

    @property
    def waiting(self) -> int:
        """How many have not begun."""
        going = zip(self._tickets, self._over, strict=True)
        return sum(ticket.sequence is None and not over for ticket, over in going)

    async def take(self) -> bytes:
        """Return all events that have not been taken, waiting for one; empty at the end, or after an error.

        Of an answer that is not streamed there are none: it returns when all has ended.
        """
        while not self._ready and not self.done and self.error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        data = b"".join(self._ready)
        self._ready.clear()
        self._held = 0
        return data

    def whole(self) -> dict[str, Any]:
        """Return the answer in one, once all has ended."""
        made = [whole for whole in self._whole if whole is not None]
        stats = [each for each in self._stats if each is not None]
        choices = [
            whole["choices"][0] | {"index": index} | self._beside(index)
            for index, whole in enumerate(made)
        ]
        envelope = {key: made[0][key] for key in ("id", "object", "created", "model")}
        envelope |= _FINGERPRINT
        alone = self._figures(stats[0], choices[0]["finish_reason"]) if len(made) == 1 else {}
        return {**envelope, "choices": choices, "usage": self._usage(), **alone}

    def poke(self, data: bytes = b"") -> None:
        """Have `take` return, with these bytes if nothing else is there."""
        if data and not self._ready:
            self._ready.append(data)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: errors.ServeError) -> None:
        """Give it up for this reason, unless it has ended."""
        if not self.done and self.error is None:
            self.error = error
            self.cancel()
            self.poke()

    def cancel(self) -> None:
        """Stop the engine's work for it: nobody wants it any more. Harmless later."""
        if not self.cancelled and not self.done:
            self.cancelled = True
            for ticket in self._tickets:
                ticket.cancel()

    def _begin(self, index: int, engine: Engine) -> Sequence:
        """Start a choice, in the engine's thread; raises as Call.asked and Engine.start do."""
        choice = self._asked.choices[index]
        asked = choice.call.asked(engine, choice.prompt)
        self._shapes[index] = asked.shape
        return engine.start(asked.prompt, asked.params)

    def _hear(self, index: int, item: Item) -> None:
        """Take what the engine brings of a choice; in its thread."""
        with self._known:
            ticket = self._tickets[index]
        post = self._service.post
        if isinstance(item, BaseException):
            post.put(partial(self._ended, index, None, item))
            return
        try:
            if item.finish_reason == "error":  # which follows
                return
            shape, made = self._shapes.get(index), None
            if shape is None:  # it has not begun
                post.put(partial(self._ended, index, None, item))
                return
            if self._asked.stream and item.finish_reason != "cancelled":
                pieces = shape.pieces(item)
                post.put(partial(self._add, index, shape, pieces, self._so_far(ticket, item)))
            if item.finish_reason is None:
                return
            if not self._asked.stream and ticket.sequence is not None:
                made = shape.whole(ticket.sequence)
        except BaseException as error:
            post.put(partial(self._ended, index, None, error))
            raise  # which cancels the request
        post.put(partial(self._ended, index, made, item))

    def _so_far(self, ticket: Ticket, chunk: Chunk) -> Stats | None:
        if ticket.sequence is None:
            return None
        if chunk.finish_reason is not None or not self._asked.timings_per_token:
            return ticket.sequence.stats
        return self._service.engine().so_far(ticket.sequence)

    def _add(
        self, index: int, shape: Shape, pieces: list[dict[str, Any]], stats: Stats | None
    ) -> None:
        if self.cancelled:
            return
        try:
            self._say(index, shape, pieces, stats)
        except Exception as error:  # noqa: BLE001 (it belongs to this answer, which nobody may wait for in vain)
            self.fail(errors.of(error))
        self.poke()

    def _say(
        self, index: int, shape: Shape, pieces: list[dict[str, Any]], stats: Stats | None
    ) -> None:
        if self._lines is None:
            envelope = shape.envelope(shape.streamed) | _FINGERPRINT
            self._lines = Lines(envelope, usage=self._asked.include_usage)
        last = len(pieces) - 1
        for place, piece in enumerate(pieces):
            choice = piece["choices"][0]
            choice["index"] = index
            self._reason = choice["finish_reason"]
            more = None
            if stats is not None and place == last:
                more = self._more(stats, choice["finish_reason"])
            self._write(self._lines.piece(choice, more))

    def _more(self, stats: Stats, finish_reason: str | None) -> dict[str, Any] | None:
        """What stands beside a piece: figures on the last, if none without choices follows."""
        if finish_reason is None:
            return {"timings": answers.timings(stats)}
        if self._asked.include_usage and len(self._tickets) == 1:
            return None
        return self._figures(stats, finish_reason)

    def _ended(self, index: int, whole: dict[str, Any] | None, item: Item) -> None:
        """Count a choice that has ended, whatever ended it."""
        if self._over[index]:  # what could not be shaped has been cancelled, which comes too
            return
        ticket = self._tickets[index]
        stats = ticket.sequence.stats if ticket.sequence is not None else None
        self._stats[index], self._whole[index], self._over[index] = stats, whole, True
        seconds = time.monotonic() - self._began
        self._service.left(seconds, stats, item)
        if isinstance(item, BaseException):
            self.fail(errors.of(item))
        elif item.finish_reason == "cancelled" and not self.cancelled:
            self.fail(errors.stopping())
        if all(self._over):
            self._end()

    def _end(self) -> None:
        self._service.answering.discard(self)
        if self._asked.stream and self.error is None and not self.cancelled:
            if self._asked.include_usage and self._lines is not None:
                self._write(self._lines.last(self._last()))
            self._write(DONE)
        self.done = True
        self.poke()

    def _last(self) -> dict[str, Any]:
        """What the piece without choices holds."""
        stats = self._stats[0]
        alone = self._figures(stats, self._reason) if stats and len(self._tickets) == 1 else {}
        return {"usage": self._usage(), **alone}

    def _write(self, data: bytes) -> None:
        self._service.totals.events += 1
        self._ready.append(data)
        self._held += len(data)
        if self._held > self._service.limits.unread:
            text = f"the client left more than {self._service.limits.unread} bytes unread"
            self._ready.clear()
            self.fail(errors.ServeError(500, text, code="not_read"))

    def _usage(self) -> dict[str, Any]:
        stats = [each for each in self._stats if each is not None]
        each = self._asked.each
        return answers.added(
            [answers.usage(stats[at : at + each]) for at in range(0, len(stats), each)]
        )

    def _beside(self, index: int) -> dict[str, Any]:
        """What a choice among several says of itself."""
        stats, whole = self._stats[index], self._whole[index]
        if stats is None or whole is None or len(self._tickets) == 1:
            return {}
        return self._figures(stats, whole["choices"][0]["finish_reason"])

    def _figures(self, stats: Stats, finish_reason: str | None) -> dict[str, Any]:
        figures: dict[str, Any] = {"timings": answers.timings(stats)}
        if self._asked.meta_info:
            figures["meta_info"] = answers.meta_info(stats, finish_reason)
        return figures
