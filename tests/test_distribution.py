"""The distribution of sampled text, drafts included: 20,000 short answers against the target's own logits (S1)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from dflash_gguf import Sampling
from dflash_gguf._native import core
from dflash_gguf.pair import check_pair

from .support.random_pairs import Pair

ANSWERS = 20_000
BLOCK, SEQUENCES, LENGTH = 4, 32, 4
PROMPT = [80]
# nanoseconds: from some width on a verify is dear, so that the engine chooses the one below; in turn
COSTS = [
    [
        (n, width, 1e4, 1e7 if width < dear else 1e10, 0.0, 1)
        for n in (1, 32)
        for width in (1, 2, 3, 4)
    ]
    for dear in (2, 3, 5)
]
OUTCOMES = [(1000.0, 800.0)] * (BLOCK - 1)  # earlier drafts have fared well
TURN = 200  # answers
WORDS = [3, 40, 77, 100, 150, 180]  # all other tokens are banned, so that few texts are possible

SETTINGS: dict[str, Mapping[str, Any]] = {
    "plain": {"temperature": 1.3},
    "top-k 5": {"temperature": 1.3, "top_k": 5},
    "top-p 0.9": {"temperature": 1.3, "top_p": 0.9},
}


def sampling(settings: Mapping[str, Any], draft_sampling: str) -> Any:
    banned = {token: -math.inf for token in range(262) if token not in WORDS}
    made = Sampling(**settings, seed=0, logit_bias=banned, draft_sampling=draft_sampling)
    return made.native()


class Texts:
    """Answers of a pair and the chances of each text."""

    def __init__(self, pair: Pair, native: Any) -> None:
        self.pair, self.native = pair, native
        self.model = core().Model(str(pair.target))

    def _params(self, sequences: int) -> Any:
        params = core().ContextParams()
        params.n_ctx, params.n_seq, params.unified = 16, sequences, True
        params.n_batch = params.n_ubatch = params.n_outputs = sequences * BLOCK
        params.type_kv = 0
        params.n_threads = params.n_threads_batch = 1
        return params

    def _open(self, drafts: str) -> tuple[Any, Any]:
        native, params = core(), self._params(SEQUENCES)
        params.n_rollback = BLOCK - 1 if self.model.has_state else 0
        if drafts == "scripted":
            drafter = native.ScriptedDrafter(self.model.n_vocab)
            target = native.Target(native.Context(self.model, params), [])
            return native.Session(target, drafter, BLOCK), drafter
        facts, draft = check_pair(self.pair.target, self.pair.draft), None
        draft = native.Model(str(self.pair.draft))
        context = native.Context(self.model, params)
        params.n_rollback = 0
        drafter = native.ModelDrafter(draft, params, context, facts.mask, facts.causal)
        return native.Session(native.Target(context, draft.taps), drafter, BLOCK), None

    def answers(
        self, drafts: str, *, wanted: int = ANSWERS, auto: bool = False
    ) -> tuple[np.ndarray[Any, Any], float, Counter[int]]:
        """Counts of texts [token 1, ..., token 4] by WORDS, the share of drafted tokens accepted, and depths.

        The depths count answers by the most tokens that were drafted for them at a time.
        """
        session, script = self._open(drafts)
        free = {"depth": 0, "slots": [], "rebuild": 0.0, "shift": 0.0, "outcomes": OUTCOMES}
        depths: Counter[int] = Counter()
        counts = np.zeros([len(WORDS)] * LENGTH)
        texts: dict[int, list[int]] = {}
        started = ended = drafted = accepted = 0
        while ended < wanted:
            while started < wanted and len(texts) < SEQUENCES:
                if auto and started % TURN == 0:
                    session.steer(COSTS[started // TURN % len(COSTS)], **free)
                self.native.seed = started
                number = session.add(
                    PROMPT,
                    max_tokens=LENGTH,
                    block=0 if auto else BLOCK,
                    stops=set(),
                    sampling=self.native,
                )
                if (
                    script is not None
                ):  # what is drafted is unlikely, and the same whatever went before
                    script.script(number, [*PROMPT, WORDS[started % 3], *WORDS[3:]], [3])
                texts[number] = []
                started += 1
            for output in session.step():
                texts[output.id] += output.tokens
                if output.finish != core().Finish.none:
                    counts[tuple(WORDS.index(token) for token in texts.pop(output.id))] += 1
                    counters = session.counters(output.id)
                    drafted, accepted = drafted + counters.drafted, accepted + counters.accepted
                    depths[len(counters.drafted_at)] += 1
                    session.remove(output.id)
                    ended += 1
        return counts, accepted / drafted, depths

    def chances(self) -> np.ndarray[Any, Any]:
        """The target's own probability of each text, one row at a time."""
        context = core().Context(self.model, self._params(1))
        logits = context.evaluate(PROMPT, 0)[-1]

        def row(logits: Any) -> np.ndarray[Any, Any]:
            biased = np.full(262, -np.inf, np.float32)
            biased[WORDS] = logits[WORDS]
            found = core().Distribution.filtered(biased, self.native)
            return np.array([found.of(token) for token in WORDS])

        def follow(logits: Any, length: int) -> np.ndarray[Any, Any]:
            p = row(logits)
            if length == 1:
                return p
            rest = np.zeros([len(WORDS)] * length)
            for i, token in enumerate(WORDS):
                pos = len(PROMPT) + LENGTH - length
                context.truncate(0, pos)
                rest[i] = p[i] * follow(context.evaluate([token], pos)[0], length - 1)
            return rest

        return follow(logits, LENGTH)


