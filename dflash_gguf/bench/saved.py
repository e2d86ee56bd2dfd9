"""A measurement in a folder of its own: bench.json (facts, arms, cells), turns.jsonl (every answer), tables.md.

It is written while it is measured. A cell's answers are appended to turns.jsonl first, then bench.json is replaced by one
that has the cell: whenever the process ends, bench.json is whole and has its answers. What may stand behind them in
turns.jsonl is of a cell that did not get so far.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ..errors import DflashError
from ..signals import Whole
from .fields import Misfit, filled
from .output import render
from .records import ArmFacts, Ask, Bench, Cell, Failure, Plan, Turn
from .texts import texts_hash

T = TypeVar("T")

_FORMAT = "dflash-gguf bench"
_VERSION = 1
BENCH, _TURNS, _TABLES = "bench.json", "turns.jsonl", "tables.md"


def check_folder(folder: Path) -> None:
    """Make the folder that measurements are saved in; raise OSError now, not after half an hour of measuring."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def save(bench: Bench, within: Path) -> Path:
    """Write a measurement into a new folder inside this one and return that. Raises what `Saving` raises."""
    saving = Saving(within)
    saving.end(bench)
    return saving.folder


class Saving:
    """A measurement that is saved as it grows; no earlier one is touched. Ctrl-C comes between writes.

    Args:
        within: where its folder is made with the first cell, named by the time.
    """

    def __init__(self, within: Path) -> None:
        self._within = within
        self._folder: Path | None = None
        self._cells: list[
            dict[str, Any]
        ] = []  # as bench.json has them; their answers are in turns.jsonl

    @property
    def folder(self) -> Path:
        """The measurement's own folder, made if it is not there yet. Raises OSError."""
        if self._folder is None:
            self._folder = _new_folder(self._within)
        return self._folder

    def keep(self, bench: Bench) -> None:
        """Write what has come since the last time; nothing before there is a cell.

        Raises OSError; what was kept before is whole then.
        """
        if not bench.cells:
            return
        with Whole():
            file, count = self.folder / BENCH, len(self._cells)
            if count == 0:
                _replace(file, _document(bench, []))
            if new := bench.cells[count:]:
                _append(file.with_name(_TURNS), _lines(bench, count))
                self._cells += map(_without_answers, new)
            _replace(file, _document(bench, self._cells))

    def end(self, bench: Bench) -> None:
        """Write the rest, and the tables. Raises OSError, and what `render` raises."""
        self.keep(bench)
        if bench.has_runs:
            tables = render(bench, "md")
            with Whole():
                _replace(self.folder / _TABLES, tables)


def _new_folder(within: Path) -> Path:
    """Make a folder with a name that nothing has."""
    within.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    number = 1
    while True:
        folder = within / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


