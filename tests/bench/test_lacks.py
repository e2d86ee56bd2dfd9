"""What is missing in a measurement that was cut is said, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dflash_gguf.bench.figures import reckon
from dflash_gguf.bench.lacks import lacks
from dflash_gguf.bench.output import render
from dflash_gguf.bench.records import Bench, Failure, Plan
from dflash_gguf.bench.tables import all_tables

from ..support.measured import BASE, WIDE4, bench, cell

NAMES = {"base": "Baseline", "wide-4": "DFlash block=4"}
CUT = replace(
    bench(
        *(cell(arm, run, 9.0) for run in (0, 1, 2) for arm in (BASE, WIDE4)),
        *(cell(arm, 0, 9.0, concurrency=8) for arm in (BASE, WIDE4)),
        cell(WIDE4, 1, 9.0, concurrency=8),
    ),
    plan=Plan(("w", "v"), (1, 8), 2),
    state="interrupted",
)


def test_what_is_missing() -> None:
    assert lacks(CUT, NAMES) == (
        "Interrupted: 9 of 24 runs, warm-ups included, were measured; missing: w at 8: 2 of 2 runs of Baseline, "
        "1 of 2 runs of DFlash block=4; v at 1: all; v at 8: all."
    )


def test_one_that_runs_or_was_killed_is_told_from_one_that_was_interrupted() -> None:
    said = lacks(replace(CUT, state="running"), NAMES)
    assert said.startswith("Not ended (it still runs, or its process was killed): 9 of 24 runs")
    assert lacks(replace(CUT, state="complete"), NAMES) == ""
    assert lacks(replace(CUT, plan=None), NAMES) == "Interrupted."


def test_arms_that_failed_are_no_lack_of_the_rest() -> None:
    failed = (Failure("wide-4", "w", 8, 1, "no room"),)
    said = lacks(replace(CUT, plan=Plan(("w",), (1, 8), 2), failures=failed), NAMES)
    assert said.endswith("missing: w at 8: all.")


def test_cut_in_the_last_moment_nothing_is_missing() -> None:
    whole = replace(CUT, plan=Plan(("w",), (1,), 2), cells=CUT.cells[:6])
    assert lacks(whole, NAMES) == "Interrupted: 6 of 6 runs, warm-ups included, were measured."


@pytest.mark.parametrize("made", [CUT, replace(CUT, state="running")])
def test_every_output_says_so(made: Bench) -> None:
    line = lacks(made, NAMES)
    for table in all_tables(made, reckon(made)):
        assert line in table.notes
    document = json.loads(render(made, "json"))
    assert (document["state"], document["lacks"]) == (made.state, line)
    for each in render(made, "jsonl").splitlines():
        assert json.loads(each)["state"] == made.state
    head, *rows = render(made, "csv").splitlines()
    place = head.split(",").index("state")
    assert [row.split(",")[place] for row in rows] == [made.state] * len(rows)
