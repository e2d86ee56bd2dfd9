"""An engine in a thread of its own, for callers that must not wait in it: chat, asyncio, a server."""

from __future__ import annotations

import atexit
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Self, TypeAlias, TypeVar, Unpack

from .engine import Engine
from .errors import UsageError
from .params import Keywords, Params, combined
from .prompt import Prompt
from .sequence import Chunk, Sequence, Unread

_T = TypeVar("_T")
_Action: TypeAlias = "Callable[[_Rounds, Engine], None]"
Item: TypeAlias = Chunk | BaseException  # what a request brings


class Ticket:
    """A request handed to a Worker: iterate, once, for its chunks; `cancel` to stop it.

    Attributes:
        sequence: the request once it has begun, None while it waits. Its worker's thread writes to it.
    """

    def __init__(
        self,
        worker: Worker,
        begin: Callable[[Engine], Sequence],
        deliver: Callable[[Item], None] | None = None,
    ) -> None:
        self.sequence: Sequence | None = None
        self._unread: Unread | None = None
        self._worker = worker
        self._begin = begin
        self._chunks: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._deliver = deliver or self._chunks.put
        self._done = False
        self._cancelled = False

    def __iter__(self) -> Iterator[Chunk]:
        while not self._done:
            self._worker._expect_reader()
            item = self._chunks.get()
            if isinstance(item, BaseException):
                self._done = True
                raise item
            self._done = item.finish_reason not in {None, "error"}  # the error itself follows
            yield item

    def cancel(self) -> None:
        """End the request soon; its last chunk says "cancelled". Harmless later.

        Alone in the engine it ends within half a second, else after the round it is in.
        """
        self._cancelled = True  # first: the worker's thread sets `sequence` and then reads this
        if self.sequence is not None:
            self.sequence.interrupt()
        try:
            self._worker._queue(lambda rounds, engine: rounds.cancel(engine, self))
        except UsageError:  # closed: all requests have ended
            return


class Worker:
    """Runs an engine's rounds while requests come and go from any thread.

    Requests beyond the engine's `sequences` wait for their turn, first come, first served.

    Args:
        open_engine: makes the engine, in the worker's thread, which then owns it.

    Raises what `open_engine` raises. Use as a context manager or `close` it; one that nobody holds closes
    itself when its requests have ended.
    """

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self._rounds = rounds = _Rounds()
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=rounds.run, args=(open_engine, ready), name="dflash-engine", daemon=True
        )
        self._thread.start()
        _threads[self._thread] = rounds
        weakref.finalize(self, rounds.stop)  # the thread holds the rounds, not the worker
        try:
            ready.result()
        except BaseException:
            self.close()
            raise

    def submit(
        self, prompt: Prompt, params: Params | None = None, **keywords: Unpack[Keywords]
    ) -> Ticket:
        """Queue a request; arguments as of `Engine.start`.

        Raises UsageError for what makes no sense in any engine; other errors are raised by the ticket.
        """
        return self.deliver(None, prompt, params, **keywords)

    def deliver(
        self,
        to: Callable[[Item], None] | None,
        prompt: Prompt,
        params: Params | None = None,
        **keywords: Unpack[Keywords],
    ) -> Ticket:
        """Queue a request whose chunks and errors are handed to a function, in the worker's thread.

        If the function raises, the request is cancelled. Errors as of `submit`.
        """
        chosen = combined(params, keywords)
        return self.enqueue(to, lambda engine: engine.start(prompt, chosen))

    def enqueue(
        self, to: Callable[[Item], None] | None, begin: Callable[[Engine], Sequence]
    ) -> Ticket:
        """Do as `deliver` with a request that a function starts, in the worker's thread, when its turn comes."""
        ticket = Ticket(self, begin, to)
        self._queue(lambda rounds, _engine: rounds.waiting.append(ticket))
        return ticket

    def call(self, action: Callable[[Engine], _T]) -> Future[_T]:
        """Have the worker's thread do `action(engine)` between two rounds. Does not wait.

        Nor may that thread itself, such as in another action, wait for its result. Raises UsageError if the
        worker is closed.
        """
        return self._queue(lambda _rounds, engine: action(engine))

    @property
    def closed(self) -> bool:
        """Whether it takes no more requests: it was closed, or its thread has failed."""
        return self._rounds.closed

    def close(self) -> None:
        """Stop as `Ticket.cancel` does and free the models; harmless if called twice.

        Requests that have not ended do so as cancelled.
        """
        self._rounds.stop()
        self._rounds.hurry()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _expect_reader(self) -> None:
        self._rounds.expect_process()
        if threading.current_thread() is self._thread:
            text = "the worker's own thread would wait for itself; use its engine there"
            raise UsageError(text)

    def _queue(self, action: Callable[[_Rounds, Engine], _T]) -> Future[_T]:
        future: Future[_T] = Future()

        def act(rounds: _Rounds, engine: Engine) -> None:
            if not future.set_running_or_notify_cancel():
                return  # nobody waits any more, such as a coroutine that was cancelled
            try:
                future.set_result(action(rounds, engine))
            except BaseException as error:  # noqa: BLE001 (it belongs to the caller)
                future.set_exception(error)

        self._rounds.add(act)
        return future


