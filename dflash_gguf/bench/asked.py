"""What the command line asks to be measured: its lists, and the arms they mean."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from ..options import Options
from ..params import AUTO
from ..simulation import Simulation
from .engine_arm import EngineArm
from .records import Arm
from .schedule import Planned

MODES = ("ar", "mtp", "dflash")
_NO_MTP = (
    "--modes mtp: this engine runs no MTP layers; give a server that does: --peer llama-server, or "
    '--peer-cmd "llama-server -m T.gguf --spec-type draft-mtp --spec-draft-n-max 3 --port {port}"'
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Our side of a measurement.

    Attributes:
        modes: "ar" (plain decoding), "dflash".
        blocks: rows of a verify, one arm of mode "dflash" each.
    """

    target: Path
    draft: Path | None
    modes: tuple[str, ...]
    blocks: tuple[int | str, ...]
    options: Options = field(default_factory=Options)
    simulate: Simulation | None = None


def parse_modes(text: str | None, *, draft: bool, mtp: bool) -> tuple[str, ...]:
    """Return the modes in the order they are given; None: "ar", and "dflash" with a draft.

    `mtp`: whether a server was named that has it. Raises UsageError for what is no mode, stands twice, or has
    nobody to run it.
    """
    if text is None:
        return ("ar", "dflash") if draft else ("ar",)
    modes = _parts("--modes", text, f"some of {', '.join(MODES)}")
    for mode in modes:
        if mode not in MODES:
            problem = f"--modes {text}: '{mode}' is none; expected some of {', '.join(MODES)}"
            raise UsageError(problem)
    if "dflash" in modes and not draft:
        problem = "--modes dflash: no drafter is given; give one with --draft"
        raise UsageError(problem)
    if "mtp" in modes and not mtp:
        raise UsageError(_NO_MTP)
    return modes


def parse_blocks(text: str) -> tuple[int | str, ...]:
    """Return widths of blocks, numbers from 2 or "auto". Raises UsageError for anything else."""
    expected = f"numbers from 2, or {AUTO}, with commas between"
    blocks: list[int | str] = []
    for part in _parts("--block", text, expected):
        if part != AUTO and (not part.isdecimal() or int(part) < 2):
            problem = f"--block {text}: '{part}' is none; expected {expected}"
            raise UsageError(problem)
        blocks.append(AUTO if part == AUTO else int(part))
    return tuple(blocks)


def parse_concurrencies(text: str) -> tuple[int, ...]:
    """Return how many requests run at a time, ascending. Raises UsageError for anything but numbers from 1."""
    expected = "numbers from 1 with commas between"
    parts = _parts("--concurrency", text, expected)
    for part in parts:
        if not part.isdecimal() or int(part) < 1:
            problem = f"--concurrency {text}: '{part}' is none; expected {expected}"
            raise UsageError(problem)
    return tuple(sorted(int(part) for part in parts))


def _parts(option: str, text: str, expected: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts) or len(set(parts)) < len(parts):
        problem = f"{option} {text}: a part is empty or stands twice; expected {expected}"
        raise UsageError(problem)
    return parts


def parse_simulation(text: str, seed: int) -> Simulation:
    """Return a simulation by the name of its curve, or by its own: probabilities with commas between.

    Raises UsageError for an unknown name and for what is no survival curve.
    """
    parts = text.split(",")
    try:
        return Simulation([float(part) for part in parts], seed)
    except ValueError:
        return Simulation(text, seed)


def plan_pair(pair: Pair) -> list[Planned]:
    """Return our arms: plain decoding first, then a block after the other.

    Raises ModelError for a target that is no GGUF, UsageError for a block that drafts nothing.
    """
    arms = []
    if "ar" in pair.modes:
        arms.append(EngineArm(pair.target, options=pair.options))
    if "dflash" in pair.modes and pair.draft is not None:
        arms += [
            EngineArm(
                pair.target,
                pair.draft,
                block=block,
                options=pair.options,
                simulate=pair.simulate,
            )
            for block in pair.blocks
        ]
    return [planned(arm) for arm in arms]


def planned(arm: Arm) -> Planned:
    """Return the plan of an arm that opens itself when it is asked."""
    return Planned(arm.facts, lambda: arm)


def fit_together(files: Sequence[Path], arms: int) -> bool:
    """Whether so many arms may stay open: their files take half of the memory that is free, at most."""
    try:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError):  # macOS does not tell
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return arms * sum(path.stat().st_size for path in files) <= free // 2