def _append(path: Path, text: str) -> None:
    """Put whole lines behind those of a file, or none."""
    with path.open("ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        left = memoryview(text.encode())
        try:
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(end)
            raise


def _replace(path: Path, text: str) -> None:
    """Write a file that is the old one or the new one at any time."""
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _lines(bench: Bench, first: int) -> str:
    """Answers of the cells from there on; each says of itself that it is nobody's, where acceptance was drawn."""
    mark = {"simulated": True} if bench.facts.get("simulated") else {}
    turns = [
        {"cell": number, **mark, **asdict(turn)}
        for number, cell in enumerate(bench.cells[first:], first)
        for turn in cell.turns
    ]
    return "".join(json.dumps(turn, allow_nan=False) + "\n" for turn in turns)


def _without_answers(cell: Cell) -> dict[str, Any]:
    values = asdict(replace(cell, turns=()))
    return values | {"turns": len(cell.turns), "texts": texts_hash(cell.turns)}


def _document(bench: Bench, cells: Sequence[Mapping[str, Any]]) -> str:
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "state": bench.state,
        "facts": bench.facts,
        "ask": None if bench.ask is None else asdict(bench.ask),
        "plan": None if bench.plan is None else asdict(bench.plan),
        "prompts": bench.prompts,
        "arms": [asdict(arm) for arm in bench.arms],
        "cells": list(cells),
        "failures": [asdict(failure) for failure in bench.failures],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def read_bench(path: Path) -> Bench:
    """Read a saved measurement from its folder, or from the bench.json in it.

    Of one that did not end, answers of a cell that is not told of are passed over, and a line that was cut.
    Raises DflashError, in one line, for what is no measurement of this version; OSError.
    """
    file = path / BENCH if path.is_dir() else path
    document = _read_document(file)
    arms = tuple(_made(ArmFacts, arm, f"{file}: arm") for arm in _list(document, "arms", file))
    state = document.get("state", "complete")
    cells = _list(document, "cells", file)
    turns = _turns(file.with_name(_TURNS), None if state == "complete" else len(cells))
    found = [
        _cell(values, turns.pop(number, []), f"{file}: cell {number}")
        for number, values in enumerate(cells)
    ]
    if turns:
        _fail(f"{file.with_name(_TURNS)}: it has turns of cell {min(turns)}", f"{BENCH} does not")
    failures = tuple(
        _made(Failure, each, f"{file}: failure") for each in _list(document, "failures", file)
    )
    ask, plan = document.get("ask"), document.get("plan")
    whole = {
        **{key: document.get(key) for key in ("facts", "prompts")},
        "arms": arms,
        "cells": tuple(found),
        "failures": failures,
        "ask": None if ask is None else _made(Ask, ask, f"{file}: ask"),
        "plan": None if plan is None else _made(Plan, plan, f"{file}: plan"),
        "state": state,
    }
    return _made(Bench, whole, str(file))


def _read_document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        within = sorted(file.parent.glob(f"*/{BENCH}"))
        such = f", such as {within[-1].parent}" if within else ""
        _fail(f"{file} is not there", f"expected the folder of one run of bench --save-dir{such}")
    except ValueError as error:
        _fail(f"{file}: it is no JSON ({error})", f"expected the {BENCH} of a saved measurement")
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        _fail(f"{file}: it is no measurement", f"expected the {BENCH} that bench --save-dir wrote")
    if document.get("version") != _VERSION:
        found = document.get("version")
        _fail(f"{file}: it has version {found}", f"expected {_VERSION}; measure again")
    return document


def _list(document: dict[str, Any], key: str, file: Path) -> list[Any]:
    found = document.get(key)
    if not isinstance(found, list):
        _fail(f"{file}: '{key}' is {type(found).__name__}", "expected a list; measure again")
    return found


def _turns(file: Path, told: int | None) -> dict[int, list[Turn]]:
    """Return all turns by their cell's number; unless `told` is None, of so many cells, up to a line that was cut."""
    found: dict[int, list[Turn]] = {}
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if told is not None and not line.endswith("\n"):
                break
            cell, values = _line(line, f"{file}, line {number}")
            if told is None or cell < told:
                found.setdefault(cell, []).append(_made(Turn, values, f"{file}, line {number}"))
    return found


def _line(line: str, where: str) -> tuple[int, dict[str, Any]]:
    """Return a turn's cell and its fields."""
    try:
        values = json.loads(line)
    except ValueError as error:
        _fail(f"{where}: it is no JSON ({error})", "measure again")
    cell = values.pop("cell", None) if isinstance(values, dict) else None
    if type(cell) is not int:
        _fail(f"{where}: its cell is {cell}", "expected a cell's number")
    values.pop("simulated", None)  # for who reads a line alone; bench.json says it too
    return cell, values


def _cell(values: Any, turns: list[Turn], where: str) -> Cell:
    if not isinstance(values, dict):
        _fail(f"{where}: it is {type(values).__name__}", "expected an object; measure again")
    kept = dict(values)
    count, texts = kept.pop("turns", None), kept.pop("texts", None)
    if count != len(turns) or texts != texts_hash(turns):
        _fail(
            f"{where}: {len(turns)} answers in {_TURNS}, other ones than the {count} of {BENCH}",
            "the two files belong to different runs or one was cut off",
        )
    return _made(Cell, {**kept, "turns": tuple(turns)}, where)


def _made(kind: type[T], values: Any, where: str) -> T:
    try:
        return filled(kind, values)
    except Misfit as error:
        _fail(f"{where}: {error}", "measure again")


def _fail(fault: str, remedy: str) -> NoReturn:
    text = f"{fault}; {remedy}"
    raise DflashError(text)
