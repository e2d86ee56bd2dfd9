"""What widths are taken to cost: from a calibration, and from what rounds then took."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from .support.controllers import COSTS, MS, WIDEST, controller, play, points


def speeds(made: Any, factors: Any, rounds: int, true: dict[int, float], seed: int = 1) -> None:
    """Let rounds of several widths take what they truly cost, times what the machine makes of it."""
    choose = random.Random(seed)
    for _ in range(rounds):
        width = choose.choice([1, 4, 8, 16])
        verify = int(true[width] * next(factors))
        made.saw_round(drafted_width=width, width=width, verify=verify, total=verify)


def relative(made: Any) -> list[float]:
    costs = [row[2] for row in made.estimates(WIDEST)]
    return [costs[width - 1] / costs[0] for width in (4, 8, 16)]


def test_swings_and_hitches_of_the_machine_are_not_taken_for_a_widths_cost() -> None:
    made = controller(outcomes=[(100.0, 90.0)] * 15)
    before = relative(made)
    true = {width: verify * MS for width, (_, verify) in COSTS.items()}
    choose = random.Random(7)
    swings = itertools.cycle([1.0] * 100 + [1.7] * 80 + [0.8] * 50)
    factors = (swing * (3 if choose.random() < 0.02 else 1) for swing in swings)
    speeds(made, factors, 3000, true)
    assert relative(made) == pytest.approx(before, rel=0.1)
    for _ in range(2000):  # nor for that of the only one there is
        made.saw_round(verify=int(true[1] * next(factors)), total=int(true[1]))
    assert relative(made) == pytest.approx(before, rel=0.1)


def test_what_a_width_really_costs_is_learnt() -> None:
    made = controller(outcomes=[(100.0, 90.0)] * 15)
    before = relative(made)
    true = {width: verify * MS for width, (_, verify) in COSTS.items()} | {8: 3.3 * MS}
    speeds(made, itertools.cycle([1.0] * 60 + [1.5] * 60), 1500, true)
    assert relative(made) == pytest.approx([before[0], 1.5 * before[1], before[2]], rel=0.06)


def test_where_many_sequences_fill_the_machine_less_is_drafted() -> None:
    # 32 rows cost 32 times one: nothing is gained by rows that may be rejected
    linear = {w: (w * 3.0, w * 19.0) for w in (1, 4, 16)}
    made = controller(points=points() + points(linear, sequences=32))
    play(made, lambda: 6, rounds=100)
    assert made.order(1, WIDEST, True).width > 1
    play(made, lambda: 6, rounds=40, sequences=32)
    assert made.order(32, WIDEST, True).width == 1


def test_costs_follow_what_is_seen() -> None:
    made = controller()
    for _ in range(200):
        made.saw_round(
            drafted_width=8, width=8, draft=int(1.1 * MS), verify=int(4.4 * MS), total=int(5.5 * MS)
        )
    found = {width: (draft / MS, verify / MS) for width, draft, verify, _ in made.estimates(WIDEST)}
    assert found[8] == pytest.approx((1.1, 4.4), rel=0.05)
    assert found[16] == pytest.approx((1.8, 7.2), rel=0.3)  # the whole machine has become slower
    assert found[6][1] == pytest.approx((found[4][1] + found[8][1]) / 2, rel=0.3)


@pytest.mark.parametrize(
    "broken",
    [
        {"points": []},
        {"points": points({4: (1, 2)})},
        {"points": [(1, 1, 0.0, float("nan"), 0.0, 1)]},
        {"points": [(1, 1, 0.0, 0.0, 0.0, 1)]},
        {"points": [(1, 1, -1.0, 1.0, 0.0, 1)]},
        {"shift": -1.0},
        {"rebuild": float("inf")},
        {"slots": [(0, 1, 1.0)]},
        {"slots": [(1, 0, 1.0)]},
        {"slots": [(1, 1, -1.0)]},
    ],
)
def test_a_calibration_that_is_none_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a calibration needs"):
        controller(**broken)


@pytest.mark.parametrize("outcome", [(1, 5), (5, -1), (float("nan"), 1), (float("inf"), 1)])
def test_outcomes_that_are_none_are_refused(outcome: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"outcomes of drafts are .* accepted of"):
        controller(outcomes=[(30, 20), outcome])
