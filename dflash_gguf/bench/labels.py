"""What arms, blocks and measurements are called in tables and plots."""

from __future__ import annotations

from collections import Counter

from .records import ArmFacts

_MODES = {"ar": "Baseline", "mtp": "MTP", "dflash": "DFlash"}
_SHORT = {"ar": "AR", "mtp": "MTP", "dflash": "DFlash"}
_AUTO = "auto"


def titled(title: str, *, simulated: bool) -> str:
    """Return a title that does not hide that acceptance was drawn."""
    return f"{title} (simulated acceptance)" if simulated else title


def column_names(arms: tuple[ArmFacts, ...]) -> dict[str, str]:
    """Return each arm's name in a table: as the cards have it, with the engine's if there are several."""
    engines = len({arm.speaks_for for arm in arms}) > 1
    names = {arm.name: _column(arm, engines=engines) for arm in arms}
    return _told_apart(arms, names)


def short_names(arms: tuple[ArmFacts, ...]) -> dict[str, str]:
    """Return names for tables of one block each: without its width."""
    engines = len({arm.speaks_for for arm in arms}) > 1
    names = {
        arm.name: _SHORT[arm.mode] + (f" ({arm.speaks_for})" if engines else "") for arm in arms
    }
    return _told_apart(arms, names)


def _column(arm: ArmFacts, *, engines: bool) -> str:
    width = "" if arm.width is None or arm.mode == "ar" else f" {_unit(arm)}={arm.width}"
    return _MODES[arm.mode] + width + (f" ({arm.speaks_for})" if engines else "")


def _unit(arm: ArmFacts) -> str:
    return "steps" if arm.mode == "mtp" else "block"


def _told_apart(arms: tuple[ArmFacts, ...], names: dict[str, str]) -> dict[str, str]:
    """Give arms that would be called the same their own names."""
    times = Counter(names.values())
    return {
        arm.name: names[arm.name]
        if times[names[arm.name]] == 1
        else f"{names[arm.name]}: {arm.name}"
        for arm in arms
    }


def block_of(arm: ArmFacts) -> int | str | None:
    """Return the block whose table an arm stands in. The cards set n steps of MTP beside a block of n + 1.

    None for a baseline, which stands in all of them, and for an arm whose width nobody told.
    """
    if arm.mode == "mtp" and isinstance(arm.width, int):
        return arm.width + 1
    return None if arm.mode == "ar" else arm.width


def blocks_of(arms: tuple[ArmFacts, ...]) -> tuple[int | str, ...]:
    """Return all blocks: widths ascending, then words such as "auto"."""
    found = {block for arm in arms if (block := block_of(arm)) is not None}
    return tuple(sorted(found, key=lambda block: (isinstance(block, str), str(block).zfill(9))))


def as_the_cards(arms: tuple[ArmFacts, ...]) -> tuple[ArmFacts, ...]:
    """Return arms in the order of the cards' columns: baselines, then block by block, those of one side by side."""
    blocks = blocks_of(arms)

    def place(arm: ArmFacts) -> tuple[bool, int, bool]:
        block = block_of(arm)
        return (
            arm.mode != "ar",
            len(blocks) if block is None else blocks.index(block),
            arm.mode != "mtp",
        )

    return tuple(sorted(arms, key=place))
