"""Costs that were measured while other programs took the cores: soon as good as others, and told apart from them."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dflash_gguf
from dflash_gguf import loading
from dflash_gguf._native import core
from dflash_gguf.calibration import Effort, Learnt

from .support.tiny import Tiny

MS = 1e6
WIDEST = 16
# what a calm machine takes for the tiny pair, in ms: width -> (draft, verify)
CALM = {1: (0.0, 0.7), 4: (0.4, 1.6), 8: (0.5, 2.1), 12: (0.6, 3.0), 16: (0.75, 3.5)}
DEAR = {width: (0.4 if width > 1 else 0.0, 0.7 * width) for width in CALM}  # each row its own price
# as measured beside eight busy programs
MEASURED = {1: (0.0, 1.05), 4: (0.64, 60.5), 8: (0.84, 30.5), 16: (1.9, 11.7)}

Costs = dict[int, tuple[float, float]]


def points(costs: Costs, sequences: int = 1) -> list[Any]:
    return [
        (sequences, width, draft * MS, verify * MS, 0.1 * MS, max(1, width // 2))
        for width, (draft, verify) in costs.items()
    ]


def controller(costs: Costs, **options: Any) -> Any:
    return core().Controller(points(costs), widest=WIDEST, **options)


def live(
    made: Any, true: Costs, chance: float, tokens: int, hitches: float = 0
) -> tuple[list[int], float]:
    """Decode so many tokens at what rounds truly cost; return the widths drafted and the time by that of plain rounds.

    chance: of every drafted token to be right. hitches: share of the stages that take three times as long.
    """
    known = controller(true)
    costs = {width: (draft, verify) for width, draft, verify, _ in known.estimates(WIDEST)}
    choose = random.Random(1)

    def taken(ns: float) -> int:
        return int(ns * (3 if choose.random() < hitches else 1))

    widths, written, spent = [], 0, 0
    while written < tokens:
        order = made.order(1, WIDEST, False)
        right = next((i for i in range(WIDEST) if choose.random() >= chance), WIDEST)
        if order.probe:
            probed = taken(costs[order.probe][0])
            spent += probed
            made.saw_probe_cost(probed)
            hits = min(right, order.probe - 1)
            made.saw_probe([0.9] * (order.probe - 1), min(order.probe - 1, hits + 1), hits)
        confidence = [0.9] * (order.width - 1)
        width = made.trim([confidence], order.width) if order.width > 1 else 1
        draft = taken(costs[order.width][0]) if order.width > 1 else 0
        verify = taken(costs[width][1])
        right = min(right, width - 1)
        if width > 1:
            made.saw_block(confidence, width - 1, right)
        made.saw_round(
            drafted_width=order.width, width=width, draft=draft, verify=verify, total=draft + verify
        )
        spent += draft + verify
        written += 1 + right
        widths.append(order.width)
    return widths, spent / (written * costs[1][1])


def drafting(widths: list[int]) -> float:
    return sum(width > 1 for width in widths) / len(widths)


def test_costs_off_by_many_times_would_keep_a_good_drafter_from_being_used() -> None:
    widths, _ = live(controller(MEASURED), CALM, 0.93, 4000)
    assert set(widths) == {1}


@pytest.mark.parametrize("hitches", [0.0, 0.1])
@pytest.mark.parametrize("off", [1, 3, 10, 50])
def test_rough_costs_are_set_right_within_a_few_hundred_tokens(off: int, hitches: float) -> None:
    rough = {
        width: (draft, verify * (off if width > 1 else 1))
        for width, (draft, verify) in CALM.items()
    }
    for measured in (rough, MEASURED):
        made = controller(measured, rough=True)
        live(made, CALM, 0.93, 256, hitches)
        widths, spent = live(made, CALM, 0.93, 2000, hitches)
        assert drafting(widths) > 0.9
        _, best = live(controller(CALM, outcomes=[(50.0, 46.0)] * 15), CALM, 0.93, 2000, hitches)
        assert spent < 1.15 * best


@pytest.mark.parametrize("chance", [0.8, 0.95])
def test_rows_that_are_dear_are_soon_left_alone(chance: float) -> None:
    made = controller(DEAR, rough=True)
    _, spent = live(made, DEAR, chance, 256)
    assert spent < 1.25
    widths, spent = live(made, DEAR, chance, 2000)
    assert drafting(widths) < 0.05
    assert spent < 1.05


@pytest.mark.parametrize("measured", [CALM, MEASURED])
def test_a_useless_drafter_is_not_tried_out(measured: Costs) -> None:
    widths, spent = live(controller(measured, rough=True), CALM, 0.05, 256)
    assert set(widths) == {1}
    assert spent < 1.1


def test_a_width_is_tried_several_times_between_rounds_of_one_row() -> None:
    made = controller(MEASURED, rough=True, outcomes=[(50.0, 46.0)] * 15)
    orders = []
    for _ in range(7):
        width = made.order(1, WIDEST, False).width
        slow = 3 if len(orders) == 1 else 1  # another program's time
        verify = int(slow * (1 if width == 1 else 4) * MS)
        if width > 1:
            made.saw_block([0.9] * (width - 1), width - 1, 9)
        made.saw_round(drafted_width=width, width=width, verify=verify, total=verify)
        orders.append(width)
    wide = orders[0]
    assert wide > 1
    assert orders == [wide, wide, 1, wide, wide, 1, orders[-1]]
    assert orders[-1] > 1
    assert made.order(1, 2, False).width <= 2


COST = st.floats(0.01, 100)


@given(
    st.dictionaries(st.integers(2, WIDEST), st.tuples(COST, COST), min_size=1),
    COST,
    st.sampled_from([1, 4]),
)
def test_what_is_believed_of_rough_costs(wide: Costs, one: float, sequences: int) -> None:
    """Never more than was measured, than a wider round, or than such a round costs about."""
    costs = {1: (0.0, one), **wide}
    measured = points(costs) + (points(costs, sequences) if sequences > 1 else [])
    made = core().Controller(measured, widest=WIDEST, rough=True, rebuild=1000 * MS)
    found = {width: (d / MS, v / MS) for width, d, v, _ in made.estimates(WIDEST, sequences)}
    row = made.estimates(1)[0][2] / MS
    widths = sorted(costs)
    for width in widths:
        draft, verify = found[width]
        assert verify <= costs[width][1] * 1.0001
        assert width == 1 or draft <= costs[width][0] * 1.0001
        assert verify <= row * sequences * width**0.6 * 1.0001
        assert all(verify <= found[wider][1] * 1.0001 for wider in widths if wider > width)
    # one row as the cheapest of them, and the widest as far as it makes sense
    assert row == pytest.approx(min(verify for _, verify in costs.values()))
    widest = widths[-1]
    assert found[widest][1] == pytest.approx(
        min(costs[widest][1], row * sequences * widest**0.6), rel=1e-6
    )


def test_sound_costs_are_believed_as_they_are() -> None:
    made, rough = controller(CALM), controller(CALM, rough=True)
    for width, (draft, verify) in CALM.items():
        _, own_draft, own_verify, _ = made.estimates(WIDEST)[width - 1]
        assert (own_draft, own_verify) == pytest.approx((draft * MS, verify * MS))
        assert rough.estimates(WIDEST)[width - 1][1:3] == pytest.approx((own_draft, own_verify))


def test_an_engine_that_was_loaded_beside_others_drafts(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same costs keep one that was loaded alone from it: they are taken for what the machine is like."""
    learnt = Learnt(points(MEASURED), 0, [], 0.0, 0.0, [])
    monkeypatch.setattr(loading, "learn", lambda *_, **__: learnt)
    rounds = {True: 0}
    for disturbed in (
        False,
        True,
        True,
        True,
        True,
    ):  # real times: what is tried beside other tests may be in vain
        if rounds[True] >= 2:
            break
        monkeypatch.setattr(Effort, "disturbed_until", lambda *_, answer=disturbed: answer)
        draft = tiny.draft("bf16")
        with dflash_gguf.load(tiny.target, draft, threads=1, context=1024) as engine:
            answer = engine.generate(tiny.prompts[0]["messages"], max_tokens=256)
        assert answer.stats is not None
        rounds[disturbed] = answer.stats.drafting_rounds
    assert rounds[False] == 0
    assert rounds[True] >= 2


