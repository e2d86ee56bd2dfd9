"""An engine for asyncio: many streams at once, none of which stops the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Self, TypeVar

from .engine import Engine
from .errors import UsageError
from .sequence import Chunk, Sequence
from .worker import Item, Ticket, Worker

_T = TypeVar("_T")


class AsyncEngine:
    """An engine in a thread of its own, used from coroutines.

    >>> async with AsyncEngine(lambda: load("t.gguf", "d.gguf", sequences=8)) as engine:
    ...     async for chunk in engine.stream("Why is the sky blue?"):
    ...         print(chunk.text, end="")

    Any number of requests may be made at a time; those beyond the engine's `sequences` wait for their turn.
    Chunks are kept until they are read: a slow reader delays nobody. It may be used in several event loops.

    Args:
        open_engine: makes the engine, in its thread.
    """

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self._open_engine = open_engine
        self._worker: Worker | None = None

    async def open(self) -> Self:
        """Load the engine; `async with` does so. Raises what `open_engine` raises."""
        if self._worker is None:
            self._worker = await asyncio.to_thread(Worker, self._open_engine)
        return self

    async def stream(self, *args: Any, **options: Any) -> AsyncGenerator[Chunk, None]:
        """Yield an answer as it grows; arguments and errors as of `Engine.stream`.

        Leaving the iteration, or cancelling the task that is in it, cancels the answer after the decode in
        progress.
        """
        ticket, items = self._ask(args, options)
        try:
            while True:
                item = await items.get()
                if isinstance(item, Exception):
                    raise item
                yield item
                if item.finish_reason not in {None, "error"}:  # the error itself follows
                    return
        finally:
            ticket.cancel()

    async def generate(self, *args: Any, **options: Any) -> Sequence:
        """Return a whole answer; arguments and errors as of `Engine.generate`."""
        ticket, items = self._ask(args, options)
        try:
            while True:
                item = await items.get()
                if isinstance(item, Exception):
                    raise item
                if item.finish_reason not in {None, "error"}:
                    break
        finally:
            ticket.cancel()
        if ticket.sequence is None:
            text = "the engine was closed before the request began; load it again"
            raise UsageError(text)
        return ticket.sequence

    async def call(self, action: Callable[[Engine], _T]) -> _T:
        """Return `action(engine)`, done in the engine's thread between two rounds.

        Such as `await engine.call(lambda e: e.encode("hi"))`.
        """
        return await asyncio.wrap_future(self._opened().call(action))

    async def close(self) -> None:
        """Stop after the round in progress and free the models; harmless if called twice.

        Streams that have not ended do so as cancelled.
        """
        if self._worker is not None:
            await asyncio.to_thread(self._worker.close)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _opened(self) -> Worker:
        if self._worker is None:
            text = "the engine is not open; use `async with` or await its open()"
            raise UsageError(text)
        return self._worker

    def _ask(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[Ticket, asyncio.Queue[Item]]:
        loop, items = asyncio.get_running_loop(), asyncio.Queue[Item]()

        def deliver(item: Item) -> None:  # in the engine's thread
            loop.call_soon_threadsafe(items.put_nowait, item)

        return self._opened().deliver(deliver, *args, **options), items
