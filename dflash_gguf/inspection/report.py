"""Everything that is found out about one file."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..draft_family import family_of
from ..draft_head import describe_head
from ..draft_layers import Layer, effective_layers
from ..errors import DflashError, ModelError
from ..gguf_file import GgufFile, Value
from ..pair import FORKS, check_pair
from .keys import Key, describe_keys, plain
from .oddities import find_oddities

_ORIGIN = ("general.", "dflash_gguf.", "quantize.imatrix.")
_NOT_ORIGIN = {"dflash_gguf.layer_causal", "general.architecture", "general.type"}


@dataclass(frozen=True, slots=True)
class TypeShare:
    """How many tensors have a type, and the bytes they take."""

    type: str
    tensors: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a drafter and a target can be used together, and if not why."""

    target: str
    fits: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """A file: its `family` (DFlash, DFlash2, DSpark, a fork's format, or none of these), sizes and keys.

    `head` tells in words where its logits come from, `trained_known` that the file itself says how its
    layers were trained; `origin` holds what it says of where it comes from.
    """

    path: str
    bytes: int
    gguf_version: int
    architecture: str
    family: str
    parameters: int
    bits_per_weight: float
    types: list[TypeShare]
    tokens: int
    mask_token_id: int | None
    head: str
    keys: list[Key]
    layers: list[Layer]
    trained_known: bool
    origin: dict[str, Value]
    oddities: list[str]
    fit: Fit | None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return asdict(self)


def inspect_file(path: Path | str, target: Path | str | None = None) -> Report:
    """Read a GGUF and, if a target is given, ask whether the two fit.

    Raises ModelError only for a file that is no whole GGUF; what is wrong with a drafter is in the report.
    """
    with GgufFile(path) as file:
        drafter = file.architecture == "dflash"
        layers, known, broken = _layers(file) if drafter else ([], False, [])
        parameters = sum(math.prod(info.shape) for info in file.tensors.values())
        stored = sum(info.length for info in file.tensors.values())
        return Report(
            path=str(file.path),
            bytes=file.size,
            gguf_version=file.version,
            architecture=file.architecture,
            family=_family(file),
            parameters=parameters,
            bits_per_weight=round(8 * stored / parameters, 2) if parameters else 0.0,
            types=_types(file),
            tokens=_tokens(file),
            mask_token_id=_mask(file),
            head=_head(file) if drafter else "",
            keys=describe_keys(file) if drafter else [],
            layers=layers,
            trained_known=known,
            origin=_origin(file),
            oddities=broken or _oddities(file, layers, known=known),
            fit=None if target is None else _fit(file.path, Path(target)),
        )


def _layers(file: GgufFile) -> tuple[list[Layer], bool, list[str]]:
    try:
        layers, known = effective_layers(file)
    except ModelError as error:
        return [], False, [_without(file, error)]
    return layers, known, []


def _oddities(file: GgufFile, layers: list[Layer], *, known: bool) -> list[str]:
    try:
        return find_oddities(file, layers, trained_known=known)
    except ModelError as error:
        return [_without(file, error)]


def _without(file: GgufFile, error: ModelError) -> str:
    return str(error).removeprefix(f"{file.path}: ")


def _family(file: GgufFile) -> str:
    if file.architecture in FORKS:
        return f"fork's format '{file.architecture}'"
    if file.architecture != "dflash":
        return "not a drafter"
    return family_of(file)


def _types(file: GgufFile) -> list[TypeShare]:
    sizes: dict[str, list[int]] = defaultdict(list)
    for info in file.tensors.values():
        sizes[info.type.name].append(info.length)
    shares = [TypeShare(name, len(lengths), sum(lengths)) for name, lengths in sizes.items()]
    return sorted(shares, key=lambda share: -share.bytes)


def _tokens(file: GgufFile) -> int:
    field = file.fields.get("tokenizer.ggml.tokens")
    return field.count if field is not None and field.element is not None else 0


def _mask(file: GgufFile) -> int | None:
    key = "tokenizer.ggml.mask_token_id"
    value = file.value(key) if key in file.fields else None
    return value if isinstance(value, int) else None


def _head(file: GgufFile) -> str:
    try:
        return describe_head(file)
    except ModelError as error:
        return _without(file, error)


def _origin(file: GgufFile) -> dict[str, Value]:
    return {
        key: plain(file.value(key))
        for key in file.fields
        if key.startswith(_ORIGIN) and key not in _NOT_ORIGIN
    }


def _fit(path: Path, target: Path) -> Fit:
    try:
        check_pair(target, path)
    except DflashError as error:
        return Fit(str(target), fits=False, reason=str(error))
    return Fit(str(target), fits=True, reason="")
