"""What does not hold of a measurement is seen in all that is shown of it, and in the exit code."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_gguf.bench.notes import found_lines
from dflash_gguf.bench.output import render
from dflash_gguf.bench.records import Bench, Failure
from dflash_gguf.bench.saved import save
from dflash_gguf.bench.showing import show_bench

from ..support.bench import ASK, FIXED, made_cell, made_turn
from ..support.command import command

GOOD = Bench({}, (FIXED,), (made_cell(),), "ab" * 32, ask=ASK)
FAULT = replace(GOOD, cells=(made_cell(turns=[made_turn(rounds=5), made_turn(1, start=1.0)]),))
LOOPS = replace(
    GOOD, cells=(made_cell(turns=[made_turn(n, start=n, text="so " * 30) for n in (0, 1)]),)
)
RULE = "10 tokens were written; expected 1 + 5 rounds + 5 accepted"


def shows(made: Bench, form: str = "md", *, quiet: bool = True) -> bool:
    return show_bench(made, form, None, None, quiet=quiet)


@pytest.mark.parametrize("quiet", [True, False])
def test_faults_are_told_before_and_behind_the_tables(
    capsys: pytest.CaptureFixture[str], quiet: bool
) -> None:
    assert not shows(FAULT, quiet=quiet)
    out, err = capsys.readouterr()
    first, *_, last = err.splitlines()
    assert (
        first
        == f"fault emitted: DFlash block=4, made, concurrency 1, run 1, question 0, turn 0: {RULE}"
    )
    assert last == "1 fault, told above the tables: the figures cannot be trusted"
    for table in out.split("## ")[1:]:
        line = "Fault, these figures cannot be trusted: emitted: DFlash block=4, made, concurrency 1, run 1, "
        assert f"- {line}question 0, turn 0: {RULE}.\n" in table


def test_warnings_are_told_and_are_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert shows(LOOPS)
    out, err = capsys.readouterr()
    assert err.count("warning one-token-loop") == 2
    assert "- Warning: one-token-loop: DFlash block=4, 2 times, first, made" in out
    assert shows(GOOD)
    out, err = capsys.readouterr()
    assert err == ""
    assert "Fault" not in out + err
    assert "Warning" not in out


def test_failures_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert not shows(
        replace(GOOD, failures=(Failure("dflash 4", "made", 8, 2, "no room"),)), "json"
    )
    out, err = capsys.readouterr()
    assert "failed: DFlash block=4, made: no room" in err
    assert json.loads(out)["failures"][0]["error"] == "no room"


def test_many_findings_of_one_kind_are_one_line_of_notes() -> None:
    turns = [made_turn(n, start=n, rounds=5) for n in range(9)]
    many = replace(GOOD, cells=(made_cell(turns=turns, seconds=9.0, shares={}),))
    document = json.loads(render(many, "json"))
    assert [found["name"] for found in document["findings"]] == ["emitted"] * 9
    text = render(many, "md")
    assert text.count(RULE) == text.count("\n## ") + 1
    assert "9 times, first, made" in text
    assert found_lines([], {}) == []


def test_every_line_of_data_counts_its_arms_faults() -> None:
    for made, count in ((GOOD, 0), (FAULT, 1)):
        (line,) = render(made, "jsonl").splitlines()
        assert json.loads(line)["faults"] == count
        (row,) = csv.DictReader(io.StringIO(render(made, "csv")))
        assert int(row["faults"]) == count


@pytest.mark.parametrize("form", ["md", "json", "jsonl", "csv"])
def test_a_saved_run_with_faults_ends_with_1_whenever_it_is_shown(
    tmp_path: Path, form: str
) -> None:
    good, bad = (
        command("bench", "--show", save(made, tmp_path), "-o", form) for made in (GOOD, FAULT)
    )
    assert (good.returncode, good.stderr) == (0, "")
    assert bad.returncode == 1
    assert "fault emitted" in bad.stderr
    assert bad.stdout.count("\n") >= good.stdout.count("\n") > 0


def test_what_was_saved_without_how_it_was_asked_says_that_it_is_unchecked() -> None:
    assert "Not checked whether counts and times add up" in render(replace(FAULT, ask=None), "md")
    assert "Not checked" not in render(FAULT, "md")