class _Rounds:
    """What a worker's thread does. It is that thread's own, but for `add` and `stop`."""

    def __init__(self) -> None:
        self.waiting: deque[Ticket] = deque()
        self._inbox: queue.SimpleQueue[_Action | None] = queue.SimpleQueue()
        self._running: dict[int, Ticket] = {}  # by the id() of the sequence
        self._guard = threading.Lock()  # nothing may enter the inbox after the None that ends it
        self._closed = False
        self._process = os.getpid()

    def expect_process(self) -> None:
        """Raise UsageError in a process that was forked from the worker's: its thread is not there."""
        if os.getpid() != self._process:
            text = "a worker stays in the process that made it; make one in this process"
            raise UsageError(text)

    def add(self, action: _Action) -> None:
        self.expect_process()
        with self._guard:
            if self._closed:
                text = "the engine is closed; load it again"
                raise UsageError(text)
            self._inbox.put(action)

    @property
    def closed(self) -> bool:
        return self._closed

    def stop(self) -> None:
        if os.getpid() != self._process:  # whose guard may be held for ever
            return
        with self._guard:
            if not self._closed:
                self._closed = True
                self._inbox.put(None)

    def hurry(self) -> None:
        """Have the running requests end; from any thread."""
        for ticket in list(self._running.values()):
            if ticket.sequence is not None:
                ticket.sequence.interrupt()

    def run(self, open_engine: Callable[[], Engine], ready: Future[None]) -> None:
        try:
            engine = _usable(open_engine())
        except BaseException as error:  # noqa: BLE001 (raised again in the caller's thread)
            ready.set_exception(error)
            return
        ready.set_result(None)
        try:
            with engine:
                while self._take_actions(engine):
                    self._begin_waiting(engine)
                    self._step(engine)
        finally:  # whatever ended it: nobody may wait for ever
            self._end(engine)

    def _end(self, engine: Engine) -> None:
        """Tell all that are left; the engine is closed."""
        self.stop()
        with suppress(queue.Empty):
            while True:
                if (action := self._inbox.get_nowait()) is not None:
                    action(self, engine)
        self._tell(engine)
        for ticket in [*self._running.values(), *self.waiting]:
            self._hand(ticket, Chunk("", (), "cancelled"))
        self._running.clear()
        self.waiting.clear()

    def cancel(self, engine: Engine, ticket: Ticket) -> None:
        if ticket in self.waiting:
            self.waiting.remove(ticket)
            self._hand(ticket, Chunk("", (), "cancelled"))
        elif ticket.sequence is not None and id(ticket.sequence) in self._running:
            if not engine.closed:
                engine.cancel(ticket.sequence)
            self._tell_one(engine, ticket)

    def _take_actions(self, engine: Engine) -> bool:
        """Do what is in the inbox, waiting for it if there is nothing else to do; False if all is at its end."""
        while not engine.closed:
            try:
                action = self._inbox.get(block=not (engine.busy or self.waiting))
            except queue.Empty:
                return True
            if action is None:
                return False
            action(self, engine)
            self._tell(engine)  # it may have taken steps
        return False

    def _begin_waiting(self, engine: Engine) -> None:
        while self.waiting and not engine.closed and engine.free > 0:
            ticket = self.waiting.popleft()
            try:
                ticket.sequence = ticket._begin(engine)
            except BaseException as error:  # noqa: BLE001 (it belongs to the ticket)
                self._hand(ticket, error)
            else:
                ticket._unread = Unread(ticket.sequence)
                self._running[id(ticket.sequence)] = ticket
                if ticket._cancelled or self._closed:
                    ticket.sequence.interrupt()

    def _step(self, engine: Engine) -> None:
        try:
            engine.step()
        except Exception as error:  # noqa: BLE001 (nobody else is left to hear of it)
            for ticket in self._running.values():
                if ticket.sequence is not None and not engine.closed:
                    engine.cancel(ticket.sequence)
                self._hand(ticket, error)
            self._running.clear()
        self._tell(engine)

    def _tell(self, engine: Engine) -> None:
        for ticket in list(self._running.values()):
            self._tell_one(engine, ticket)

    def _tell_one(self, engine: Engine, ticket: Ticket) -> None:
        """Hand a running request what is new of it, whoever took the steps."""
        sequence, unread = ticket.sequence, ticket._unread
        if sequence is None or unread is None or (chunk := unread.take()) is None:
            return
        if chunk.finish_reason is not None:
            self._running.pop(id(sequence), None)
        if not self._hand(ticket, chunk):
            self.cancel(engine, ticket)
        elif sequence.error is not None:
            self._hand(ticket, UsageError(sequence.error))

    @staticmethod
    def _hand(ticket: Ticket, item: Item) -> bool:
        try:
            ticket._deliver(item)
        except BaseException:  # noqa: BLE001 (an event loop that is closed, say: nobody listens)
            return False
        return True


def _usable(engine: object) -> Engine:
    """Return what a worker's thread has opened, if it can use it."""
    if not isinstance(engine, Engine):
        text = f"open_engine returned {type(engine).__name__}; expected an Engine, as `lambda: load(...)` does"
        raise UsageError(text)
    try:
        _ = engine.free
    except UsageError as error:
        text = (
            f"open_engine returned an engine that the worker cannot use ({error}); have it load one"
        )
        raise UsageError(text) from None
    return engine


# of all workers: a thread inside llama.cpp must not outlive the interpreter
_threads: weakref.WeakKeyDictionary[threading.Thread, _Rounds] = weakref.WeakKeyDictionary()


@atexit.register
def _stop_all() -> None:
    for thread, rounds in list(_threads.items()):
        rounds.stop()
        rounds.hurry()
        thread.join()
