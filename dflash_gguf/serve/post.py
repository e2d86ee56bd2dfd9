"""From the engine's thread to the event loop, a wake-up for each round instead of one for each stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

Letter: TypeAlias = Callable[[], None]


class Post:
    """Has functions called in an event loop, in the order in which other threads hand them in.

    The loop is woken by the first that is handed in after it has taken the last ones, which is when the engine has gone
    on to its next decode and no longer needs the interpreter.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._letters: deque[Letter] = deque()
        self._woken = False

    def put(self, letter: Letter) -> None:
        """Hand one in, from any thread. Raises RuntimeError if the loop is closed."""
        self._letters.append(letter)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._woken = False  # first: what is handed in from now on wakes the loop again
        letters = self._letters
        while letters:
            letters.popleft()()
