"""What the names of a repository's GGUF files say: quants, parts of one model, and files that are no model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
_QUANT = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q[1-9]_[0-9A-Z]+(?:_[0-9A-Z]+)*|TQ[12]_0|BF16|FP?16|FP?32|(?:MX|NV)FP4(?:_MOE)?))"
    r"(?=[-._]|$)",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"mmproj|imatrix|^(?:mtp|eagle3?)-", re.IGNORECASE)
_DRAFTER = re.compile(r"(?:^|[-_.])(?:dflash2?|dspark|draft(?:er)?)(?:[-_.]|$)", re.IGNORECASE)
_DYNAMIC = "UD-"  # before quants of a mix of one's own, which are asked for without it too


@dataclass(frozen=True, slots=True)
class GgufChoice:
    """A model in a repository: its files, the first one to be opened, and its quant in capitals, if named."""

    parts: tuple[str, ...]
    quant: str | None

    @property
    def first(self) -> str:
        """The file to open."""
        return self.parts[0]

    @property
    def label(self) -> str:
        """What to ask for it by: its quant, else its file."""
        return self.quant or self.first


def quant_of(name: str) -> str | None:
    """Return the quant that a file's name ends with, such as Q4_K_M or UD-Q4_K_XL; None if it names none."""
    file = name.rpartition("/")[2]
    part = _PART.fullmatch(file)
    stem = part[1] if part else file.removesuffix(".gguf")
    found = _QUANT.findall(stem)
    return str(found[-1]).upper() if found else None


def is_drafter_name(name: str) -> bool:
    """Whether a file's or repository's name says that it is a drafter."""
    return bool(_DRAFTER.search(name.rpartition("/")[2].removesuffix(".gguf")))


def models(names: Iterable[str]) -> list[GgufChoice]:
    """Return the models among a repository's files, by name.

    Projectors of images (mmproj), importance matrices and next-token heads are none; of a model in parts
    (`-00001-of-00003.gguf`) all must be there.
    """
    known = {name for name in names if name.lower().endswith(".gguf")}
    found = []
    for name in sorted(known):
        if _NO_MODEL.search(name.rpartition("/")[2]):
            continue
        part = _PART.fullmatch(name)
        if part is None:
            found.append(GgufChoice((name,), quant_of(name)))
        elif int(part[2]) == 1:
            parts = tuple(
                f"{part[1]}-{number:05}-of-{part[3]}.gguf" for number in range(1, int(part[3]) + 1)
            )
            if known.issuperset(parts):
                found.append(GgufChoice(parts, quant_of(name)))
    return found


def asked_for(choices: Sequence[GgufChoice], asked: str) -> list[GgufChoice]:
    """Return those that `asked` means, any case: a quant, else one of a mix (UD-), else a file by name."""
    wanted = asked.upper()
    for matches in (
        lambda choice: choice.quant == wanted,
        lambda choice: choice.quant == _DYNAMIC + wanted,
        lambda choice: wanted in _spellings(choice.first),
    ):
        if found := [choice for choice in choices if matches(choice)]:
            return found
    return []


def preferred(choices: Sequence[GgufChoice], order: Sequence[str]) -> list[GgufChoice]:
    """Return what is taken where no quant is asked for: the first quant of `order` that there is, else all."""
    for quant in order:
        if found := [choice for choice in choices if choice.quant == quant]:
            return found
    return list(choices)


def _spellings(name: str) -> set[str]:
    upper = name.upper()
    file = upper.rpartition("/")[2]
    return {upper, file, file.removesuffix(".GGUF")}
