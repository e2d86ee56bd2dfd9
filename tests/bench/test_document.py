"""What `-o json` writes is shown again as the measurement itself was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf.bench.document import parse_document, read_document
from dflash_gguf.bench.figures import reckon
from dflash_gguf.bench.output import render, render_figures
from dflash_gguf.bench.records import Bench, Failure
from dflash_gguf.errors import DflashError

from ..support.command import command
from ..support.measured import BASE, WIDE4, bench, cards, cell, turn


def failed(made: Bench) -> Bench:
    failure = Failure("wide-8", "gsm8k", 8, 2, "no room")
    return Bench(made.facts, made.arms, made.cells, made.prompts, (failure,))


@pytest.mark.parametrize("form", ["md", "json", "jsonl", "csv"])
@pytest.mark.parametrize("simulated", [False, True])
def test_every_form_is_the_same_again(form: str, simulated: bool) -> None:
    made = failed(cards())
    made = Bench({**made.facts, "simulated": simulated}, *_rest(made))
    told = render(made, "json")
    assert render_figures(*parse_document(told, "x"), form) == render(made, form)


def _rest(made: Bench) -> tuple[Any, ...]:
    return made.arms, made.cells, made.prompts, made.failures


def test_texts_that_are_the_same_are_told(tmp_path: Path) -> None:
    made = bench(
        cell(BASE, 1, 90.0, turn(0), turn(1)),
        cell(WIDE4, 1, 80.0, turn(0), turn(1, text="answer of its own")),
        **{"settings.sampling": "greedy"},
    )
    figures = reckon(made)
    base, wide = (figures.by_key[arm.name, "w", 1] for arm in (BASE, WIDE4))
    assert (base.same_texts, wide.same_texts) == (None, (1, 2))
    assert base.texts != wide.texts
    path = tmp_path / "figures.json"
    path.write_text(render(made, "json"))
    done = command("bench", "--show", path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == render(made, "md")
    assert (
        "## Greedy texts that are those of Baseline\n\n| Workload | Concurrency | DFlash block=4 |"
        in done.stdout
    )
    assert "| w | 1 | 1/2 |" in done.stdout


def test_answers_that_are_one_token_over_and_over_are_told() -> None:
    same = {"settings.sampling": "greedy"}
    fine = bench(cell(BASE, 1, 90.0), cell(WIDE4, 1, 80.0), **same)
    assert "over and over" not in render(fine, "md")
    stuck = turn(0, text="and so " + "on " * 60)
    made = bench(cell(BASE, 1, 90.0), cell(WIDE4, 1, 80.0, stuck, turn(1)), **same)
    assert [figure.loops for figure in reckon(made).by_key.values()] == [0, 1]
    assert "with ease: 1 of w (answers" in render(made, "md")


@pytest.mark.parametrize("facts", [{"settings.sampling": "temperature 1"}, {"simulated": True}])
def test_texts_that_need_not_be_the_same_are_not_compared(facts: dict[str, Any]) -> None:
    made = bench(
        cell(BASE, 1, 90.0), cell(WIDE4, 1, 80.0), **{"settings.sampling": "greedy", **facts}
    )
    assert all(figure.same_texts is None for figure in reckon(made).by_key.values())
    assert "Greedy texts" not in render(made, "md")


def test_what_is_no_document_is_refused_in_a_line() -> None:
    whole = json.loads(render(cards(), "json"))
    for wrong in (
        [],
        {},
        {**whole, "more": 1},
        {**whole, "figures": []},
        {**whole, "figures": [{"arm": "base"}]},
        {**whole, "figures": 5},
        {**whole, "arms": [5]},
    ):
        with pytest.raises(DflashError, match=r"x: .*expected what bench -o json writes") as caught:
            read_document(wrong, "x")
        assert "\n" not in str(caught.value)
    with pytest.raises(DflashError, match="no JSON"):
        parse_document("{", "x")
