"""Figures against hand-made cells."""

from __future__ import annotations

import pytest

from dflash_gguf.bench.figures import percentile, reckon
from dflash_gguf.bench.records import Counts
from dflash_gguf.errors import UsageError

from ..support.measured import BASE, WIDE4, WIDE8, bench, cards, cell, turn


def test_throughput_is_the_median_over_runs_without_the_warm_up() -> None:
    cells = [cell(BASE, run, speed) for run, speed in enumerate((9000.0, 10.0, 40.0, 20.0))]
    figure = reckon(bench(*cells)).at("base", "w", 1)
    assert figure is not None
    assert figure.runs == 3
    assert (figure.throughput.median, figure.throughput.least, figure.throughput.most) == (
        pytest.approx((20.0, 10.0, 40.0))
    )


def test_speedup_is_the_median_of_ratios_of_one_run_each() -> None:
    # medians: 40 / 20 = 2; of the ratios 1.5, 2.5, 4 it is 2.5
    base = [cell(BASE, run + 1, speed) for run, speed in enumerate((20.0, 40.0, 10.0))]
    fast = [cell(WIDE4, run + 1, speed) for run, speed in enumerate((30.0, 100.0, 40.0))]
    figures = reckon(bench(*fast, *base))
    gain = figures.by_key["wide-4", "w", 1].speedup
    assert gain is not None
    assert (gain.median, gain.least, gain.most) == pytest.approx((2.5, 1.5, 4.0))
    own = figures.by_key["base", "w", 1].speedup
    assert own is not None
    assert own.median == 1.0


def test_no_speedup_without_a_baseline_of_the_same_run_and_workload() -> None:
    cells = [cell(WIDE4, 1, 30.0), cell(BASE, 2, 10.0), cell(BASE, 1, 10.0, concurrency=8)]
    figures = reckon(bench(*cells))
    assert figures.by_key["wide-4", "w", 1].speedup is None
    alone = reckon(bench(cell(WIDE4, 1, 30.0)))
    assert alone.baseline is None
    assert alone.by_key["wide-4", "w", 1].speedup is None


def test_accept_length_is_the_mean_over_turns_not_of_their_sums() -> None:
    # 10/5 and 90/10: the mean is 5.5, that of sums 100/15; one token without a verify has none
    turns = (turn(0, 10, 5), turn(1, 90, 10), turn(2, 1, 0))
    figure = reckon(bench(cell(WIDE4, 1, 30.0, *turns))).by_key["wide-4", "w", 1]
    assert figure.accept_length == pytest.approx(5.5)
    untold = reckon(bench(cell(WIDE4, 1, 30.0, turn(0, 10, None)))).by_key["wide-4", "w", 1]
    assert untold.accept_length is None


def test_decode_speed_is_by_the_arms_clock_if_all_turns_tell_it() -> None:
    told = (turn(0, 11, decode_seconds=1.0), turn(1, 31, decode_seconds=1.0))
    figure = reckon(bench(cell(WIDE4, 1, 30.0, *told))).by_key["wide-4", "w", 1]
    assert figure.decode_by == "arm"
    assert figure.decode_speed is not None
    assert figure.decode_speed.median == pytest.approx(20.0)
    half = (told[0], turn(1, 31))  # from 0.5 s to 1 s
    figure = reckon(bench(cell(WIDE4, 1, 30.0, *half))).by_key["wide-4", "w", 1]
    assert figure.decode_by == "client"
    assert figure.decode_speed is not None
    assert figure.decode_speed.median == pytest.approx(40.0)


def test_a_single_token_has_no_decode_speed() -> None:
    figure = reckon(bench(cell(BASE, 1, 30.0, turn(0, 1, decode_seconds=0.0)))).by_key[
        "base", "w", 1
    ]
    assert figure.decode_speed is None


def test_first_token_time_prefill_and_decode() -> None:
    turns = [
        turn(
            n, start=1.0, first=1.0 + 0.1 * n, last=9.0, prefill_seconds=0.1 * n, decode_seconds=2.0
        )
        for n in range(1, 21)
    ]
    figure = reckon(bench(cell(BASE, 1, 30.0, *turns))).by_key["base", "w", 1]
    assert figure.first_token == pytest.approx(1.05)
    assert figure.first_token_95 == pytest.approx(1.9)
    assert figure.prefill_seconds == pytest.approx(1.05)
    assert figure.decode_seconds == pytest.approx(2.0)


def test_percentile_is_by_the_nearest_rank() -> None:
    assert percentile([3.0], 95) == 3.0
    assert percentile([5.0, 1.0, 2.0, 4.0, 3.0], 50) == 3.0
    assert percentile([1.0, 2.0], 95) == 2.0
    assert percentile([1.0, 2.0], 0) == 1.0


