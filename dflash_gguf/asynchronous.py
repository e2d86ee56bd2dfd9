"""An engine for asyncio: many streams at once, none of which stops the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Self, TypeVar, Unpack

from . import openai_async
from .async_request import Request
from .engine import Engine
from .errors import UsageError
from .params import Keywords, Params, combined
from .prompt import Prompt
from .sequence import Chunk, Sequence
from .worker import Worker

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
        self._guard = threading.Lock()  # opened and closed one after the other, whoever asks

    async def open(self) -> Self:
        """Load the engine; `async with` does so. Raises what `open_engine` raises.

        Harmless if it is open, or being opened by someone else.
        """
        await asyncio.to_thread(self._load)
        return self

    async def stream(
        self, prompt: Prompt, params: Params | None = None, **keywords: Unpack[Keywords]
    ) -> AsyncGenerator[Chunk, None]:
        """Yield an answer as it grows; arguments and errors as of `Engine.stream`.

        Leaving the iteration, or cancelling the task that is in it, cancels the answer as `Ticket.cancel` does.
        """
        request = Request(self._opened(), prompt, combined(params, keywords), lambda chunk: chunk)
        async with aclosing(request.follow()) as chunks:
            async for chunk in chunks:
                yield chunk

    async def generate(
        self, prompt: Prompt, params: Params | None = None, **keywords: Unpack[Keywords]
    ) -> Sequence:
        """Return a whole answer; arguments and errors as of `Engine.generate`."""
        request = Request(self._opened(), prompt, combined(params, keywords), lambda _: None)
        async with aclosing(request.follow()) as chunks:
            async for _ in chunks:
                pass
        return request.sequence

    create_chat_completion = openai_async.create_chat_completion
    create_completion = openai_async.create_completion

    async def call(self, action: Callable[[Engine], _T]) -> _T:
        """Return `action(engine)`, done in the engine's thread between two rounds.

        Such as `await engine.call(lambda e: e.encode("hi"))`.
        """
        return await asyncio.wrap_future(self._opened().call(action))

    async def close(self) -> None:
        """Stop after the round in progress and free the models; harmless if called twice.

        Streams that have not ended do so as cancelled.
        """
        await asyncio.to_thread(self._unload)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _load(self) -> None:
        with self._guard:
            if self._worker is None:
                self._worker = Worker(self._open_engine)

    def _unload(self) -> None:
        with self._guard:
            if self._worker is not None:
                self._worker.close()

    def _opened(self) -> Worker:
        if self._worker is None:
            text = "the engine is not open; use `async with` or await its open()"
            raise UsageError(text)
        return self._worker