def chi_squares(counts: np.ndarray[Any, Any], chances: np.ndarray[Any, Any]) -> dict[str, float]:
    """Of tokens 2, 3 and 4 alone and of each with the one before, as shares of the limit at alpha 0.001."""
    found = {}
    for kept in ((1,), (2,), (3,), (0, 1), (1, 2), (2, 3)):
        others = tuple(axis for axis in range(LENGTH) if axis not in kept)
        seen, wanted = counts.sum(others).ravel(), counts.sum() * chances.sum(others).ravel()
        rare = wanted < 5
        seen = np.append(seen[~rare], seen[rare].sum())
        wanted = np.append(wanted[~rare], wanted[rare].sum())
        if wanted[-1] < 5:
            assert seen[-1] <= 20
            seen, wanted = seen[:-1], wanted[:-1]
        freedom = len(wanted) - 1
        # Wilson and Hilferty's approximation of the quantile
        limit = freedom * (1 - 2 / (9 * freedom) + 3.0902 * math.sqrt(2 / (9 * freedom))) ** 3
        found[str(kept)] = float(((seen - wanted) ** 2 / wanted).sum()) / limit
    return found


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(
    ("draft_sampling", "drafts"), [("gumbel", "scripted"), ("rejection", "own")]
)
def test_tokens_have_the_targets_distribution(
    dense: Pair, draft_sampling: str, drafts: str, settings: str
) -> None:
    texts = Texts(dense, sampling(SETTINGS[settings], draft_sampling))
    counts, accepted, depths = texts.answers(drafts)
    assert 0.005 < accepted < 0.9
    assert list(depths) == [LENGTH - 2]  # the last token is never drafted
    compare(texts, counts)


def compare(texts: Texts, counts: np.ndarray[Any, Any]) -> None:
    chances = texts.chances()
    assert chances.sum() == pytest.approx(1, abs=1e-5)
    found = chi_squares(counts, chances)
    print(found)
    assert max(found.values()) < 1


@pytest.mark.parametrize("settings", ["plain", "top-p 0.9"])
def test_rejection_keeps_it_where_the_engine_chooses_the_widths(dense: Pair, settings: str) -> None:
    """How much is drafted and verified must not depend on what was drawn."""
    texts = Texts(dense, sampling(SETTINGS[settings], "rejection"))
    counts, accepted, depths = texts.answers("own", wanted=6000, auto=True)
    print(accepted, depths)
    assert 0.005 < accepted < 0.9
    assert all(depths[depth] > 200 for depth in range(LENGTH - 1)), depths
    compare(texts, counts)
