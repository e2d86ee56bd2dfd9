"""What the model card beside a checkpoint tells (licence, base model, tags), for the GGUF's general.* keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..gguf_file import GgufFile
from .fields import Field, i32_array, string, string_array, u32

_CARRIED = ("general.license", "general.base_model.", "general.tags", "general.languages")
_BASE = "general.base_model"


def describe_origin(folder: Path, target: GgufFile) -> tuple[dict[str, Field], list[str]]:
    """Return the key/values of README.md's front matter, and warnings.

    Where the card names no base model, the target is it, under the name its own file gives.
    """
    fields, warnings = _read_card(folder)
    if not any(key.startswith(f"{_BASE}.0.") for key in fields):
        fields = {key: field for key, field in fields.items() if not key.startswith(_BASE)}
        fields |= _from_target(target)
    return fields, warnings


def _read_card(folder: Path) -> tuple[dict[str, Field], list[str]]:
    if not (folder / "README.md").is_file():
        return {}, []
    import gguf

    try:
        writer = gguf.GGUFWriter(None, "dflash")
        gguf.Metadata.load(None, folder, "unnamed").set_gguf_meta_model(writer)
        found = {key: value.value for key, value in writer.kv_data[0].items()}
        return {key: _encode(value) for key, value in found.items() if key.startswith(_CARRIED)}, []
    except Exception as error:  # noqa: BLE001  a card may hold anything, and is no reason to stop
        first = str(error).split("\n")[0]
        return {}, [f"README.md's front matter is not read ({type(error).__name__}: {first})"]


def _encode(value: Any) -> Field:
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return string_array(value)
    if isinstance(value, list):
        return i32_array(value)
    return u32(value) if isinstance(value, int) else string(str(value))


def _from_target(target: GgufFile) -> dict[str, Field]:
    carried = {}
    for part in ("name", "organization", "repo_url"):
        key = f"general.{part}"
        if key in target.fields and target.fields[key].element is None:
            carried[f"{_BASE}.0.{part}"] = string(target.string(key))
    return {f"{_BASE}.count": u32(1), **carried} if carried else {}
