"""Measurements as text and as files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf.bench.figures import reckon
from dflash_gguf.bench.output import check_form, render
from dflash_gguf.bench.records import Counts, Failure
from dflash_gguf.bench.saved import check_folder, read_bench, save
from dflash_gguf.bench.tables import all_tables
from dflash_gguf.errors import DflashError, UsageError

from ..support.measured import BASE, WIDE4, bench, cards, cell, turn


def test_markdown_has_every_table_with_its_notes() -> None:
    made = cards()
    text = render(made, "md")
    for table in all_tables(made, reckon(made)):
        assert f"## {table.title}\n\n| {' | '.join(table.header)} |\n| ---" in text
        for row in table.rows:
            assert f"\n| {' | '.join(row)} |\n" in text
        assert all(f"\n- {note}\n" in text for note in table.notes)
    assert text.endswith("\n")


def test_a_bar_in_a_name_does_not_end_a_cell() -> None:
    assert "| w\\|v |" in render(bench(cell(BASE, 1, 1.0, workload="w|v")), "md")


def test_json_has_facts_and_figures() -> None:
    document = json.loads(render(cards(), "json"))
    assert document["facts"]["machine.cpu"] == "Some CPU"
    assert document["baseline"] == "base"
    assert document["simulated"] is False
    assert len(document["figures"]) == 16
    assert document["figures"][0]["throughput"]["median"] == pytest.approx(100)


def test_jsonl_lines_stand_alone() -> None:
    lines = [json.loads(line) for line in render(cards(), "jsonl").splitlines()]
    assert len(lines) == 16
    line = next(line for line in lines if line["arm"] == "mtp-3")
    assert (line["engine"], line["mode"], line["width"]) == ("llama-server", "mtp", 3)
    assert line["target.types"] == "Q8_0+F32"
    assert line["accept_length"] == pytest.approx(2.5)


def test_csv_has_a_row_for_each_figure() -> None:
    rows = list(csv.DictReader(io.StringIO(render(cards(), "csv"))))
    assert len(rows) == 16
    (row,) = (
        row
        for row in rows
        if (row["arm"], row["workload"], row["concurrency"]) == ("wide-8", "mbpp", "8")
    )
    assert float(row["throughput"]) == pytest.approx(1200)
    assert float(row["throughput_least"]) == pytest.approx(600)
    assert float(row["speedup"]) == pytest.approx(3)
    assert float(row["share_verify"]) == pytest.approx(0.75)
    assert row["acceptance_at"] == "1.000000 0.500000 0.000000"
    assert row["simulated"] == "False"
    base = next(row for row in rows if row["arm"] == "base")
    assert base["accept_length"] == ""


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(UsageError, match="-o xml: expected one of md, json, jsonl, csv"):
        check_form("xml")


def test_a_saved_measurement_is_read_back_the_same(tmp_path: Path) -> None:
    odd = turn(3, 7, 2, text="line\nbreak \u2028 \ud800 |", prefill_seconds=1, drafted_at=(1, 2))
    made = bench(
        cell(BASE, 0, 3.0),
        cell(WIDE4, 1, 5.0, odd, turn(4), counts=Counts(3, 9, 4, (3, 1))),
        simulated=True,
    )
    made = replace(made, failures=(Failure("wide-4", "w", 8, None, "no room"),))
    folder = save(made, tmp_path / "runs")
    assert folder.parent == tmp_path / "runs"
    assert sorted(path.name for path in folder.iterdir()) == [
        *("bench.json", "tables.md", "turns.jsonl"),
    ]
    assert read_bench(folder) == made
    assert read_bench(folder / "bench.json") == made
    assert (folder / "tables.md").read_text(encoding="utf-8") == render(made, "md")
    lines = (folder / "turns.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["cell"] for line in lines] == [0, 1, 1]


def test_an_earlier_run_stays(tmp_path: Path) -> None:
    first = save(cards(), tmp_path)
    kept = (first / "bench.json").read_bytes()
    folders = {first, *(save(bench(cell(BASE, 1, 1.0)), tmp_path) for _ in range(3))}
    assert len(folders) == 4
    assert (first / "bench.json").read_bytes() == kept


def test_a_folder_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        check_folder(tmp_path / "file")


def _edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        file = folder / "bench.json"
        document = json.loads(file.read_text(encoding="utf-8"))
        change(document)
        file.write_text(json.dumps(document), encoding="utf-8")

    return edit


def _turns(change: Callable[[str], str]) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        file = folder / "turns.jsonl"
        file.write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")

    return edit


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "bench.json").write_text("{"), "it is no JSON"),
        (lambda folder: (folder / "bench.json").write_text("[]"), "it is no measurement"),
        (_edit(lambda d: d.update(version=2)), "it has version 2; expected 1"),
        (_edit(lambda d: d.update(version=None)), "it has version None"),
        (_edit(lambda d: d.pop("cells")), "'cells' is NoneType; expected a list"),
        (_edit(lambda d: d.pop("facts")), "'facts' is None, expected"),
        (_edit(lambda d: d["arms"][0].update(mode="fast")), "arm: 'mode' is 'fast'"),
        (_edit(lambda d: d["arms"][0].pop("name")), "missing fields: name"),
        (_edit(lambda d: d["cells"][0].update(colour=1)), "cell 0: .* unknown: colour"),
        (_edit(lambda d: d["cells"][0].update(seconds="1")), "'seconds' is '1', expected float"),
        (_edit(lambda d: d["cells"][0].update(seconds=float("nan"))), "'seconds' is nan"),
        (_edit(lambda d: d["cells"].insert(0, 3)), "cell 0: it is int"),
        (_edit(lambda d: d["cells"].pop()), "it has turns of cell 1"),
        (_turns(lambda text: text.replace("answer 4", "answer 5")), "belong to different runs"),
        (_turns(lambda text: text[: text.rindex('{"cell"')]), "1 answers in turns.jsonl"),
        (_turns(lambda text: text[:-9]), "line 3: it is no JSON"),
        (
            _turns(lambda text: text.replace('"cell": 0', '"cell": true')),
            "line 1: its cell is True",
        ),
        (_turns(lambda text: text.replace('"rounds": 2', '"rounds": 2.5')), "'rounds' is 2.5"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: Callable[[Path], object], said: str) -> None:
    made = bench(cell(BASE, 0, 3.0), cell(WIDE4, 1, 5.0, turn(3, 7, 2), turn(4)))
    folder = save(made, tmp_path)
    damage(folder)
    with pytest.raises(DflashError, match=said) as caught:
        read_bench(folder)
    assert "\n" not in str(caught.value)
    assert folder.name in str(caught.value)
