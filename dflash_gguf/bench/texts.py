"""Texts of arms side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .records import ArmFacts, Bench, Cell, Turn

_Key = tuple[int, int]  # question, turn
_EARLY = 0.1  # of a text: where ties alone seldom have it go another way already


@dataclass(frozen=True, slots=True)
class Agreement:
    """Greedy texts of an arm beside those of plain decoding, at a workload and concurrency.

    A near tie is broken as the last bits of the logits say, which depend on how many rows a decode has; the text is
    another one from there on. Ties come at random places, a fault at the beginning.

    Attributes:
        of: answers that both have; later turns of a conversation whose earlier answers differ are left out.
        same: those whose texts are the same.
        early: those that differ within the first tenth.
        places: of the others, the characters that are the same before they differ, by question.
    """

    arm: str
    than: str
    workload: str
    concurrency: int
    of: int
    same: int
    early: int
    places: tuple[tuple[int, int], ...]

    @property
    def unlike(self) -> bool:
        """Whether this cannot be ties."""
        return 2 * self.early > self.of

    def line(self) -> str:
        """Return it as a part of a sentence."""
        shown = ", ".join(f"{number} after {count}" for number, count in self.places[:4])
        more = ", ..." if len(self.places) > 4 else ""
        why = "" if self.unlike else " (ties that rounding breaks are allowed)"
        return (
            f"{self.of - self.same} of {self.of} texts are not those of {self.than}{why}; questions that differ, "
            f"and after how many characters: {shown}{more}"
        )


def compare_texts(bench: Bench) -> Iterator[Agreement]:
    """Yield, for every arm but the first of mode "ar", how its texts agree with that one's.

    The first counted run of both is taken. Arms without a cell where the first has one are left out; without
    an "ar" arm the first arm stands in.
    """
    reference = first_plain(bench.arms)
    if reference is None:
        return
    cells = _firsts(bench.cells)
    for (arm, workload, concurrency), cell in cells.items():
        other = cells.get((reference.name, workload, concurrency))
        if arm != reference.name and other is not None:
            yield _agreement(cell, other)


def first_plain(arms: Iterable[ArmFacts]) -> ArmFacts | None:
    """Return the arm that others are compared with: the first of mode "ar", else the first."""
    known = list(arms)
    return next((facts for facts in known if facts.mode == "ar"), known[0] if known else None)


def texts_hash(turns: Sequence[Turn]) -> str:
    """Return the SHA-256 of all answers of a cell, by question and turn, whatever order they came in."""
    answers = sorted((turn.workload, turn.question, turn.turn, turn.text) for turn in turns)
    return hashlib.sha256(json.dumps(answers).encode()).hexdigest()


def unsteady_texts(cells: Iterable[Cell]) -> Iterator[tuple[str, str, int, int]]:
    """Yield arm, workload, concurrency and how many answers are not the same in all of its runs, if any."""
    seen: dict[tuple[str, str, int], dict[_Key, set[str]]] = {}
    for cell in cells:
        texts = seen.setdefault((cell.arm, cell.workload, cell.concurrency), {})
        for key, text in _texts(cell).items():
            texts.setdefault(key, set()).add(text)
    for place, texts in seen.items():
        count = sum(len(found) > 1 for found in texts.values())
        if count:
            yield *place, count


def _texts(cell: Cell) -> dict[_Key, str]:
    return {(turn.question, turn.turn): turn.text for turn in cell.turns}


def _firsts(cells: Iterable[Cell]) -> dict[tuple[str, str, int], Cell]:
    """The first counted run of each arm, workload and concurrency; the warm-up where there is no other."""
    firsts: dict[tuple[str, str, int], Cell] = {}
    for cell in sorted(cells, key=lambda cell: (cell.run == 0, cell.run)):
        firsts.setdefault((cell.arm, cell.workload, cell.concurrency), cell)
    return firsts


def _agreement(cell: Cell, other: Cell) -> Agreement:
    own, theirs = _texts(cell), _texts(other)
    strayed: set[int] = set()  # conversations that went another way
    count = early = 0
    places: list[tuple[int, int]] = []
    for question, turn in sorted(own.keys() & theirs.keys()):
        if question in strayed:
            continue
        count += 1
        mine, text = own[question, turn], theirs[question, turn]
        if mine == text:
            continue
        strayed.add(question)
        alike = _alike(mine, text)
        early += alike < _EARLY * max(len(mine), len(text))
        places.append((question, alike))
    return Agreement(
        arm=cell.arm,
        than=other.arm,
        workload=cell.workload,
        concurrency=cell.concurrency,
        of=count,
        same=count - len(places),
        early=early,
        places=tuple(places),
    )


def _alike(text: str, other: str) -> int:
    """How many characters are the same before the first that is not."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(text), len(other)))
