"""How many answers may run and wait at a time."""

from __future__ import annotations

from .errors import ServeError


class Places:
    """Answers in the engine and in the queue before it. For one thread.

    Args:
        parallel: answers that run at the same time.
        queue: answers that may wait for one of them to end.

    Attributes:
        taken: answers that run or wait.
    """

    def __init__(self, parallel: int, queue: int) -> None:
        self.taken = 0
        self.parallel = parallel
        self.most = parallel + queue
        self._seconds = 1.0  # an answer takes, lately

    def take(self, count: int) -> None:
        """Take places for the answers of a request. Raises ServeError, 429, if not all can be had."""
        if self.taken + count > self.most:
            waiting = max(self.taken - self.parallel, 0)
            text = (
                f"{self.taken} answers are under way and {self.most - self.parallel} may wait; try again "
                "later, or start the server with a longer --queue"
            )
            seconds = self._seconds * (1 + waiting / self.parallel)
            raise ServeError(
                429, text, code="queue_full", retry_after=max(1, min(round(seconds), 600))
            )
        self.taken += count

    def leave(self, seconds: float) -> None:
        """Give a place back after an answer that took so long."""
        self.taken -= 1
        self._seconds += (seconds - self._seconds) / 8