def test_acceptance_by_position_adds_up_turns_of_any_depth() -> None:
    turns = (
        turn(0, drafted=5, accepted=3, drafted_at=(3, 2, 0), accepted_at=(2, 1, 0)),
        turn(1, drafted=1, accepted=1, drafted_at=(1,), accepted_at=(1,)),
        turn(2),
    )
    figure = reckon(bench(cell(WIDE8, 1, 30.0, *turns))).by_key["wide-8", "w", 1]
    assert figure.acceptance_at == (0.75, 0.5, None)
    assert figure.acceptance == pytest.approx(4 / 6)


def test_shares_and_peak_are_over_all_runs() -> None:
    cells = [
        cell(WIDE8, 0, 30.0, shares={"draft": 99.0}, peak_memory=9000),
        cell(WIDE8, 1, 30.0, shares={"draft": 1.0, "verify": 3.0}, peak_memory=70),
        cell(WIDE8, 2, 30.0, shares={"draft": 1.0, "verify": 5.0}, peak_memory=60),
    ]
    figure = reckon(bench(*cells)).by_key["wide-8", "w", 1]
    assert figure.shares == pytest.approx({"draft": 0.2, "verify": 0.8})
    assert figure.peak_memory == 70


def test_order_is_kept() -> None:
    figures = reckon(cards())
    assert figures.workloads == ("gsm8k", "mbpp")
    assert figures.concurrencies == (1, 8)
    assert figures.baseline == "base"
    assert figures.at("base", "gsm8k", 16) is None


def test_simulated_is_told() -> None:
    assert not reckon(bench(cell(BASE, 1, 1.0))).simulated
    assert reckon(bench(cell(BASE, 1, 1.0), simulated=True)).simulated


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([], "no run but the warm-up"),
        ([cell(BASE, 0, 1.0)], "no run but the warm-up"),
        ([cell(BASE, 1, 1.0), cell(BASE, 1, 1.0)], "stands twice"),
        ([cell(BASE, 1, float("inf"))], "expected some, and time"),
    ],
)
def test_cells_that_give_no_figures_are_refused(cells: list, said: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(UsageError, match=said):
        reckon(bench(*cells, arms=(BASE,)))


def test_a_cell_of_an_unknown_arm_is_refused() -> None:
    with pytest.raises(UsageError, match="expected one of the arms base"):
        reckon(bench(cell(WIDE8, 1, 1.0), arms=(BASE,)))


def test_answers_that_come_whole_have_no_first_token_time() -> None:
    whole = [turn(n, 11, first=None) for n in range(2)]
    figure = reckon(bench(cell(WIDE4, 1, 30.0, *whole))).by_key["wide-4", "w", 1]
    assert figure.first_token is None
    assert figure.first_token_95 is None
    assert figure.decode_speed is None
    mixed = reckon(bench(cell(WIDE4, 1, 30.0, *whole, turn(2, 11)))).by_key["wide-4", "w", 1]
    assert mixed.first_token == pytest.approx(0.5)
    assert mixed.decode_speed is not None
    assert mixed.decode_speed.median == pytest.approx(20.0)


def test_a_servers_counters_stand_in_for_turns_that_do_not_tell() -> None:
    counts = Counts(rounds=10, drafted=30, accepted=15, accepted_at=(9, 5, 1))
    figure = reckon(bench(cell(WIDE4, 1, 30.0, counts=counts))).by_key["wide-4", "w", 1]
    assert figure.accept_length == pytest.approx(2.5)
    assert figure.acceptance == pytest.approx(0.5)
    assert figure.acceptance_at == pytest.approx((0.9, 0.5, 0.1))
    told = turn(0, 10, 5, drafted=4, accepted=1, drafted_at=(4,), accepted_at=(1,))
    figure = reckon(bench(cell(WIDE4, 1, 30.0, told, counts=counts))).by_key["wide-4", "w", 1]
    assert figure.accept_length == pytest.approx(2.0)
    assert figure.acceptance == pytest.approx(0.25)
    assert figure.acceptance_at == (0.25,)


def test_positions_are_by_rounds_where_only_acceptances_are_told() -> None:
    figure = reckon(bench(cell(WIDE4, 1, 30.0, turn(0, 10, 4, accepted_at=(3, 1))))).by_key[
        "wide-4", "w", 1
    ]
    assert figure.acceptance_at == (0.75, 0.25)


def test_figures_come_in_the_order_of_workloads_concurrencies_and_arms() -> None:
    cells = [
        *(cell(arm, 1, 1.0, concurrency=8) for arm in (WIDE8, BASE, WIDE4)),
        *(cell(arm, 1, 1.0) for arm in (WIDE4, WIDE8, BASE)),
        *(cell(arm, 1, 1.0, workload="v") for arm in (WIDE4, BASE)),
    ]
    arms = ("base", "wide-4", "wide-8")
    assert list(reckon(bench(*cells)).by_key) == [
        *((arm, "w", 1) for arm in arms),
        *((arm, "w", 8) for arm in arms),
        *((arm, "v", 1) for arm in arms[:2]),
    ]
