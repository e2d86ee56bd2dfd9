"""The choice of widths as a pure function of costs, chances and history: no clock, no model."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .support.controllers import COSTS, MS, WIDEST, controller, play, points


def saw_whole_block(made: Any) -> None:
    made.saw_round(
        drafted_width=16,
        width=16,
        draft=int(0.9 * MS),
        verify=int(3.6 * MS),
        total=int(4.5 * MS),
    )


def test_a_good_drafter_is_soon_used_and_a_useless_one_soon_left() -> None:
    good = play(controller(), lambda: 12, rounds=60)
    assert good[0] == 1  # nothing is known of it yet
    assert min(good[20:]) > 1
    assert good[-1] == 16
    useless = play(controller(), lambda: 0, rounds=60)
    assert set(useless) == {1}


def test_what_changes_is_noticed_both_ways() -> None:
    made = controller()
    assert play(made, lambda: 12, rounds=60)[-1] == 16
    assert play(made, lambda: 0, rounds=150)[-1] == 1
    assert play(made, lambda: 12, rounds=3000)[-1] == 16


def test_finding_out_takes_a_small_share_of_the_time() -> None:
    made = controller()
    spent, total = 0.0, 0.0
    for _ in range(4096):
        order = made.order(1, WIDEST, False)
        assert order.width == 1
        total += COSTS[1][1]
        if order.probe:
            spent += 0.5
            made.saw_probe_cost(int(0.5 * MS))
            made.saw_probe([0.6] * 7, 1, 0)
        made.saw_round(verify=int(COSTS[1][1] * MS), total=int(COSTS[1][1] * MS))
    assert 0 < spent < 0.02 * total


def test_features_are_not_asked_for_while_drafting_is_hopeless() -> None:
    made = controller()
    orders = []
    for _ in range(600):
        orders.append(made.order(1, WIDEST, False))
        if orders[-1].probe:
            made.saw_probe([0.6] * 7, 1, 0)
        made.saw_round(verify=int(0.6 * MS), total=int(0.6 * MS))
    without = [i for i, order in enumerate(orders) if not order.features]
    assert len(without) > 300
    # some rows of features are gathered before it is tried again
    for i, order in enumerate(orders):
        assert not order.probe or all(o.features for o in orders[max(0, i - 8) : i + 1])
    asleep = [i for i in without if i + 1 < len(orders)]
    assert asleep
    made.wake()
    assert made.order(1, WIDEST, False).features


def test_a_new_request_is_looked_at_again() -> None:
    made = controller()
    while made.order(1, WIDEST, False).features:
        made.saw_probe([0.6] * 7, 1, 0)
        made.saw_round(verify=int(0.6 * MS), total=int(0.6 * MS))
    made.wake()
    assert made.order(1, WIDEST, False).features


def test_no_probe_while_one_is_awaited() -> None:
    assert controller().order(1, WIDEST, False).probe == 8
    assert controller().order(1, WIDEST, True).probe == 0
    assert controller().order(1, 3, False).probe == 3
    assert controller().order(1, 1, False).probe == 0


@pytest.mark.parametrize("way", ["free", "snapshots", "replay"])
def test_more_rows_than_fit_are_never_ordered(way: str) -> None:
    made = controller(way=way, depth=WIDEST - 1)
    play(made, lambda: 12, rounds=60)
    for most in range(1, WIDEST + 1):
        assert 1 <= made.order(1, most, True).width <= most


def test_blocks_whose_end_is_unlikely_are_trimmed() -> None:
    made = controller()
    random.seed(1)
    for _ in range(400):  # sure tokens are right, unsure ones are not
        sure = random.randrange(16)
        made.saw_block([0.999] * sure + [0.3] * (15 - sure), 15, sure)
        saw_whole_block(made)
    assert made.chance(3, 0.999) > 0.9
    assert made.chance(3, 0.3) < 0.2
    assert made.trim([[0.999] * 15], 16) == 16
    assert made.trim([[0.999] * 7 + [0.3] * 8], 16) == 8
    assert made.trim([[0.3] * 15], 16) == 1


def test_a_block_of_any_width_may_be_verified_whole() -> None:
    flat = {1: (0, 1), 10: (1, 1)}
    made = controller(points=points(flat), widest=10, rebuild=MS)
    for _ in range(200):
        made.saw_block([0.999] * 9, 9, 9)
    rates = [rate for *_, rate in made.estimates(10)][1:]
    assert all(more > 1.05 * less for less, more in itertools.pairwise(rates))


def test_sequences_of_a_round_are_trimmed_together() -> None:
    made = controller()
    for _ in range(200):
        made.saw_block([0.999] * 7 + [0.3] * 8, 15, 7)
        saw_whole_block(made)
    long, short = [0.999] * 15, [0.3] * 15
    alone = made.trim([long], 16)
    assert made.trim([long] * 4, 16) >= made.trim([long, short, short, short], 16)
    assert alone == 16


def test_another_shape_must_be_worth_its_graph() -> None:
    block = [[0.999] * 11 + [0.3] * 4]
    widths = []
    for rebuild in (0.0, 3.0):
        made = controller(rebuild=rebuild * MS)
        for _ in range(200):
            made.saw_block(block[0], 15, 11)
            saw_whole_block(made)
        widths.append(made.trim(block, 16))
    assert widths == [12, 16]


def test_snapshots_follow_the_width_once_their_lack_has_cost_as_much_as_the_change() -> None:
    made = controller(way="snapshots", depth=0, slots=[(1, 1, 0.01 * MS)], shift=20 * MS)
    waited = 0
    while (order := made.order(1, WIDEST, False)).depth < 0:
        assert order.width == 1  # without snapshots nothing can be taken back
        waited += 1
        made.saw_probe([0.99] * 7, 7, 7)
        made.saw_round(verify=int(0.6 * MS), total=int(0.6 * MS))
    assert order.depth == order.width - 1 == WIDEST - 1
    assert 20 / 0.6 < waited < 3 * 20 / 0.6
    made.saw_shift(order.depth, int(20 * MS))
    for _ in range(300):  # and back, when nothing is accepted any more
        order = made.order(1, WIDEST, False)
        if order.depth >= 0:
            break
        for _ in range(order.width > 1):
            made.saw_block([0.6] * (order.width - 1), order.width - 1, 0)
        made.saw_round(
            drafted_width=order.width, width=order.width, verify=int(3 * MS), total=int(4 * MS)
        )
    assert (order.width, order.depth) == (1, 0)


def test_snapshots_that_cannot_be_had_are_not_asked_for_again() -> None:
    made = controller(
        way="snapshots", depth=7, slots=[(1, 1, 0.01 * MS)], outcomes=[(100.0, 95.0)] * 15
    )
    made.saw_round(
        drafted_width=8, width=8, draft=int(0.6 * MS), verify=int(2.2 * MS), total=int(3 * MS)
    )
    for _ in range(200):
        if made.order(1, WIDEST, True).depth >= 0:
            break
        made.saw_round(
            drafted_width=8, width=8, draft=int(0.6 * MS), verify=int(2.2 * MS), total=int(3 * MS)
        )
    assert made.order(1, WIDEST, True).depth == WIDEST - 1
    made.could_not_shift()
    for _ in range(200):
        order = made.order(1, WIDEST, True)
        assert (order.width, order.depth) == (8, -1)
        made.saw_block([0.99] * 7, 7, 7)
        made.saw_round(
            drafted_width=8, width=8, draft=int(0.6 * MS), verify=int(2.2 * MS), total=int(3 * MS)
        )


def test_what_an_earlier_run_saw_is_believed_at_first() -> None:
    seen = [(100.0, 95.0)] * 15
    made = controller(way="snapshots", depth=0, outcomes=seen)
    assert made.first_depth() == WIDEST - 1
    assert controller(outcomes=seen).order(1, WIDEST, False).width == WIDEST
    assert controller(way="snapshots", depth=0).first_depth() == 0
    assert controller(outcomes=[(100.0, 1.0)]).order(1, WIDEST, False).width == 1


def test_a_snapshot_costs_a_wide_verify_its_own_price() -> None:
    slots = [(1, 1, 0.01 * MS), (1, 9, 0.05 * MS), (4, 1, 0.04 * MS)]
    made = controller(way="snapshots", depth=0, slots=slots)
    at = {depth: {row[0]: row[2] for row in made.estimates(WIDEST, 1, depth)} for depth in (0, 10)}
    each = {width: (at[10][width] - at[0][width]) / 10 / MS for width in (1, 5, 9, 16)}
    assert each == pytest.approx({1: 0.01, 5: 0.03, 9: 0.05, 16: 0.05})
    of_four = [made.estimates(WIDEST, 4, depth)[0][2] for depth in (0, 10)]
    assert (of_four[1] - of_four[0]) / 10 / MS == pytest.approx(0.04)


@pytest.mark.parametrize("good", [7, 9, 11, 15])
def test_there_are_no_more_snapshots_than_the_best_width_needs(good: int) -> None:
    seen = [(100.0, 97.0)] * good + [(100.0, 2.0)] * (15 - good)
    slots = [(1, 1, 0.01 * MS)]
    made = controller(way="snapshots", depth=0, slots=slots, outcomes=seen)
    widths = (4, 8, 10, 12, 16)
    rates = [made.estimates(WIDEST, 1, width - 1)[width - 1][3] for width in widths]
    best = widths[rates.index(max(rates))]
    assert made.first_depth() == best - 1
    assert abs(best - good) <= 2


def test_probes_are_of_different_tokens() -> None:
    made = controller()
    probed = []
    for round_ in range(60):
        order = made.order(1, WIDEST, False)
        if order.probe:
            probed.append(round_)
            made.saw_probe_cost(int(0.01 * MS))
            made.saw_probe([0.5] * 7, 1, 0)  # wrong at once: what comes next is no news
        made.saw_round(verify=int(0.6 * MS), total=int(0.6 * MS))
    assert probed[0] == 0
    assert min(b - a for a, b in itertools.pairwise(probed)) == 8


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 15), min_size=5, max_size=80),
    st.sampled_from(["free", "snapshots", "replay"]),
    st.integers(1, 8),
)
def test_orders_make_sense_whatever_happens(right: list[int], way: str, sequences: int) -> None:
    made = controller(way=way, depth=0, shift=1.0 * MS, slots=[(1, 1, 0.01 * MS)])
    depth, last = 0, iter(right * 20)
    for _ in range(len(right)):
        order = made.order(sequences, WIDEST, False)
        if order.depth >= 0:
            depth = order.depth
            made.saw_shift(depth, int(MS))
        assert 1 <= order.width <= WIDEST
        assert way != "snapshots" or order.width <= depth + 1
        assert order.probe == 0 or (order.width == 1 and order.features)
        blocks = [[random.Random(i).random()] * (order.width - 1) for i in range(sequences)]
        width = made.trim(blocks, order.width) if order.width > 1 else 1
        assert 1 <= width <= order.width
        if order.probe:
            made.saw_probe([0.5] * (order.probe - 1), 1, 0)
        for block in blocks if width > 1 else []:
            made.saw_block(block, width - 1, min(next(last), width - 1))
        made.saw_round(
            sequences=sequences,
            drafted_width=order.width,
            width=width,
            verify=int(MS),
            total=int(2 * MS),
        )
