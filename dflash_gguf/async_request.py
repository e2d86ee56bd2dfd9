"""A coroutine's request: what becomes of its chunks in the engine's thread comes out in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from .errors import UsageError
from .params import Params
from .prompt import Prompt
from .sequence import Chunk, Sequence
from .worker import Item, Worker

_T = TypeVar("_T")


class Request(Generic[_T]):
    """A request, queued when this is made. `follow` it at once, once: that is what cancels it.

    Args:
        worker: whose engine answers.
        prompt: and
        params: as of `Engine.start`.
        make: called with each chunk in the engine's thread, where the engine may be used; returns what
            `follow` is to yield.

    Raises UsageError if the worker is closed.
    """

    def __init__(
        self, worker: Worker, prompt: Prompt, params: Params, make: Callable[[Chunk], _T]
    ) -> None:
        items = asyncio.Queue[tuple[_T, str | None] | BaseException]()
        loop = asyncio.get_running_loop()

        def deliver(item: Item) -> None:  # in the engine's thread
            loop.call_soon_threadsafe(items.put_nowait, _made(item, make))

        self._items = items
        self._ticket = worker.deliver(deliver, prompt, params)

    async def follow(self) -> AsyncGenerator[_T, None]:
        """Yield what is made of each chunk. Raises the request's errors; cancels it when left early."""
        try:
            while True:
                item = await self._items.get()
                if isinstance(item, BaseException):
                    raise item
                made, finish_reason = item
                yield made
                if finish_reason not in {None, "error"}:  # the error itself follows
                    return
        finally:
            self._ticket.cancel()

    @property
    def sequence(self) -> Sequence:
        """The request itself. Raises UsageError if it ended before it began."""
        if self._ticket.sequence is None:
            text = "the engine was closed before the request began; load it again"
            raise UsageError(text)
        return self._ticket.sequence


def _made(item: Item, make: Callable[[Chunk], _T]) -> tuple[_T, str | None] | BaseException:
    if isinstance(item, BaseException):
        return item
    try:
        return make(item), item.finish_reason
    except BaseException as error:  # noqa: BLE001 (it belongs to who follows, who would else wait forever)
        return error
