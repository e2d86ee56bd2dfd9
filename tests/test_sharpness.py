"""Sharper drafts of sampled texts: which choice is learnt, and that every draft is the one it claims to be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dflash_gguf
from dflash_gguf import Sampling
from dflash_gguf._native import core
from dflash_gguf.pair import check_pair

from .support.random_pairs import Pair

CHOICES = len(core().Sharpness.choices())
FIRST, BEST = 2, CHOICES - 1
WRITTEN = 7


def show(learnt: Any, right: list[float], count: int, temperature: float = 1.0) -> None:
    """Show places of which the choices have these shares right."""
    for place in range(count):
        picks = [WRITTEN if place % 10 < 10 * share else 8 for share in right]
        learnt.saw(temperature, picks, WRITTEN)


def test_choices_go_from_the_drafts_own_distribution_to_its_best_token() -> None:
    choices = core().Sharpness.choices()
    assert choices == sorted(choices)
    assert (choices[0], choices[-1]) == (1, math.inf)


@pytest.mark.parametrize("best", range(CHOICES))
def test_what_would_have_been_right_most_often_is_chosen(best: int) -> None:
    learnt = core().Sharpness()
    assert learnt.best(1.0) == FIRST
    show(learnt, [0.9 if choice == best else 0.8 for choice in range(CHOICES)], 40)
    assert learnt.best(1.0) == best


def test_one_lucky_token_changes_nothing() -> None:
    learnt = core().Sharpness()
    show(learnt, [0.8, 0.8, 0.8, 0.9], 10)
    assert learnt.best(1.0) == FIRST


def test_a_change_of_subject_is_noticed() -> None:
    learnt = core().Sharpness()
    show(learnt, [0.4, 0.4, 0.4, 0.6], 20_000)
    assert learnt.best(1.0) == BEST
    show(learnt, [0.6, 0.4, 0.4, 0.4], 1_000)
    assert learnt.best(1.0) == 0


def test_temperatures_far_apart_are_learnt_apart() -> None:
    learnt = core().Sharpness()
    show(learnt, [0.9, 0.5, 0.5, 0.5], 50, temperature=0.3)
    assert [learnt.best(t) for t in (0.35, 1.0, 100.0)] == [0, FIRST, FIRST]
    assert [learnt.places(t) > 0 for t in (0.2, 0.25, 0.49, 0.5)] == [False, True, True, False]


def test_hits_are_counted_where_the_target_wrote_the_pick() -> None:
    learnt = core().Sharpness()
    learnt.saw(1.0, [7, 7, 8, -1], 7)
    assert learnt.places(1.0) == 1
    assert learnt.hits(1.0) == [1, 1, 0, 0]


@given(st.integers(0, 1 << 40), st.integers(1, 5), st.integers(1, 16))
def test_places_are_compared_in_turn_in_few_rounds(
    start: int, sequences: int, reached: int
) -> None:
    rounds = 4 * sequences * reached
    found = [
        [core().compared_place(start + i, index, sequences, reached) for index in range(sequences)]
        for i in range(rounds)
    ]
    compared = [(index, place) for row in found for index, place in enumerate(row) if place >= 0]
    assert sorted(compared) == [(i, place) for i in range(sequences) for place in range(reached)]
    assert max(sum(place >= 0 for place in row) for row in found) == 1


def taught(best: int, temperature: float) -> Any:
    """Learnt that this choice is best."""
    learnt = core().Sharpness()
    show(learnt, [float(choice == best) for choice in range(CHOICES)], 20, temperature)
    return learnt


def draft(
    native: Any, row: Any, position: int, learnt: Any, *, compares: bool = False
) -> tuple[int, list[int] | None]:
    """Draft one token."""
    place = 0 if compares else -1
    (token,), picks = core().draft_block(native, row[None], position, learnt, place, [])
    return token, picks


def wanted(
    row: Any, native: Any, options: dict[str, Any], seed: int, position: int = 9
) -> list[int]:
    """Return what every choice picks: the filters act as they do for the target, then the sharper temperature."""
    found = []
    for scale in core().Sharpness.choices():
        sharper = Sampling(temperature=0, seed=seed, **options).native()
        sharper.temperature = native.temperature / scale
        found.append(core().choose(sharper, row, position))
    return found


OPTIONS: list[dict[str, Any]] = [
    {},
    {"top_k": 5},
    {"top_p": 0.9},
    {"min_p": 0.1},
    {"logit_bias": {0: -math.inf}},
]
# of which 1 / 1.5 and 1 / 3 are exact as floats
TEMPERATURES = [0.75 / 64, 0.375, 0.75, 1.5, 96.0]
LOGIT = st.one_of(st.floats(-12, 12, width=32), st.sampled_from([-math.inf, math.nan]))


@given(
    st.lists(LOGIT, min_size=2, max_size=60),
    st.sampled_from(TEMPERATURES),
    st.sampled_from(OPTIONS),
    st.integers(0, 1 << 40),
)
def test_a_draft_is_the_argmax_of_the_sharpened_logits_and_the_targets_noise(
    logits: list[float], temperature: float, options: dict[str, Any], seed: int
) -> None:
    native = Sampling(temperature=temperature, seed=seed, **options).native()
    row = np.array(logits, np.float32)
    expected = wanted(row, native, options, seed)
    learnt = core().Sharpness()
    assert draft(native, row, 9, learnt, compares=True) == (expected[FIRST], expected)
    assert expected[0] == core().choose(native, row, 9)
    for choice, token in enumerate(expected):
        learnt = taught(choice, temperature)
        assert draft(native, row, 9, learnt) == (token, None)
        assert draft(native, row, 9, learnt, compares=True) == (token, expected)


def test_a_block_teaches_what_was_written_in_the_compared_place() -> None:
    random = np.random.default_rng(2)
    rows = random.normal(0, 1, (12, 40)).astype(np.float32)
    native = Sampling(temperature=0.75, seed=4).native()
    of_place = [wanted(row, native, {}, 4, 9 + i) for i, row in enumerate(rows)]
    text = [picks[0] for picks in of_place]
    assert any(len(set(picks)) > 2 for picks in of_place)
    for compared, picks in enumerate(of_place):
        for written in (text, text[: compared + 1], text[:compared]):
            learnt = core().Sharpness()
            drafted, found = core().draft_block(native, rows, 9, learnt, compared, written)
            assert drafted == [own[FIRST] for own in of_place]
            assert found == picks
            reached = compared < len(written)
            assert learnt.places(0.75) == reached
            assert learnt.hits(0.75) == [reached and token == text[compared] for token in picks]


@pytest.mark.parametrize("temperature", [0.75, 1.5])
def test_a_comparison_in_a_large_vocabulary(temperature: float) -> None:
    """Rows in which few and many tokens could be drawn."""
    random = np.random.default_rng(3)
    different = set()
    for spread in (0.5, 2.0, 4.0):
        row = random.normal(0, spread, 20_000).astype(np.float32)
        for seed in range(10):
            native = Sampling(temperature=temperature, seed=seed).native()
            expected = wanted(row, native, {}, seed)
            assert draft(native, row, 9, core().Sharpness(), compares=True)[1] == expected
            different.add(len(set(expected)))
    assert max(different) == CHOICES


def test_no_choice_picks_what_the_filters_drop() -> None:
    """Typical sampling may drop the most likely token."""
    row = np.log(np.array([0.3, *[0.07] * 10], np.float32))
    native = Sampling(temperature=0.8, seed=1, typical=0.4).native()
    kept = core().Distribution.filtered(row, native)
    assert kept.of(0) == 0
    picks = draft(native, row, 3, core().Sharpness(), compares=True)[1]
    assert all(kept.of(token) > 0 for token in picks)


@pytest.mark.parametrize("best", range(CHOICES))
def test_greedy_drafts_are_the_best_token_whatever_was_learnt(best: int) -> None:
    row = np.random.default_rng(0).normal(0, 1, 50).astype(np.float32)
    native = Sampling(seed=1).native()
    assert draft(native, row, 3, taught(best, 0.0), compares=True) == (int(row.argmax()), None)


@pytest.mark.parametrize("value", [-math.inf, math.nan])
def test_a_row_without_numbers_drafts_nothing(value: float) -> None:
    row = np.full(20, value, np.float32)
    for options in OPTIONS:
        native = Sampling(temperature=0.7, seed=1, **options).native()
        found = draft(native, row, 3, core().Sharpness(), compares=True)
        assert found == (-1, [-1] * CHOICES)


def test_rejection_draws_one_and_the_same_whatever_was_learnt() -> None:
    """A seed's text then depends on the drafts, and must not on other texts."""
    row = np.random.default_rng(0).normal(0, 1, 50).astype(np.float32)
    for seed in range(20):
        native = Sampling(temperature=0.8, seed=seed, draft_sampling="rejection").native()
        drafts = {
            draft(native, row, 3, taught(best, 0.8), compares=True)[0] for best in range(CHOICES)
        }
        assert len(drafts) == 1


