"""The decisions of a round, and the numbers made of its counters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf import Stats
from dflash_gguf._native import core

TOKENS = st.integers(0, 3)


@given(st.integers(1, 64), st.integers(-3, 100))
def test_a_block_is_as_wide_as_asked_but_no_wider_than_what_is_wanted(
    block: int, wanted: int
) -> None:
    width = core().plan_width(block, wanted)
    assert 1 <= width <= block
    assert width == min(block, max(wanted, 1))


@given(
    st.lists(
        st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 1.0, np.inf, np.nan]), min_size=1, max_size=100
    )
)
def test_argmax_is_the_first_of_the_largest_and_a_number(values: list[float]) -> None:
    array = np.array(values, np.float32)
    numbers = array[array > -np.inf]
    expected = int(np.flatnonzero(array == numbers.max())[0]) if numbers.size else -1
    assert core().argmax(array) == expected


def test_argmax_of_nothing_and_of_a_large_vocabulary() -> None:
    assert core().argmax(np.zeros(0, np.float32)) == -1
    values = np.random.default_rng(0).standard_normal(248_321).astype(np.float32)
    assert core().argmax(values) == int(values.argmax())


@given(st.lists(TOKENS, max_size=8), st.data())
def test_greedy_acceptance_is_the_longest_common_prefix_and_one_more(
    drafted: list[int], data: st.DataObject
) -> None:
    n = len(drafted) + 1
    own = data.draw(st.lists(TOKENS, min_size=n, max_size=n))
    asked = []

    def choose(row: int) -> int:
        asked.append(row)
        return own[row]

    count, bonus = core().accept_greedy(drafted, choose)
    assert drafted[:count] == own[:count]
    assert bonus == own[count]
    assert count == len(drafted) or drafted[count] != own[count]
    assert asked == list(range(count + 1)), "rows behind the first difference mean nothing"


@given(
    st.lists(st.floats(0, 1), max_size=8).map(lambda curve: sorted(curve, reverse=True)),
    st.floats(0, 1, exclude_max=True),
    st.integers(0, 8),
)
def test_survivors_counts_the_positions_above_the_draw(
    curve: list[float], u: float, drafted: int
) -> None:
    assert core().survivors(curve, u, drafted) == sum(p > u for p in curve[:drafted])


@given(st.lists(TOKENS, min_size=1, max_size=9), st.integers(1, 12), st.sets(TOKENS))
def test_output_is_cut_at_the_first_stop_token_or_at_the_limit(
    tokens: list[int], remaining: int, stops: set[int]
) -> None:
    keep, finish = core().cut_output(tokens, remaining, stops)
    stop = next((i + 1 for i, token in enumerate(tokens) if token in stops), len(tokens) + 1)
    assert keep == min(stop, remaining, len(tokens))
    if stop <= remaining and stop <= len(tokens):
        assert finish == core().Finish.stop, "a stop token on the last place is a stop"
    elif remaining <= len(tokens):
        assert finish == core().Finish.length
    else:
        assert finish == core().Finish.none


@given(st.lists(TOKENS, max_size=8), st.sets(TOKENS, max_size=2))
def test_nothing_behind_a_drafted_end_is_verified(drafted: list[int], stops: set[int]) -> None:
    count = core().worth_verifying(drafted, stops)
    assert 0 <= count <= len(drafted)
    assert not stops.intersection(drafted[: max(count - 1, 0)])
    assert count == len(drafted) or drafted[count - 1] in stops


STATS = Stats(
    prompt_tokens=1840,
    reused_tokens=0,
    injected=2050,
    emitted=212,
    rounds=43,
    drafting_rounds=43,
    drafted=645,
    accepted=168,
    drafted_at=(43,) * 15,
    accepted_at=(40, 30, 20) + (0,) * 12,
    block=16,
    prefill_seconds=0.5,
    decode_seconds=2.0,
)


def test_the_line_says_what_the_counters_give() -> None:
    assert STATS.accept_length == pytest.approx(1 + 168 / 43)
    assert STATS.acceptance_rate == pytest.approx(168 / 645)
    assert STATS.tokens_per_step == pytest.approx(211 / 43)
    assert STATS.card_accept_length == pytest.approx(212 / 43)
    assert STATS.line() == "212 tok · 105.5 tok/s · prompt 3,680 tok/s · accept 4.9/16 (0.26)"


def test_the_line_says_where_drafting_did_not_pay() -> None:  # P4
    auto = replace(STATS, block="auto")
    assert "pa" not in auto.line().split("accept", 1)[1]
    seldom = replace(auto, drafting_rounds=3, drafted=45, accepted=6)
    assert seldom.line().endswith(" · accept 3.0/auto (0.13) · drafting paid in 3 of 43 rounds")
    never = replace(auto, drafting_rounds=0, drafted=0, accepted=0)
    assert never.line().endswith(" · no drafts · drafting did not pay")
    assert replace(never, rounds=9).line().endswith(" · no drafts")  # too short to tell
    assert replace(never, block=1).line().endswith(" · no drafts")  # it was not to be


def test_the_line_leaves_out_what_was_not_measured() -> None:
    plain = replace(STATS, drafting_rounds=0, drafted=0, accepted=0)
    assert plain.accept_length is None
    assert plain.acceptance_rate is None
    assert plain.tokens_per_step == pytest.approx(211 / 43)
    assert replace(plain, rounds=0).tokens_per_step is None
    assert replace(plain, rounds=0).card_accept_length is None
    assert plain.line().endswith(" · no drafts")
    assert replace(plain, emitted=1, decode_seconds=0.0, prefill_seconds=0.0).line() == (
        "1 tok · no drafts"
    )
    assert replace(plain, emitted=0).tokens_per_second is None
