"""Random pairs of the families besides DFlash, whose every part moves the drafts enough to be seen."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader

from dflash_gguf.convert import convert

from ..convert.made import Weights, make_checkpoint, make_values, shapes_of
from .random_pairs import MASK, VOCAB, Pair, make_target, small_config

BLOCK = 8
TOP_K = 6
REDUCED = 80
FEW = (15, 78, 162)
_NESTED = {"mask_token_id": MASK, "target_layer_ids": [0, 2]}
_DFLASH2 = {
    "dflash_config": {
        **_NESTED,
        "conv_kernel_size": 3,
        "conv_group_size": 16,
        "selector_rank": 16,
        "selector_top_k": TOP_K,
    }
}
_DSPARK = {"dflash_config": _NESTED, "markov_rank": 16}

# what config.json says besides a DFlash drafter's keys
VARIANTS: dict[str, dict[str, Any]] = {
    "dflash2": _DFLASH2,
    "dspark": {**_DSPARK, "sample_from_anchor": True},
    "dspark-bonus": {**_DSPARK, "sample_from_anchor": False},
    "dspark-reduced": {**_DSPARK, "sample_from_anchor": True, "draft_vocab_size": REDUCED},
}

# factors that make a made tensor's part in a draft as large as the others'
_FACTORS = {
    "v_proj.weight": 10.0,
    "o_proj.weight": 10.0,
    "base_kernel": 4.0,
    "kernel_projection.weight": 4.0,
    "codebook": 10.0,
    "codebook.weight": 10.0,
    "hidden_projection.weight": 10.0,
    "markov_w1.weight": 20.0,
    "markov_w2.weight": 10.0,
    "proj.weight": 10.0,
}


@dataclass(frozen=True, slots=True)
class FamilyPair:
    """A pair and what its drafter was made from: `config` and `weights` by their names in the checkpoint."""

    pair: Pair
    config: dict[str, Any]
    weights: dict[str, np.ndarray[Any, np.dtype[np.float32]]]

    @property
    def most(self) -> int:
        """Tokens that a block drafts at most."""
        return BLOCK if self.config.get("sample_from_anchor") else BLOCK - 1


def make_family_pair(
    folder: Path, variant: str, *, hybrid: bool = False, few: bool = False, **changes: Any
) -> FamilyPair:
    """Write a pair of a variant in f32 into `folder`; `changes` replace keys of the drafter's config.

    With `few` the target writes and the drafter drafts little else than FEW tokens, so that many a draft is
    right by chance.
    """
    target = make_target(folder / "target.gguf", hybrid=hybrid)
    config = small_config(BLOCK, **{**VARIANTS[variant], **changes})
    values = {name: _values(name, shape) for name, shape in shapes_of(config).items()}
    if few:
        _silence(target, values)
    if variant == "dspark-reduced":  # ships without a confidence head
        values = {name: v for name, v in values.items() if "confidence" not in name}
    packed: Weights = {name: ("F32", v.shape, v.tobytes()) for name, v in values.items()}
    if variant == "dspark-reduced":
        offsets = 2 * np.arange(REDUCED, dtype="<i8")  # every third token
        packed["d2t"] = ("I64", (REDUCED,), offsets.tobytes())
    source = make_checkpoint(folder / "draft", config, weights=packed)
    (written,) = convert(source, target, outdir=folder, outtypes=["f32"])
    return FamilyPair(Pair(target, written.path), json.loads(json.dumps(config)), values)


def _silence(target: Path, values: dict[str, np.ndarray[Any, np.dtype[np.float32]]]) -> None:
    """Make the logits of all tokens but FEW zero, in the target's head and in what the drafter has."""
    reader = GGUFReader(target, "r+")
    (output,) = (tensor for tensor in reader.tensors if tensor.name == "output.weight")
    heads = [output.data]
    heads += [value for name, value in values.items() if "markov_w2" in name or "lm_head" in name]
    for head in heads:
        ids = np.arange(len(head)) * (1 if len(head) == VOCAB else 3)
        head[~np.isin(ids, FEW)] = 0
    reader.data.flush()


def _values(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    values = make_values(name, math.prod(shape)).reshape(shape)
    if "norm" in name:
        return values + np.float32(1)
    factor = next((f for part, f in _FACTORS.items() if name.endswith(part)), 1.0)
    values = values * np.float32(factor)
    if name.endswith("base_kernel"):
        values[:, 0] += 1  # else almost nothing of the layer is left
    return values
