"""The tiny drafter with one of the usual faults, all of them silent: the target verifies every token."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dflash_gguf.convert import convert

from ..convert.made import Weights, make_checkpoint
from .edited import edited
from .tiny import ROOT, Tiny

Planted = Callable[[Tiny], Path]
_RANK = 16


def _config(change: Callable[[dict[str, Any]], None]) -> Planted:
    return lambda tiny: tiny.draft("f32", change)


def _taps(by: int) -> Planted:
    def change(config: dict[str, Any]) -> None:
        # the converter refuses a tap that cannot be read: the last one stays where it is
        last = config["num_target_layers"] - 2
        section = config["dflash_config"]
        section["target_layer_ids"] = [min(tap + by, last) for tap in section["target_layer_ids"]]

    return _config(change)


def _rope(config: dict[str, Any]) -> None:
    section = config.get("rope_parameters", config)
    section["rope_theta"] *= 10


def _mask(config: dict[str, Any]) -> None:
    config["dflash_config"]["mask_token_id"] += 1


def _window(config: dict[str, Any]) -> None:
    config["use_sliding_window"] = False


def _rotated_part(tiny: Tiny) -> Path:
    sound = tiny.draft("f32")
    part = {"dflash.rope.dimension_count": 16}  # a quarter of a head, as the target's
    return edited(sound, sound.with_name("part.gguf"), change=part)


def dspark(tiny: Tiny, *, from_anchor: bool) -> Path:
    """Write the drafter as a DSpark whose Markov head adds nothing, of either anchor layout.

    It was trained with the bonus layout, not to draft from the anchor.
    """
    config = json.loads((ROOT / "draft" / "config.json").read_text(encoding="utf-8"))
    config |= {"markov_rank": _RANK, "sample_from_anchor": from_anchor}
    weights = _packed(ROOT / "draft" / "model.safetensors")
    shape = (config["vocab_size"], _RANK)
    for name in ("markov_w1", "markov_w2"):
        weights[f"markov_head.{name}.weight"] = ("F32", shape, bytes(4 * shape[0] * shape[1]))
    folder = make_checkpoint(tiny.folder / f"dspark-{from_anchor}", config, weights=weights)
    (written,) = convert(folder, tiny.target, outdir=folder, outtypes=["f32"], force=True)
    return written.path


def _packed(path: Path) -> Weights:
    """Read a safetensors file's tensors as they are."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {
        name: (
            entry["dtype"],
            tuple(entry["shape"]),
            data[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]],
        )
        for name, entry in header.items()
    }


# by the rows of the list of faults that people reported; the first ones show in a block's logits
CONFIG_FAULTS: dict[str, Planted] = {
    "C1 taps+1": _taps(1),
    "C1 taps-1": _taps(-1),
    "C4 mask id+1": _config(_mask),
    "C5 rope base x10": _config(_rope),
    "C6 a quarter rotated": _rotated_part,
    "C7 window removed": _config(_window),
}
FAULTS: dict[str, Planted] = {
    **CONFIG_FAULTS,
    "C12 drafts from the anchor": lambda tiny: dspark(tiny, from_anchor=True),
}
