"""What the model card beside a checkpoint tells (licence, base model, tags), for the GGUF's general.* keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..gguf_file import GgufFile
from .fields import Field, string, string_array, u32
from .gguf_package import gguf_package

# stands in the cards we write: these tell of our files, not of the checkpoint they lie beside
MARK = "<!-- written by dflash-gguf convert --model-card -->"

_CARRIED = ("general.license", "general.base_model.", "general.tags", "general.languages")
_BASE = "general.base_model"
_LONGEST = 1 << 20  # bytes of a card that are searched for the mark


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a checkpoint comes from: general.* keys as `fields` and as plain `values`, and warnings."""

    fields: Mapping[str, Field]
    values: Mapping[str, Any]
    warnings: tuple[str, ...]


def describe_origin(folder: Path, target: GgufFile) -> Origin:
    """Read README.md's front matter.

    Where the card names no base model, the target is it, under the name its own file gives.
    """
    values, warnings = _read_card(folder)
    if not any(key.startswith(f"{_BASE}.0.") for key in values):
        values = {key: value for key, value in values.items() if not key.startswith(_BASE)}
        values |= _from_target(target)
    fields = {key: _encode(value) for key, value in values.items()}
    return Origin(fields, values, tuple(warnings))


def find_card(folder: Path) -> Path | None:
    """Return the model card beside a checkpoint, unless it is one that we wrote for GGUFs."""
    path = folder / "README.md"
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return None if MARK.encode() in file.read(_LONGEST) else path


def _read_card(folder: Path) -> tuple[dict[str, Any], list[str]]:
    gguf = gguf_package()
    try:
        if find_card(folder) is None:
            return {}, []
        writer = gguf.GGUFWriter(None, "dflash")
        gguf.Metadata.load(None, folder, "unnamed").set_gguf_meta_model(writer)
        found = {key: value.value for key, value in writer.kv_data[0].items()}
    except Exception as error:  # noqa: BLE001  a card may hold anything, and is no reason to stop
        first = str(error).split("\n")[0]
        return {}, [f"README.md's front matter is not read ({type(error).__name__}: {first})"]
    carried = {key: value for key, value in found.items() if key.startswith(_CARRIED)}
    odd = {key for key, value in carried.items() if not _is_plain(value)}
    warnings = [
        f"{key} of README.md is left out, for it is {carried[key]!r}" for key in sorted(odd)
    ]
    return {key: value for key, value in carried.items() if key not in odd}, warnings


def _is_plain(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return bool(items) and (
        all(isinstance(item, str) for item in items)
        or (not isinstance(value, list) and type(value) is int and 0 <= value < 1 << 32)
    )


def _encode(value: Any) -> Field:
    if isinstance(value, list):
        return string_array(value)
    return u32(value) if isinstance(value, int) else string(value)


def _from_target(target: GgufFile) -> dict[str, Any]:
    carried = {}
    for part in ("name", "organization", "repo_url"):
        key = f"general.{part}"
        if key in target.fields and target.fields[key].element is None:
            carried[f"{_BASE}.0.{part}"] = target.string(key)
    return {f"{_BASE}.count": 1, **carried} if carried else {}
