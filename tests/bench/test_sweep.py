"""Costs by width are measured on idle engines; what is best at which acceptance is reckoned from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dflash_gguf
from dflash_gguf import Engine, UsageError
from dflash_gguf.bench.sweep import (
    Sweep,
    WidthCost,
    best_rows,
    best_width,
    best_widths,
    break_even,
    cost_rows,
    geometric,
    measure_costs,
    surviving,
)
from dflash_gguf.errors import ResourceError
from dflash_gguf.survival_curves import OF_DRAFTERS

from ..support.random_pairs import Pair, make_pair

# a verify of 10 ms and 1 ms for each row more; a draft of 2 ms; 0.5 ms for each injected row
MADE = Sweep(
    (
        WidthCost(1, 0.010),
        WidthCost(4, 0.013, 0.002, 0.001, 2),
        WidthCost(8, 0.017, 0.002, 0.002, 4),
    ),
    sequences=1,
    context=0,
)


@pytest.fixture
def engine(pair: Pair) -> Iterator[Engine]:
    with dflash_gguf.load(
        pair.target, pair.draft, block=8, sequences=2, threads=1, context=256
    ) as made:
        yield made


def test_every_width_is_measured_and_the_engine_is_as_before(pair: Pair, engine: Engine) -> None:
    target = engine._open().target
    before = (engine.generate("Hm?", max_tokens=20).tokens, target.depth)
    told = []
    sweep = measure_costs(engine, passes=2, progress=lambda *counts: told.append(counts))
    assert [cost.width for cost in sweep.costs] == list(range(1, 9))
    assert (sweep.costs[0].draft, sweep.costs[0].inject) == (0, 0)
    for cost in sweep.costs[1:]:
        assert min(cost.verify, cost.draft, cost.inject) > 0
        assert cost.injected == cost.width // 2
    assert told == [(number, 16) for number in range(1, 17)]
    assert (engine.generate("Hm?", max_tokens=20).tokens, target.depth) == before


def test_times_are_medians_in_seconds_without_the_first(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, int]] = []

    class Core:
        def bare_rounds(
            self, target: object, drafter: object, **plan: int
        ) -> list[tuple[int, ...]]:
            asked.append(plan)
            assert (drafter is None) == (plan["width"] == 1)
            slow = 10**9 if len(asked) <= 3 else 1  # the first pass
            ms = plan["width"] * 10**6 * slow
            return [(9 * ms, 9 * ms, 9 * ms, 0), (ms, 2 * ms, 3 * ms, 7), (ms, 2 * ms, 3 * ms, 7)]

    monkeypatch.setattr("dflash_gguf.bench.sweep.core", Core)
    sweep = measure_costs(engine, widths=[4, 6], sequences=2, context=40, passes=3)
    assert (sweep.sequences, sweep.context) == (2, 40)
    assert [(cost.width, cost.injected) for cost in sweep.costs] == [(1, 1), (4, 4), (6, 6)]
    found = [[cost.verify, cost.draft, cost.inject] for cost in sweep.costs]
    for times, expected in zip(
        found, [[0.002, 0, 0], [0.008, 0.004, 0.012], [0.012, 0.006, 0.018]], strict=True
    ):
        assert times == pytest.approx(expected)
    assert [plan["width"] for plan in asked] == [1, 4, 6, 4, 6, 1, 6, 1, 4]
    assert {(plan["sequences"], plan["context"], plan["kept"]) for plan in asked} == {
        (2, 40, 1),
        (2, 40, 2),
        (2, 40, 3),
    }


def test_a_recurrent_target_gets_the_snapshots_of_the_width(
    hybrid: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    class Core:
        def bare_rounds(self, target: Any, drafter: object, **plan: int) -> list[tuple[int, ...]]:
            seen.append((plan["width"], target.depth))
            return [(1, 1, 1, 1)]

    monkeypatch.setattr("dflash_gguf.bench.sweep.core", Core)
    with dflash_gguf.load(hybrid.target, hybrid.draft, block=8, threads=1, context=64) as engine:
        measure_costs(engine, widths=[3, 6], passes=1)
        assert engine._open().target.depth == 7
    assert seen == [(1, 0), (3, 2), (6, 5)]


def test_engines_that_cannot_be_measured_are_refused(dense: Pair, engine: Engine) -> None:
    with pytest.raises(UsageError, match="1 to 8 rows, 1 to 2 sequences"):
        measure_costs(engine, widths=[9])
    for wrong in (
        {"sequences": 3},
        {"context": 250},
        {"context": -1},
        {"passes": 0},
        {"widths": [0]},
    ):
        with pytest.raises(UsageError, match="expected 1 to 8 rows"):
            measure_costs(engine, **wrong)  # type: ignore[arg-type]
    engine.start("Hm?", max_tokens=9)
    with pytest.raises(UsageError, match="idle engine"):
        measure_costs(engine)
    for draft in (None, dense.draft):
        with (
            dflash_gguf.load(dense.target, draft, threads=1, context=256) as other,
            pytest.raises(UsageError, match="with a drafter and a fixed block"),
        ):
            measure_costs(other)


def test_a_target_that_keeps_no_snapshots_says_so(tmp_path: Path) -> None:
    made = make_pair(tmp_path, hybrid=True, experts=2)
    with (
        dflash_gguf.load(made.target, made.draft, block=4, threads=1, context=256) as engine,
        pytest.raises(ResourceError, match="the cost of 4 rows cannot be measured"),
    ):
        measure_costs(engine, widths=[4], passes=1)


def test_expected_tokens_of_a_round() -> None:
    assert geometric(0.5, 1) == 1
    assert geometric(0.5, 4) == 1.875
    assert geometric(1.0, 16) == 16
    assert surviving((0.5, 0.25), 1) == 1
    assert surviving((0.5, 0.25), 2) == 1.5
    assert surviving((0.5, 0.25), 16) == 1.75


def test_break_even_is_where_both_are_as_fast() -> None:
    # 15 ms and 0.5 ms a token, against 10 ms a token
    four, eight = MADE.costs[1:]
    assert break_even(MADE, four) == pytest.approx(15 / 9.5)
    assert break_even(MADE, eight) == pytest.approx(2.0)
    length = break_even(MADE, four)
    assert length / four.round(length) == pytest.approx(1 / 0.010)
    dear = Sweep((WidthCost(1, 0.001), WidthCost(4, 0.01, 0.01, 0.002, 1)), 1, 0)
    assert break_even(dear, dear.costs[1]) == float("inf")


def test_break_even_of_several_sequences_is_for_each() -> None:
    many = Sweep((WidthCost(1, 0.010), WidthCost(4, 0.020, 0.004, 0.008, 16)), 8, 0)
    length = break_even(many, many.costs[1])
    assert 8 * length / many.costs[1].round(8 * length) == pytest.approx(8 / 0.010)


def test_the_best_width_by_acceptance() -> None:
    none = best_width(MADE, "nothing", lambda width: geometric(0.0, width))
    assert (none.width, none.accept_length, none.speedup) == (1, 1, 1)
    four = best_width(MADE, "half", lambda width: geometric(0.5, width))
    assert (four.width, four.accept_length) == (4, 1.875)
    assert four.speedup == pytest.approx(1.875 * 10 / (15 + 1.875 / 2))
    all_of_them = best_width(MADE, "all", lambda width: geometric(1.0, width))
    assert (all_of_them.width, all_of_them.accept_length) == (8, 8)


@given(
    st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=8),
    st.floats(1e-4, 1.0),
    st.lists(st.floats(0, 1), min_size=8, max_size=8),
)
def test_no_other_width_is_faster(costs: list[float], alone: float, chances: list[float]) -> None:
    rounds = [WidthCost(k, cost, cost / 4, cost / 8, k) for k, cost in enumerate(costs, start=2)]
    sweep = Sweep((WidthCost(1, alone), *rounds), 1, 0)
    curve = sorted(chances, reverse=True)
    best = best_width(sweep, "", lambda width: surviving(curve, width))
    rates = {
        cost.width: surviving(curve, cost.width) / cost.round(surviving(curve, cost.width))
        for cost in rounds
    } | {1: 1 / alone}
    assert rates[best.width] == pytest.approx(max(rates.values()))
    assert best.speedup == pytest.approx(rates[best.width] * alone)
    assert best.speedup >= 1


def test_tables_have_every_width_and_acceptance() -> None:
    head, *rows = cost_rows(MADE)
    assert head == ("width", "verify ms", "draft ms", "inject ms", "break-even")
    assert rows[0] == ("1", "10.00", "0.00", "0.00", "1.00")
    assert rows[1] == ("4", "13.00", "2.00", "1.00", "1.58")
    found = best_widths(MADE)
    assert [best.of for best in found] == [
        *("0.50", "0.55", "0.60", "0.65", "0.70", "0.75", "0.80", "0.85", "0.90", "0.95"),
        *OF_DRAFTERS,
    ]
    lengths = [best.width for best in found[:10]]
    assert lengths == sorted(lengths)  # the more is accepted, the wider
    head, *rows = best_rows(found)
    assert head == ("acceptance", "best width", "accept length", "speed-up")
    assert rows[0] == ("0.50", "4", "1.88", "1.18x")
    with pytest.raises(UsageError, match="lack width 1"):
        best_widths(Sweep(MADE.costs[1:], 1, 0))
