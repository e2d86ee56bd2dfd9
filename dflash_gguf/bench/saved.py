"""A measurement in a folder of its own: bench.json (facts, arms, cells), turns.jsonl (every answer), tables.md."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ..errors import DflashError
from .fields import Misfit, filled
from .output import render
from .records import ArmFacts, Bench, Cell, Failure, Turn
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


def save(bench: Bench, folder: Path) -> Path:
    """Write a measurement into a new folder inside this one and return that, named by the time.

    It is there whole or not at all, and no earlier one is touched. Raises OSError, and what `render` raises.
    """
    files = {_TABLES: render(bench, "md"), **_as_files(bench)}
    folder.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=".bench-", dir=folder))
    try:
        for name, text in files.items():
            with (half / name).open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        return _put(half, folder)
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise


def _put(half: Path, folder: Path) -> Path:
    """Give a written folder a name that nothing has: making it claims the name, renaming fills it."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    number = 1
    while True:
        final = folder / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            final.mkdir()
            break
        except FileExistsError:
            number += 1
    try:
        half.chmod(final.stat().st_mode & 0o777)
        half.rename(final)
    except BaseException:
        final.rmdir()
        raise
    return final


def _as_files(bench: Bench) -> dict[str, str]:
    cells = []
    turns = []
    for number, cell in enumerate(bench.cells):
        values = asdict(cell)
        values["turns"] = len(cell.turns)
        values["texts"] = texts_hash(cell.turns)
        cells.append(values)
        turns += [{"cell": number, **asdict(turn)} for turn in cell.turns]
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "facts": bench.facts,
        "prompts": bench.prompts,
        "arms": [asdict(arm) for arm in bench.arms],
        "cells": cells,
        "failures": [asdict(failure) for failure in bench.failures],
    }
    return {
        BENCH: json.dumps(document, indent=2, allow_nan=False) + "\n",
        _TURNS: "".join(json.dumps(turn, allow_nan=False) + "\n" for turn in turns),
    }


def read_bench(path: Path) -> Bench:
    """Read a saved measurement from its folder, or from the bench.json in it.

    Raises DflashError, in one line, for what is no whole measurement of this version; OSError.
    """
    file = path / BENCH if path.is_dir() else path
    document = _document(file)
    arms = tuple(_made(ArmFacts, arm, f"{file}: arm") for arm in _list(document, "arms", file))
    turns = _turns(file.with_name(_TURNS))
    cells = []
    for number, values in enumerate(_list(document, "cells", file)):
        cells.append(_cell(values, turns.pop(number, []), f"{file}: cell {number}"))
    if turns:
        _fail(f"{file.with_name(_TURNS)}: it has turns of cell {min(turns)}", f"{BENCH} does not")
    failures = tuple(
        _made(Failure, each, f"{file}: failure") for each in _list(document, "failures", file)
    )
    whole = {
        **{key: document.get(key) for key in ("facts", "prompts")},
        "arms": arms,
        "cells": tuple(cells),
        "failures": failures,
    }
    return _made(Bench, whole, str(file))


def _document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
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


def _turns(file: Path) -> dict[int, list[Turn]]:
    """Return all turns by their cell's number."""
    found: dict[int, list[Turn]] = {}
    with file.open(encoding="utf-8") as lines:
        try:
            for number, line in enumerate(lines, 1):
                values = json.loads(line)
                cell = values.pop("cell", None) if isinstance(values, dict) else None
                if type(cell) is not int:
                    _fail(f"{file}, line {number}: its cell is {cell}", "expected a cell's number")
                found.setdefault(cell, []).append(_made(Turn, values, f"{file}, line {number}"))
        except ValueError as error:
            _fail(f"{file}: it is no JSON by lines ({error})", "measure again")
    return found


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
