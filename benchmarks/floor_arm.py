"""The floor of benchmarks/peers.py: the llama.cpp calls of a round and nothing else.

What any driver pays: draft, verify, injection and rollback of a width, with no token chosen from any logits. A round
brings as many tokens as this engine's own rounds of that width do in the same run, or as the survival curve
lets expect; as a verify keeps whole rows, two runs of neighbouring numbers are mixed. Several sequences all go on to
the end, which is more than any driver gets of answers of different lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from peer_arms import Batch, Reply, Task

import dflash_gguf
from dflash_gguf._native import core


class Floor:
    """Bare rounds of `width` rows; width 1 is without a drafter.

    `like` gives the latest replies of this engine at that width.
    """

    kind = "floor"

    def __init__(self, task: Task, width: int, like: Callable[[], Sequence[Reply]]) -> None:
        self.name = f"floor {width}"
        self._task, self._width, self._like = task, width, like
        settings: dict[str, Any] = {"threads": task.threads, "context": task.context}
        settings |= {"sequences": task.sequences, "prefix_memory": 0}
        if width > 1:
            settings |= {"max_block": width, "block": width}
        draft = None if width == 1 else task.draft
        self.engine = dflash_gguf.load(task.target, draft, **settings)

    def answer(self, prompts: Sequence[Sequence[int]]) -> Batch:
        """Do as many rounds as the answers took, after prompts of their mean length."""
        like = self._like()
        context = round(sum(map(len, prompts)) / len(prompts))
        rounds = max(1, round(sum(reply.rounds for reply in like) / len(like)))
        kept = self._kept(like)
        least = min(math.floor(kept), self._width)
        many = round(rounds * (kept - least))
        seconds = sum(
            self._seconds(count, rows, context)
            for count, rows in ((rounds - many, least), (many, least + 1))
            if count
        )
        # what was done, not what was wished for: `many` is rounded
        tokens = rounds * least + many
        each = Reply([], seconds, seconds, tokens, rounds, 0, 0, tokens)
        return Batch([each] * len(prompts), tokens * len(prompts), seconds)

    def _kept(self, like: Sequence[Reply]) -> float:
        if self._task.survival is not None:
            return 1 + sum(self._task.survival[: self._width - 1])
        return sum(reply.count for reply in like) / max(1, sum(reply.rounds for reply in like))

    def _seconds(self, rounds: int, kept: int, context: int) -> float:
        parts = self.engine._open()
        costs = core().bare_rounds(
            parts.target,
            parts.drafter,
            sequences=self._task.sequences,
            width=self._width,
            kept=kept,
            rounds=rounds,
            context=context,
        )
        return sum(map(sum, costs)) * 1e-9

    def close(self) -> None:
        """Free the models."""
        self.engine.close()