LONG: dict[str, Any] = {"max_tokens": 60, "ignore_end": True}


def test_a_session_learns_from_sampled_texts_alone(dense: Pair) -> None:
    sampled = Sampling(temperature=0.8, seed=1)
    with dflash_gguf.load(dense.target, None, kv_type="f32", threads=1) as engine:
        plain = engine.generate([5, 80, 200], sampling=sampled, **LONG).tokens
    with dflash_gguf.load(dense.target, dense.draft, kv_type="f32", threads=1) as engine:
        session = engine._open().session
        for sampling in (Sampling(), Sampling(temperature=0.8, seed=1, draft_sampling="rejection")):
            engine.generate([5, 80, 200], sampling=sampling, block=4, **LONG)
            assert session.sharpness.places(0.8) == 0
        answer = engine.generate([5, 80, 200], sampling=sampled, block=4, **LONG)
        assert answer.tokens == plain
        # a round in four compares, mostly a place that is reached
        rounds = answer.stats.drafting_rounds
        assert 0.1 * rounds < session.sharpness.places(0.8) <= rounds / 4 + 1
        assert session.sharpness.places(2.0) == 0


def test_a_simulated_outcome_teaches_nothing(dense: Pair) -> None:
    native = core()
    model = native.Model(str(dense.target))
    params = native.ContextParams()
    params.n_ctx = params.n_batch = params.n_ubatch = params.n_outputs = 128
    params.n_threads = params.n_threads_batch = 1
    facts = check_pair(dense.target, dense.draft)
    draft = native.Model(str(dense.draft))
    context = native.Context(model, params)
    inner = native.ModelDrafter(draft, params, context, facts.mask, facts.causal)
    drafter = native.SimulatedDrafter([0.5] * 3, 1, inner)
    session = native.Session(native.Target(context, draft.taps), drafter, 4)
    sampling = Sampling(temperature=0.8, seed=1).native()
    number = session.add([5, 80, 200], max_tokens=60, block=4, stops=set(), sampling=sampling)
    finished = False
    while not finished:
        finished = any(output.finish != native.Finish.none for output in session.step())
    assert session.counters(number).accepted > 0
    assert session.sharpness.places(0.8) == 0
