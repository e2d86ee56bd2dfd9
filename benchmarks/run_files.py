"""The files of benchmarks/runs: what a section of BENCHMARKS.md printed when it was measured, and where that was."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_DIGITS = 6  # significant ones that are kept
# a folder of the machine it was measured on; a slash inside a word, as in tok/s, is none
_PLACE = re.compile(r"(?<![\w.}\])])/\w+/|\bhttps?://|\b(?:\d+\.){3}\d+:\d")


@dataclass(frozen=True, slots=True)
class StepRun:
    """A command and what it printed: JSON objects. `seconds` of the wall clock."""

    command: str
    seconds: float
    lines: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SectionRun:
    """A section as it was measured: with which revision of this repository, when, and on which machine."""

    section: str
    revision: str
    date: str
    machine: str
    versions: str
    steps: tuple[StepRun, ...]


def write_run(run: SectionRun, path: Path) -> None:
    """Write a run, an object of the output on each line.

    Raises ValueError if it names a folder or an address of this machine.
    """
    head = {key: value for key, value in asdict(run).items() if key != "steps"}
    parts = []
    for step in run.steps:
        told = {"command": step.command, "seconds": round(step.seconds, 1)}
        lines = ",\n".join(_compact(line) for line in step.lines)
        parts.append(f'{json.dumps(told)[:-1]}, "lines": [\n{lines}\n]}}')
    text = f'{json.dumps(head)[:-1]}, "steps": [\n' + ",\n".join(parts) + "\n]}\n"
    check_places(text)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def read_run(path: Path) -> SectionRun:
    """Read a run. Raises ValueError, naming the file, for anything else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        steps = tuple(StepRun(**{**step, "lines": tuple(step["lines"])}) for step in found["steps"])
        return SectionRun(**{**found, "steps": steps})
    except (ValueError, TypeError, KeyError) as error:
        text = f"{path}: it is no run file ({error}); measure its section again"
        raise ValueError(text) from None


def check_places(text: str) -> None:
    """Raise ValueError for text that names a folder or an address of a machine."""
    found = _PLACE.search(text)
    if found is not None:
        around = text[max(found.start() - 40, 0) : found.end() + 40]
        problem = f"a run file would name a place of this machine: ...{around}..."
        raise ValueError(problem)


def _compact(value: Any) -> str:
    return json.dumps(_rounded(value), separators=(",", ":"))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return value
