"""Ctrl-C at the right moment: not within a step's bookkeeping, but at once for a decode that can be given up."""

from __future__ import annotations

# what is behind `signal`, whose conversions to enums would take 10 microseconds a round
import _signal  # type: ignore[import-not-found]
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

_SIGINT = int(signal.SIGINT)


class Whole:
    """A block that Ctrl-C does not tear: KeyboardInterrupt comes at its end, and what is after it is not done.

    Python runs signal handlers between any two instructions of the main thread; elsewhere there is nothing to do.

    Attributes:
        pressed: whether one is to come.
    """

    __slots__ = ("_before", "pressed")

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = _signal.getsignal(_SIGINT)  # None: not Python's, and so it raises nothing
            if before is not None and before != _signal.SIG_IGN:
                self._before = before
                _signal.signal(_SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            _signal.signal(_SIGINT, self._before)
            if self.pressed:
                _signal.raise_signal(_SIGINT)

    def _note(self, _number: int, _frame: object) -> None:
        self.pressed = True


class Work:
    """Blocks of an engine's bookkeeping: Ctrl-C does not tear them, and `inside` tells what else must wait.

    One may be within another.

    Attributes:
        inside: how many are going on.
    """

    __slots__ = ("_whole", "inside")

    def __init__(self) -> None:
        self.inside = 0
        self._whole: list[Whole] = []

    def __enter__(self) -> None:
        whole = Whole()
        whole.__enter__()
        self._whole.append(whole)
        self.inside += 1

    def __exit__(self, *_: object) -> None:
        self.inside -= 1
        self._whole.pop().__exit__()


@contextmanager
def told_at_once(action: Callable[[], object]) -> Iterator[None]:
    """Call a function in a thread of its own as soon as Ctrl-C is pressed, while the main thread is in a decode.

    Python's own handlers wait until that returns. Only in the main thread.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)

    def listen() -> None:
        while number := os.read(read_end, 1):
            if number[0] == signal.SIGINT:
                action()

    thread = threading.Thread(target=listen, name="dflash-ctrl-c", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(write_end)
        thread.join()
        os.close(read_end)
