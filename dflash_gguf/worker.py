"""An engine in a thread of its own, for callers that must not wait in it: chat, asyncio, a server."""

from __future__ import annotations

import atexit
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from .answer import Answer, Chunk
from .engine import Engine
from .errors import UsageError

_T = TypeVar("_T")
_Action = Callable[[Engine], None]


class Ticket:
    """A request handed to a Worker: iterate, once, for its chunks; `cancel` to stop it.

    Attributes:
        answer: the request once it has begun, None while it waits. Its worker's thread writes to it.
    """

    def __init__(self, worker: Worker, begin: Callable[[Engine], Answer]) -> None:
        self.answer: Answer | None = None
        self._worker = worker
        self._begin = begin
        self._chunks: queue.SimpleQueue[Chunk | Exception] = queue.SimpleQueue()
        self._done = False

    def __iter__(self) -> Iterator[Chunk]:
        while not self._done:
            item = self._chunks.get()
            if isinstance(item, Exception):
                self._done = True
                raise item
            self._done = item.finish_reason not in {None, "error"}  # the error itself follows
            yield item

    def cancel(self) -> None:
        """End the request after the round it is in; its last chunk says "cancelled". Harmless later."""
        try:
            self._worker.call(lambda engine: self._worker._cancel(engine, self))
        except UsageError:  # closed: all requests have ended
            return


class Worker:
    """Runs an engine's rounds while requests come and go from any thread.

    Requests beyond the engine's `sequences` wait for their turn, first come, first served.

    Args:
        open_engine: makes the engine, in the worker's thread, which then owns it.

    Raises what `open_engine` raises. Use as a context manager or `close` it.
    """

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self._inbox: queue.SimpleQueue[_Action | None] = queue.SimpleQueue()
        self._waiting: deque[Ticket] = deque()
        self._running: dict[int, Ticket] = {}  # by the id() of the answer
        self._guard = threading.Lock()  # nothing may enter the inbox after the None that ends it
        self._closed = False
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(open_engine, ready), name="dflash-engine", daemon=True
        )
        self._thread.start()
        # a thread inside llama.cpp must not outlive the interpreter
        atexit.register(self.close)
        try:
            ready.result()
        except BaseException:
            self.close()
            raise

    def submit(self, *args: Any, **options: Any) -> Ticket:
        """Queue a request; arguments as of `Engine.start`. Its errors are raised by the ticket."""
        ticket = Ticket(self, lambda engine: engine.start(*args, **options))
        self.call(lambda _engine: self._waiting.append(ticket))
        return ticket

    def call(self, action: Callable[[Engine], _T]) -> Future[_T]:
        """Have the worker's thread do `action(engine)` between two rounds. Does not wait.

        Raises UsageError if the worker is closed.
        """
        future: Future[_T] = Future()

        def act(engine: Engine) -> None:
            try:
                future.set_result(action(engine))
            except Exception as error:  # noqa: BLE001 (it belongs to the caller)
                future.set_exception(error)

        with self._guard:
            if self._closed:
                text = "the engine is closed; load it again"
                raise UsageError(text)
            self._inbox.put(act)
        return future

    def close(self) -> None:
        """Stop after the round in progress and free the models; harmless if called twice.

        Requests that have not ended do so as cancelled.
        """
        with self._guard:
            if not self._closed:
                self._closed = True
                self._inbox.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, open_engine: Callable[[], Engine], ready: Future[None]) -> None:
        try:
            engine = open_engine()
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            ready.set_exception(error)
            return
        ready.set_result(None)
        with engine:
            while self._take_actions(engine):
                self._begin_waiting(engine)
                self._step(engine)
            for ticket in [*self._running.values(), *self._waiting]:
                self._cancel(engine, ticket)

    def _take_actions(self, engine: Engine) -> bool:
        """Do what is in the inbox, waiting for it if there is nothing else to do; False at its end."""
        while True:
            try:
                action = self._inbox.get(block=not (engine.busy or self._waiting))
            except queue.Empty:
                return True
            if action is None:
                return False
            action(engine)

    def _begin_waiting(self, engine: Engine) -> None:
        while self._waiting and engine.free > 0:
            ticket = self._waiting.popleft()
            try:
                ticket.answer = ticket._begin(engine)
            except Exception as error:  # noqa: BLE001 (it belongs to the ticket)
                ticket._chunks.put(error)
            else:
                self._running[id(ticket.answer)] = ticket

    def _step(self, engine: Engine) -> None:
        try:
            for answer, chunk in engine.step():
                ticket = self._running.get(id(answer))
                if ticket is None:  # begun by an action, which looks after it itself
                    continue
                if chunk.finish_reason is not None:
                    del self._running[id(answer)]
                ticket._chunks.put(chunk)
                if answer.error is not None:
                    ticket._chunks.put(UsageError(answer.error))
        except Exception as error:  # noqa: BLE001 (nobody else is left to hear of it)
            for ticket in self._running.values():
                if ticket.answer is not None:
                    engine.cancel(ticket.answer)
                ticket._chunks.put(error)
            self._running.clear()

    def _cancel(self, engine: Engine, ticket: Ticket) -> None:
        if ticket in self._waiting:
            self._waiting.remove(ticket)
            ticket._chunks.put(Chunk("", (), "cancelled"))
        elif ticket.answer is not None and self._running.pop(id(ticket.answer), None) is not None:
            ticket._chunks.put(engine.cancel(ticket.answer))
