"""Rejection sampling of drafted tokens: the target's distribution exactly, and faults that would show."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf import Sampling
from dflash_gguf._native import core

SAMPLES = 20_000
ROWS, TOKENS = 4, 6  # a block of three drafted tokens and the row after them
LIMIT = 66.62  # chi-square of 35 degrees of freedom at 0.001


def softmax(logits: Any) -> Any:
    weights = np.exp(np.asarray(logits, np.float64) - np.max(logits))
    return weights / weights.sum()


class Block:
    """A target and a draft of six tokens whose rows differ; the target's also by the token before."""

    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self.target = random.normal(0, 1.5, (ROWS, TOKENS, TOKENS)).astype(np.float32)
        self.draft = random.normal(0, 1.5, (ROWS, TOKENS)).astype(np.float32)
        whole = core().Distribution.whole
        self.p = [[whole(row, 1.0) for row in rows] for rows in self.target]
        self.q = [whole(row, 1.0) for row in self.draft]
        self.of_target = [[softmax(row).cumsum().tolist() for row in rows] for rows in self.target]
        self.of_draft = [softmax(row).cumsum().tolist() for row in self.draft]
        self.random = Random(1)

    def draw(self, sums: list[float]) -> int:
        return min(bisect(sums, self.random.random()), TOKENS - 1)

    def round(
        self,
        *,
        claimed: list[Any] | None = None,
        bonus_row: int = 0,
        subtract: bool = True,
    ) -> list[int]:
        """One round after token 0; the arguments plant faults."""
        drafted = [self.draw(self.of_draft[i]) for i in range(ROWS - 1)]
        before = [0, *drafted]
        count, token = core().accept_drawn(
            drafted,
            claimed or self.q,
            lambda i: self.p[i][before[i]],
            lambda i: self.draw(self.of_target[i + bonus_row][before[i + bonus_row]]),
            lambda i: self.random.random(),
            lambda i: self.random.random(),
        )
        if not subtract and count < len(drafted):
            token = self.draw(self.of_target[count][before[count]])
        return [*drafted[:count], token]

    def tokens(self, **faults: Any) -> list[int]:
        """Rounds' worth of tokens: a round that ends early is gone on with by the target alone."""
        tokens = self.round(**faults)
        while len(tokens) < ROWS:
            tokens.append(self.draw(self.of_target[len(tokens)][tokens[-1]]))
        return tokens

    def chi_squares(self, **faults: Any) -> list[float]:
        """Of each pair of neighbours, with what the target's own draws give."""
        counts = np.zeros((ROWS, TOKENS, TOKENS))
        for _ in range(SAMPLES):
            tokens = [0, *self.tokens(**faults)]
            for i in range(ROWS):
                counts[i, tokens[i], tokens[i + 1]] += 1
        found, before = [], np.eye(TOKENS)[0]
        for i in range(ROWS):
            joint = before[:, None] * np.array([softmax(row) for row in self.target[i]])
            wanted = SAMPLES * joint
            found.append(float(((counts[i] - wanted) ** 2 / np.maximum(wanted, 1e-9)).sum()))
            before = joint.sum(axis=0)
        return found


def test_accepted_tokens_have_the_targets_distribution() -> None:
    assert max(Block().chi_squares()) < LIMIT


FAULTS: dict[str, Callable[[Block], dict[str, Any]]] = {
    "residual not subtracted": lambda block: {"subtract": False},
    "q of the next row": lambda block: {"claimed": [*block.q[1:], block.q[0]]},
    "q at another temperature": lambda block: {
        "claimed": [core().Distribution.whole(row, 1.3) for row in block.draft]
    },
    "q taken for certain": lambda block: {
        "claimed": [core().Distribution.certain(int(row.argmax())) for row in block.draft]
    },
    "bonus of the row before": lambda block: {"bonus_row": -1},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str) -> None:
    block = Block()
    assert max(block.chi_squares(**FAULTS[fault](block))) > 2 * LIMIT


ROW = st.lists(st.floats(-30, 30, width=32), min_size=8, max_size=8)


@given(ROW, ROW, st.sampled_from([0, 3]), st.sampled_from([0.3, 1.0]), st.booleans())
def test_probabilities_and_residuals(
    p: list[float], q: list[float], top_k: int, temperature: float, certain: bool
) -> None:
    """Whole and filtered distributions, in any pairing, against numpy."""
    made, plain = [], []
    for logits, k in ((p, top_k), (q, 3 - top_k)):
        if k:
            native = Sampling(temperature=temperature, top_k=k, seed=1).native()
            made.append(core().Distribution.filtered(np.array(logits, np.float32), native))
            kept = sorted(range(8), key=lambda i: (-logits[i], i))[:k]
            masked = np.full(8, -np.inf)
            masked[kept] = np.array(logits)[kept]
        else:
            made.append(core().Distribution.whole(np.array(logits, np.float32), temperature))
            masked = np.array(logits)
        plain.append(softmax(masked / temperature))
    if certain:
        made[1], plain[1] = core().Distribution.certain(5), np.eye(8)[5]
    for distribution, wanted in zip(made, plain, strict=True):
        assert [distribution.of(i) for i in range(8)] == pytest.approx(wanted, abs=1e-6)
    rest = np.maximum(plain[0] - plain[1], 0)
    if rest.sum() > 1e-3:
        edges = np.cumsum(rest) / rest.sum()
        for u in (0.001, 0.2, 0.5, 0.8, 0.999):
            if abs(edges - u).min() > 1e-3:
                found = made[0].residual(made[1], u)
                assert found == int(np.searchsorted(edges, u))


def test_a_residual_of_a_large_vocabulary() -> None:
    """Every token has its share, in whichever step of the walk it lies."""
    random = np.random.default_rng(5)
    p, q = random.normal(0, 2, (2, 5_000)).astype(np.float32)
    p[4_000] = 12.0
    rest = np.maximum(softmax(p) - softmax(q), 0)
    edges = np.cumsum(rest) / rest.sum()
    of_p, of_q = (core().Distribution.whole(row, 1.0) for row in (p, q))
    points = [(edges[i - 1] + edges[i]) / 2 for i in range(1, 5_000) if rest[i] > 2e-5]
    assert len(points) > 500
    found = [of_p.residual(of_q, float(u)) for u in points]
    assert found == [int(np.searchsorted(edges, u)) for u in points]
    assert of_p.residual(of_p, 0.5) == -1