@pytest.mark.parametrize(
    ("waited", "disturbed"),
    [
        ({"1": 5.3, "9": 0.1}, True),
        ({"1": 5.1, "9": 0.1}, False),
        ({"9": 0.3}, True),  # a thread that is new; another has ended
        ({"9": 0.1}, False),
    ],
)
def test_waiting_for_a_core_tells_of_other_programs(
    waited: dict[str, float], disturbed: bool
) -> None:
    """Also where so little was got that hardly anything could be taken away, as preemptions would have it."""
    before = Effort(10.0, 5.0, 70, {"1": 5.0, "2": 4.0})
    after = Effort(11.0, 5.1, 72, waited)
    assert before.disturbed_until(after, threads=2) is disturbed
    blind = Effort(10.0, 5.0, 70)
    assert blind.disturbed_until(after, threads=2) is False
    assert blind.disturbed_until(Effort(11.0, 5.1, 570), threads=2) is True


@pytest.fixture
def one_core() -> Iterator[int]:
    """Confine this process to one core."""
    if sys.platform != "linux" or not Path("/proc/self/schedstat").exists():
        pytest.skip("the system does not tell how long threads wait for a core")
    cores = os.sched_getaffinity(0)
    core_ = min(cores)
    os.sched_setaffinity(0, {core_})
    yield core_
    os.sched_setaffinity(0, cores)


def test_another_program_on_the_core_is_noticed(one_core: int) -> None:
    loop = f"import os; os.sched_setaffinity(0, {{{one_core}}})\nwhile True: pass"
    other = subprocess.Popen([sys.executable, "-c", loop])
    try:
        before, until = Effort.now(), time.monotonic() + 30
        while not before.disturbed_until(Effort.now(), threads=1):
            assert time.monotonic() < until
            sum(range(100_000))
    finally:
        other.kill()
        other.wait()

    def asleep() -> bool:  # as a thread that waits for a device
        before = Effort.now()
        time.sleep(0.2)
        return before.disturbed_until(Effort.now(), threads=1)

    assert not all(asleep() for _ in range(10))
