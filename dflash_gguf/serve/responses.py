"""Answers on the wire: all at once, or event by event. Both notice a client that leaves, even while it waits."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from starlette.responses import Response as Starlette
from starlette.types import Receive, Scope, Send

from . import errors
from .events import dumps, event

if TYPE_CHECKING:
    from .answering import Answering
    from .service import Service

_STREAM = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx would hold events back
}


class Response(Starlette):
    """An answer that is being written.

    Args:
        service: which looks after it.
        answering: what it writes.

    Attributes:
        since: when the last event went out; None: there are none.
    """

    def __init__(self, service: Service, answering: Answering) -> None:
        super().__init__()
        self.since: float | None = None
        self._service = service
        self._answering = answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write it, and stop the engine's work for it if the client leaves."""
        del scope
        self._service.responses.add(self)
        watcher = asyncio.create_task(self._watch(receive))
        try:
            await self.write(send)
        finally:
            watcher.cancel()
            self._answering.cancel()
            self._service.responses.discard(self)

    async def write(self, send: Send) -> None:
        """Send all of it."""
        raise NotImplementedError

    def poke(self, data: bytes) -> None:
        """Have it show that it lives, if it can."""

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._answering.cancel()
        self._answering.poke()

    @staticmethod
    async def _head(send: Send, status: int, headers: dict[str, str]) -> None:
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})

    @staticmethod
    async def _body(send: Send, data: bytes, *, more: bool) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": more})

    async def _object(
        self, send: Send, status: int, found: Any, headers: dict[str, str] | None = None
    ) -> None:
        data = dumps(found).encode()
        kinds = {"content-type": "application/json", "content-length": str(len(data))}
        await self._head(send, status, kinds | (headers or {}))
        await self._body(send, data, more=False)

    async def _fail(self, send: Send, error: errors.ServeError) -> None:
        await self._object(send, error.status, error.body(), error.headers())


class Whole(Response):
    """An answer in one object."""

    async def write(self, send: Send) -> None:
        """Wait for it and send it."""
        answering = self._answering
        while not answering.done and answering.error is None:
            await answering.take()
        if answering.error is not None:
            await self._fail(send, answering.error)
        elif not answering.cancelled:
            await self._object(send, 200, answering.whole())


class Streamed(Response):
    """An answer as server-sent events, one for each block that was accepted.

    The head goes out with the first event, so that what fails before it is an error's status.
    """

    def poke(self, data: bytes) -> None:
        """Show that the stream lives."""
        self._answering.poke(data)

    async def write(self, send: Send) -> None:
        """Send events as they come."""
        answering = self._answering
        self.since = time.monotonic()
        data = await answering.take()
        if not data:
            if answering.error is not None:
                await self._fail(send, answering.error)
            return
        await self._head(send, 200, _STREAM)
        while data:
            await self._body(send, data, more=True)
            self.since = time.monotonic()
            data = await answering.take()
        if answering.error is not None:
            data = event(answering.error.body())
        await self._body(send, data, more=False)
