"""An engine in a thread of its own, for callers that must not wait in it: chat, asyncio, a server."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

from .answer import Answer, Chunk
from .engine import Engine
from .errors import DflashError, UsageError


class Ticket:
    """A request handed to a Worker: iterate for its chunks, `cancel` to stop it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._chunks: queue.SimpleQueue[Chunk | BaseException] = queue.SimpleQueue()
        self.answer: Answer | None = None

    def __iter__(self) -> Iterator[Chunk]:
        while True:
            item = self._chunks.get()
            if isinstance(item, BaseException):
                raise item
            yield item
            if item.finish_reason is not None:
                return

    def cancel(self) -> None:
        """End the request after the round it is in; its last chunk says "cancelled"."""
        self._worker.call(lambda engine: self._worker._cancel(engine, self))


class Worker:
    """Runs an engine's rounds while requests come and go from any thread.

    Args:
        open_engine: makes the engine, in the worker's thread, which then owns it.

    Raises what `open_engine` raises. Use as a context manager or `close` it.
    """

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self._inbox: queue.SimpleQueue[Callable[[Engine], Any] | None] = queue.SimpleQueue()
        self._running: dict[int, Ticket] = {}
        self._ready: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(
            target=self._run, args=(open_engine,), name="dflash-engine", daemon=True
        )
        self._thread.start()
        failure = self._ready.get()
        if failure is not None:
            self._closed = True
            self._thread.join()
            raise failure

    def submit(self, *args: Any, **options: Any) -> Ticket:
        """Queue a request; arguments as of `Engine.start`. Its errors are raised by the ticket."""
        ticket = Ticket(self)

        def start(engine: Engine) -> None:
            try:
                ticket.answer = engine.start(*args, **options)
                self._running[id(ticket.answer)] = ticket
            except DflashError as error:
                ticket._chunks.put(error)

        self.call(start)
        return ticket

    def call(self, action: Callable[[Engine], Any]) -> None:
        """Have the worker's thread do `action(engine)` between two rounds. Does not wait."""
        if self._closed:
            text = "the engine is closed; load it again"
            raise UsageError(text)
        self._inbox.put(action)

    def close(self) -> None:
        """Stop after the round in progress and free the models; harmless if called twice."""
        if not self._closed:
            self._closed = True
            self._inbox.put(None)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, open_engine: Callable[[], Engine]) -> None:
        try:
            engine = open_engine()
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            self._ready.put(error)
            return
        self._ready.put(None)
        with engine:
            while self._serve(engine):
                pass
            for ticket in list(self._running.values()):
                self._cancel(engine, ticket)

    def _cancel(self, engine: Engine, ticket: Ticket) -> None:
        if self._running.pop(id(ticket.answer), None) is not None and ticket.answer is not None:
            ticket._chunks.put(engine.cancel(ticket.answer))

    def _serve(self, engine: Engine) -> bool:
        while True:
            try:
                action = self._inbox.get(block=not engine.busy)
            except queue.Empty:
                break
            if action is None:
                return False
            action(engine)
        try:
            for answer, chunk in engine.step():
                ticket = self._running[id(answer)]
                if chunk.finish_reason is not None:
                    del self._running[id(answer)]
                ticket._chunks.put(chunk)
        except DflashError as error:
            for ticket in self._running.values():
                ticket._chunks.put(error)
            self._running.clear()
        return True
