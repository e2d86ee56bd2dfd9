"""Tables of BENCHMARKS.md, from the JSON that its commands print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dflash_gguf.bench.document import read_document
from dflash_gguf.bench.fields import filled
from dflash_gguf.bench.sweep import Best, Sweep
from dflash_gguf.bench.sweeping import sweep_tables
from dflash_gguf.bench.tables import NONE, Table, all_tables

Lines = Sequence[Mapping[str, Any]]

_DETAILS, _MOST_ROWS = "Every arm", 24
# the cards' tables and those that say whether they mean anything; `bench --show` has all of them
_SHOWN = ("Throughput", "Block size", "Accept length", "Greedy texts", "Shares")


class Columns:
    """A table of chosen keys, a row for each line.

    Args:
        columns: keys and what their columns are called; those that no line has are left out.
    """

    def __init__(self, title: str, *columns: tuple[str, str]) -> None:
        self.title, self.columns = title, columns

    def __call__(self, lines: Lines) -> list[Table]:
        """Return the table."""
        columns = [(key, name) for key, name in self.columns if any(key in line for line in lines)]
        rows = tuple(tuple(said(line.get(key)) for key, _ in columns) for line in lines)
        return [Table(self.title, tuple(name for _, name in columns), rows, ())]


def said(value: Any) -> str:
    """Return a value as a cell."""
    if value is None or value in ([], {}):
        text = NONE
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, int):
        text = f"{value:,}"
    elif isinstance(value, float):
        text = f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"
    elif isinstance(value, list):
        text = ", ".join(map(said, value))
    elif isinstance(value, dict):
        text = ", ".join(f"{key} {said(each)}" for key, each in value.items())
    else:
        text = str(value)
    return text


def bench_tables(lines: Lines) -> list[Table]:
    """Return the tables of a measurement, `bench -o json`."""
    (document,) = lines
    bench, figures = read_document(document, "a run file")
    return [
        table
        for table in all_tables(bench, figures)
        if table.title.startswith(_SHOWN)
        or (table.title.startswith(_DETAILS) and len(table.rows) <= _MOST_ROWS)
    ]


def sweep_of(lines: Lines) -> list[Table]:
    """Return the tables of `bench --sweep -o json`."""
    (document,) = lines
    sweeps, best = [], []
    for found in document["sweeps"]:
        told = dict(found)
        # as it was reckoned then: later versions may know other curves
        best.append([filled(Best, each) for each in told.pop("best")])
        sweeps.append(filled(Sweep, told))
    return sweep_tables(sweeps, document["facts"], best)


def wrote(_: Lines) -> list[Table]:
    """Of a command that writes files there is nothing to show."""
    return []


def pivot(
    title: str, rows: tuple[str, ...], column: str, value: str
) -> Callable[[Lines], list[Table]]:
    """Return what makes a table with a column for each value of a key."""

    def made(lines: Lines) -> list[Table]:
        places = list(dict.fromkeys(line[column] for line in lines))
        found: dict[tuple[str, ...], dict[Any, Any]] = {}
        for line in lines:
            found.setdefault(tuple(said(line[key]) for key in rows), {})[line[column]] = line[value]
        header = (*rows, *(f"{column} {said(place)}" for place in places))
        body = tuple(
            (*key, *(said(values.get(place)) for place in places)) for key, values in found.items()
        )
        return [Table(title, header, body, ())]

    return made


def peers_table(lines: Lines) -> list[Table]:
    """Return what peers.py prints: arms, and what ours are of plain decoding, the best server and the best loop."""
    (summary,) = [line for line in lines if "summary" in line]
    arms = [line for line in lines if "arm" in line]
    if any("void" in line for line in lines):
        text = "peers.py measured builds of different system info: its figures are void"
        raise ValueError(text)
    rows = []
    for line in arms:
        ratios = summary["summary"].get(line["arm"], {})
        drafting = line["draft_n"] > 0 and line["rounds"] > 0
        length = 1 + line["draft_n_accepted"] / line["rounds"] if drafting else None
        values = (
            line["tok_s"],
            length,
            *(ratios.get(f"to_{to}") for to in ("plain", "peer", "floor")),
        )
        names = {"ours": f"dflash-gguf, {line['arm']}", "floor": f"loop, {line['arm']}"}
        name = names.get(line["kind"], line["arm"].replace("server", "llama-server,", 1))
        rows.append((name, *map(said, values), said(line.get("same_text"))))
    header = (
        "Arm",
        "tok/s",
        "Tokens a round",
        "of plain",
        "of the best server",
        "of the best loop",
        "Same text",
    )
    title = f"Decoding, {summary['sequences']} at a time"
    if summary["simulated"]:
        title += " (simulated acceptance)"
    best = f"best server: {summary['best_peer']}; best loop: {summary['best_floor']}; medians of {summary['passes']} passes"
    return [Table(title, header, tuple(rows), (best,))]


def as_they_are(lines: Lines) -> list[Table]:
    """Return a table for each kind of line, with all of its keys."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        kinds.setdefault(str(line.get("what", "")), []).append(line)
    tables = []
    for kind, found in kinds.items():
        keys = list(dict.fromkeys(key for line in found for key in line if key != "what"))
        rows = tuple(tuple(said(line.get(key)) for key in keys) for line in found)
        tables.append(Table(kind, tuple(keys), rows, ()))
    return tables
