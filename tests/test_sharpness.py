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

from .support.random_pairs import Pair

CHOICES = len(core().Sharpness.choices())
FIRST, BEST = 2, CHOICES - 1
WRITTEN = [7] * 10


def blocks(learnt: Any, right: list[int], count: int, temperature: float = 1.0) -> None:
    """Show blocks of ten places in which the choices have so many right."""
    picks = [[7 if i < hits else 8 for hits in right] for i in range(len(WRITTEN))]
    for _ in range(count):
        learnt.saw(temperature, picks, WRITTEN)


def test_choices_go_from_the_drafts_own_distribution_to_its_best_token() -> None:
    choices = core().Sharpness.choices()
    assert choices == sorted(choices)
    assert (choices[0], choices[-1]) == (1, math.inf)


@pytest.mark.parametrize("best", range(CHOICES))
def test_what_would_have_been_right_most_often_is_chosen(best: int) -> None:
    learnt = core().Sharpness()
    assert learnt.best(1.0) == FIRST
    blocks(learnt, [9 if choice == best else 8 for choice in range(CHOICES)], 4)
    assert learnt.best(1.0) == best


def test_one_lucky_token_changes_nothing() -> None:
    learnt = core().Sharpness()
    blocks(learnt, [8, 8, 8, 9], 1)
    assert learnt.best(1.0) == FIRST


def test_a_change_of_subject_is_noticed() -> None:
    learnt = core().Sharpness()
    blocks(learnt, [4, 4, 4, 6], 2_000)
    assert learnt.best(1.0) == BEST
    blocks(learnt, [6, 4, 4, 4], 600)
    assert learnt.best(1.0) == 0


def test_temperatures_far_apart_are_learnt_apart() -> None:
    learnt = core().Sharpness()
    blocks(learnt, [9, 5, 5, 5], 5, temperature=0.3)
    assert [learnt.best(t) for t in (0.35, 1.0, 5.0)] == [0, FIRST, FIRST]
    assert [learnt.compared(t) > 0 for t in (0.35, 1.0)] == [True, False]


def test_once_enough_is_known_few_blocks_are_compared() -> None:
    learnt = core().Sharpness()
    compared = 0
    for _ in range(1_000):
        if learnt.compares(0.8):
            compared += 1
            blocks(learnt, [5, 5, 5, 5], 1, temperature=0.8)
        else:
            learnt.saw(0.8, [], WRITTEN)
    assert 150 < compared < 200


def test_places_behind_the_written_tokens_do_not_count() -> None:
    learnt = core().Sharpness()
    learnt.saw(1.0, [[7, 7, 8, 8], [7, 8, 8, 8], [7, 7, 7, 7]], [7, 7])
    assert learnt.compared(1.0) == 2
    assert learnt.hits(1.0) == [2, 1, 0, 0]


def taught(best: int, temperature: float) -> Any:
    """Learnt that this choice is best, and compared often enough to do so seldom now."""
    learnt = core().Sharpness()
    blocks(learnt, [9 if choice == best else 0 for choice in range(CHOICES)], 200, temperature)
    while learnt.compares(temperature):
        learnt.saw(temperature, [], WRITTEN)
    return learnt


@given(
    st.lists(st.floats(-12, 12, width=32), min_size=2, max_size=60, unique=True),
    st.sampled_from([0.3, 0.8, 1.5]),
    st.sampled_from([{}, {"top_k": 5}, {"top_p": 0.9}, {"logit_bias": {0: -math.inf}}]),
    st.integers(0, 1 << 40),
)
def test_a_draft_is_the_argmax_of_the_sharpened_logits_and_the_targets_noise(
    logits: list[float], temperature: float, options: dict[str, Any], seed: int
) -> None:
    native = Sampling(temperature=temperature, seed=seed, **options).native()
    row = np.array(logits, np.float32)
    temperature = native.temperature
    wanted = []
    for scale in core().Sharpness.choices():
        sharper = Sampling(temperature=0, seed=seed, **options).native()
        sharper.temperature = temperature / scale  # choose() filters before the temperature acts
        if options.get("top_p") and scale == math.inf:
            sharper.top_p = 1
        wanted.append(core().choose(sharper, row, 9))
    token, picks = core().draft(native, row, 9, core().Sharpness())
    assert picks == [wanted]
    assert token == wanted[FIRST]
    assert wanted[0] == core().choose(native, row, 9)
    for choice, expected in enumerate(wanted):
        token, picks = core().draft(native, row, 9, taught(choice, temperature))
        assert (token, picks) == (expected, [])


@pytest.mark.parametrize("best", range(CHOICES))
def test_greedy_drafts_are_the_best_token_whatever_was_learnt(best: int) -> None:
    row = np.random.default_rng(0).normal(0, 1, 50).astype(np.float32)
    native = Sampling(seed=1).native()
    assert core().draft(native, row, 3, taught(best, 0.0)) == (int(row.argmax()), [])


def test_a_session_learns_from_sampled_texts_alone(dense: Pair) -> None:
    options: dict[str, Any] = {"max_tokens": 60, "ignore_end": True, "block": 4}
    with dflash_gguf.load(dense.target, dense.draft, kv_type="f32", threads=1) as engine:
        session = engine._open().session
        engine.generate([5, 80, 200], **options)
        engine.generate(
            [5, 80, 200],
            sampling=Sampling(temperature=0.8, seed=1, draft_sampling="rejection"),
            **options,
        )
        assert session.sharpness.compared(0.8) == 0
        answer = engine.generate(
            [5, 80, 200], sampling=Sampling(temperature=0.8, seed=1), **options
        )
        # but for the prefill's token, each stood in a drafted place or behind a block that was all right
        places = len(answer.tokens) - 1
        assert 0.7 * places < session.sharpness.compared(0.8) <= places
        assert session.sharpness.compared(2.0) == 0
