"""The lines above a chat: which target and drafter are loaded and where they run, and how tokens are chosen."""

from __future__ import annotations

from pathlib import Path

from ..convert.types import OUTPUT_TYPES
from ..draft_family import family_of
from ..engine import Engine
from ..gguf_file import GgufFile
from ..hardware import devices
from ..plan import HOST, size_text

_TYPES = {kind.file_type: kind.label for kind in OUTPUT_TYPES.values()}


def header(engine: Engine, threads: int) -> list[str]:
    """Return three lines: target, drafter, device. Raises ModelError if a file is gone."""
    target, *drafts = engine.files
    lines = [f"target   {_model(target)} · context {engine.n_ctx:,} tokens"]
    if drafts:
        with GgufFile(drafts[0]) as file:
            family = family_of(file)
        lines.append(f"drafter  {_model(drafts[0])} · {family}, block {engine.block}")
    else:
        lines.append("drafter  none")
    lines.append(f"device   {_places(engine)} · {threads} thread{'s' * (threads > 1)}")
    return lines


def _model(path: Path) -> str:
    """What a file says it is: its name, its type, its size."""
    with GgufFile(path) as file:
        name = file.string("general.name", path.stem)
        kind = _TYPES.get(file.integer("general.file_type", -1))
        parts = ["".join(c if c.isprintable() else "?" for c in name), kind, size_text(file.size)]
    return " · ".join(part for part in parts if part)


def _places(engine: Engine) -> str:
    """Where the weights are."""
    if engine.plan is None:
        return "unknown"
    by_model = {
        model: _named(
            {
                line.place
                for line in engine.plan.lines
                if line.name == f"{model} weights" and line.size
            }
        )
        for model in ("target", "draft")
    }
    target, draft = by_model["target"], by_model["draft"]
    return target if draft in {"", target} else f"{target}, drafter on {draft}"


def _named(places: set[str]) -> str:
    """Devices as `dflash-gguf devices` calls them, with what they are; the host is a CPU."""
    known = devices()
    cpu = next((device for device in known if device.kind == "cpu"), None)
    made = [
        f"{device.name} ({device.description})"
        for device in known
        if device.name in places or (HOST in places and device is cpu)
    ]
    return " and ".join(made)
