"""What a drafter takes from its target's weights: nothing, unless it has embeddings of its own.

llama.cpp lends a drafter the target's embeddings and head as long as it brings neither. One with its own
embeddings and no head would get these for its head, so the target's head must go into the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..gguf_file import GgufFile
from .config import DraftConfig
from .faults import refuse, refuse_file
from .pickles import load_pickle
from .reader import SourceTensor
from .recipes import WithRow
from .tensors import DraftTensor, llama_order

_TABLE, _HEAD = "token_embd.weight", "output.weight"


def complete_tensors(
    tensors: list[DraftTensor], config: DraftConfig, folder: Path, target: GgufFile
) -> tuple[list[DraftTensor], list[str]]:
    """Add what the drafter must bring but the checkpoint lacks; returns the tensors in order, and warnings.

    A `mask_embedding.pt` beside the checkpoint replaces the mask's row. Raises ConvertError if that file is
    not this drafter's, or if the target's GGUF lacks the tensors.
    """
    named = {tensor.name: tensor for tensor in tensors}
    mask = _read_mask(folder / "mask_embedding.pt", config)
    borrowed = []
    if mask is not None:
        if _TABLE not in named:
            named[_TABLE] = _lend(target, _TABLE, _TABLE, config)
            borrowed.append(named[_TABLE])
        table = named[_TABLE]
        named[_TABLE] = DraftTensor(table.name, table.source, table.type, table.shape, mask)
    tied = config.tied_head and mask is None
    if _TABLE in named and _HEAD not in named and not tied:
        name = _HEAD if _HEAD in target.tensors else _TABLE
        named[_HEAD] = _lend(target, name, _HEAD, config)
        borrowed.append(named[_HEAD])
    warnings = [
        f"{tensor.source.name} of {target.path} goes into the drafter as it is there, {tensor.type.name}: "
        "give a bf16 GGUF of the target to have it whole"
        for tensor in borrowed
        if tensor.type.block > 1
    ]
    return sorted(named.values(), key=lambda tensor: llama_order(tensor.name)), warnings


def needs_weights(tensors: Sequence[DraftTensor], config: DraftConfig, folder: Path) -> bool:
    """Whether something must be taken from the target's weights, so that its tokenizer is not enough."""
    names = {tensor.name for tensor in tensors}
    if (folder / "mask_embedding.pt").exists():
        return not {_TABLE, _HEAD} <= names
    return _TABLE in names and _HEAD not in names and not config.tied_head


def _lend(target: GgufFile, name: str, new_name: str, config: DraftConfig) -> DraftTensor:
    info = target.tensors.get(name)
    if info is None:
        refuse(
            f"{target.path}: it has no tensor {name}, which a drafter with its own embeddings needs; expected "
            "the whole target, in one file"
        )
    shape = (config.hidden_size, config.vocab_size)
    if info.shape != shape:
        refuse(
            f"{target.path}: {name} has the shape {list(info.shape)}; expected {list(shape)} by the "
            "drafter's config.json; give the target this drafter was trained for"
        )
    source = SourceTensor(name, target.path, info.type.name, shape[::-1], info.offset, info.length)
    return DraftTensor(new_name, source, info.type, shape)


def _read_mask(path: Path, config: DraftConfig) -> WithRow | None:
    if not path.exists():
        return None
    loaded = load_pickle(path)
    parts: dict[str, Any] = loaded if isinstance(loaded, dict) else {}
    values, token = parts.get("embedding", 0), parts.get("mask_token_id")
    if not hasattr(values, "float") or not hasattr(values, "shape"):
        refuse_file(path, "it has no tensor 'embedding'", "expected that and 'mask_token_id'")
    if token != config.mask_token_id:
        refuse_file(
            path,
            f"its mask_token_id is {token}, in config.json it is {config.mask_token_id}",
            "expected the same: take both from the drafter's repository",
        )
    if tuple(values.shape) != (config.hidden_size,):
        refuse_file(
            path,
            f"its embedding has the shape {list(values.shape)}",
            f"expected [{config.hidden_size}] by config.json",
        )
    row = values.float().numpy().astype("<f4")
    if not np.isfinite(row).all():
        refuse_file(path, "its embedding is not finite", "get the file again")
    return WithRow(config.mask_token_id, row.tobytes())
