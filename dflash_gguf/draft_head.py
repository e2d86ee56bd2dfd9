"""The head of a drafter: its target's, or one of its own, which may know a part of the vocabulary only."""

from __future__ import annotations

import numpy as np

from .gguf_file import GgufFile
from .gguf_scan import TensorInfo

_HEAD, _TABLE, _D2T = "output.weight", "token_embd.weight", "d2t"
_OURS = "dflash_gguf.draft_vocab"
_ORDERS = {
    "merges": "the first ones by the tokenizer's merges",
    "scores": "the first ones by the tokenizer's scores",
    "ids": "the first ones",
    "text": "the most frequent ones of a text",
}


def describe_head(file: GgufFile) -> str:
    """Return in words where a drafter's logits come from, and for how many tokens."""
    if _HEAD not in file.tensors:
        return "its embeddings" if _TABLE in file.tensors else "the target's"
    if _D2T not in file.tensors:
        return "its own"
    tokens = file.count("tokenizer.ggml.tokens") if "tokenizer.ggml.tokens" in file.fields else 0
    known = f"its own, for {file.tensors[_D2T].shape[0]:,} of {tokens:,} tokens"
    order = file.string(f"{_OURS}.order", "")
    if order not in _ORDERS:
        return known
    known += f": {_ORDERS[order]}"
    if order == "text":
        covered = file.number(f"{_OURS}.text_coverage", 0.0)
        known += f" (sha256 {file.string(f'{_OURS}.text_sha256', '')[:12]}), {covered:.2%} of it"
    return f"{known}, and {file.integer(f'{_OURS}.always_kept', 0):,} that are special"


def head_fault(file: GgufFile) -> str | None:
    """Return what is wrong with a drafter's table of token ids, on which llama.cpp would end the process."""
    info = file.tensors.get(_D2T)
    if info is None:
        return None
    return _shape_fault(info, file.tensors.get(_HEAD)) or _ids_fault(file)


def _shape_fault(table: TensorInfo, head: TensorInfo | None) -> str | None:
    if head is None:
        return f"it has {_D2T} but no {_HEAD}: its head cannot be the target's"
    if table.type.name != "I64" or len(table.shape) != 1:
        return f"{_D2T} is {table.type.name} of shape {list(table.shape)}; expected a list of I64"
    if head.shape[1:] != table.shape:
        return (
            f"{_HEAD} has the shape {list(head.shape)}, but {_D2T} has {table.shape[0]} token ids; expected "
            "a row for each"
        )
    return None


def _ids_fault(file: GgufFile) -> str | None:
    ids = np.frombuffer(file.data(_D2T), "<i8")
    tokens = file.count("tokenizer.ggml.tokens")
    if ids.min() < 0 or ids.max() >= tokens:
        return f"{_D2T} has the token ids {ids.min()} to {ids.max()}; expected 0 to {tokens - 1}"
    if len(np.unique(ids)) != len(ids):
        return f"{_D2T} has a token id twice; expected different ones"
    return None
