"""A checkpoint's tensors, each matched with the GGUF tensor it becomes.

A tensor that is not expected stops the conversion: leaving it out would give a file that drafts fluently
and is hardly ever right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ..ggml_types import I64, TensorType
from .config import DraftConfig
from .expected import Expected, canonical_name, expected_tensors
from .faults import refuse
from .reader import DTYPES, SourceTensor, read_whole
from .recipes import AsIs, Deinterleaved, Ready, Recipe
from .source import Checkpoint

_FREQUENCIES = ".rotary_emb.inv_freq"  # computed from rope_theta
_MARKOV = "markov_head.markov_w1.weight"

# what an unexpected tensor's name tells of the checkpoint
_HINTS = (
    (
        ("markov", "confidence_head", "d2t", "t2d"),
        "it belongs to a DSpark drafter, which config.json does not tell",
    ),
    (
        ("conv", "candidate_selector"),
        "it belongs to a DFlash2 drafter, which config.json does not tell",
    ),
    ((".bias",), "a DFlash GGUF has no place for biases"),
    (
        ("scale", "qweight", "packed", "zero"),
        "the checkpoint is quantised: give the bf16 one it was made from",
    ),
)


@dataclass(frozen=True, slots=True)
class DraftTensor:
    """A tensor on its way: `source` with values of `type`, `name` in the GGUF, `recipe` between them.

    `shape` is as ggml orders it, row length first.
    """

    name: str
    source: SourceTensor
    type: TensorType
    shape: tuple[int, ...]
    recipe: Recipe = AsIs()  # noqa: RUF009  it has no state

    @property
    def columns(self) -> int:
        """Values of a row."""
        return self.shape[0]

    @property
    def rows(self) -> int:
        """How many rows; a vector is one."""
        return math.prod(self.shape[1:])

    @property
    def stays_float(self) -> bool:
        """Whether it is f32 in every file: a vector, a norm, or anything that is no `.weight`."""
        return (
            len(self.shape) == 1
            or self.name.endswith("_norm.weight")
            or not self.name.endswith(".weight")
        )


def match_tensors(config: DraftConfig, checkpoint: Checkpoint) -> list[DraftTensor]:
    """Pair the checkpoint's tensors with the expected ones, in llama.cpp's order (block number, then name).

    Raises ConvertError for one that is missing, unknown, of another shape or of a type not converted.
    """
    found = _canonical(checkpoint)
    expected = {item.source: item for item in expected_tensors(config, _rank(config, found))}
    for name, tensor in found.items():
        if name not in expected and not _is_left_out(config, name):
            _refuse(tensor)
    missing = [name for name, item in expected.items() if item.required and name not in found]
    if missing:
        refuse(
            f"{checkpoint.origin}: {len(missing)} tensors are missing, such as {missing[0]}; "
            f"expected all of a {config.family.name} drafter with {config.n_layers} layers: get the "
            "checkpoint again"
        )
    unused = _unused(config, found)
    matched = [
        _match(config, found[name], item)
        for name, item in expected.items()
        if name in found and name not in unused
    ]
    return sorted(matched, key=lambda tensor: llama_order(tensor.name))


def llama_order(name: str) -> tuple[int, str]:
    """Sort key of a GGUF tensor name as llama.cpp orders them: by block number, then by name."""
    parts = name.split(".")
    in_block = parts[0] == "blk" and len(parts) > 1 and parts[1].isdecimal()
    return (int(parts[1]) if in_block else -1, name)


def _canonical(checkpoint: Checkpoint) -> dict[str, SourceTensor]:
    found: dict[str, SourceTensor] = {}
    for tensor in checkpoint.tensors.values():
        name = canonical_name(tensor.name)
        if name in found:
            refuse(
                f"{checkpoint.origin}: {found[name].name} and {tensor.name} are the same tensor; expected "
                "one of them: get the checkpoint again"
            )
        found[name] = tensor
    return found


def _rank(config: DraftConfig, found: dict[str, SourceTensor]) -> int:
    if config.dspark is None:
        return 0
    tensor = found.get(_MARKOV)
    shown = tensor.shape[1] if tensor is not None and len(tensor.shape) == 2 else 0
    return config.dspark.rank or max(shown, 1)


def _is_left_out(config: DraftConfig, name: str) -> bool:
    # t2d is d2t's inverse, which nothing reads at run time
    return name.endswith(_FREQUENCIES) or (name == "t2d" and config.dspark is not None)


def _unused(config: DraftConfig, found: dict[str, SourceTensor]) -> set[str]:
    unused = set() if config.own_embeddings else {"embed_tokens.weight"}
    has_table = "embed_tokens.weight" in found and config.own_embeddings
    whole = config.dspark is not None and config.draft_vocab == config.vocab_size
    # a DSpark's whole head is a copy of the target's; beside its own embeddings it is needed, as
    # llama.cpp would otherwise take those for the head
    return unused | ({"lm_head.weight"} if whole and not has_table else set())


def _match(config: DraftConfig, tensor: SourceTensor, item: Expected) -> DraftTensor:
    kinds = {"I64", "I32"} if item.name == "d2t" else set(DTYPES)
    if tensor.dtype not in kinds:
        refuse(
            f"{tensor.path}: {tensor.name} has the type {tensor.dtype}, expected {', '.join(sorted(kinds))}; "
            "give the unquantised checkpoint"
        )
    if tensor.shape != item.shape:
        refuse(
            f"{tensor.path}: {tensor.name} has the shape {list(tensor.shape)}, expected {list(item.shape)} "
            "by config.json; the two do not belong together"
        )
    shape = item.shape[::-1]
    if item.name == "d2t":
        return DraftTensor(item.name, tensor, I64, shape, _absolute(config, tensor))
    rotated = config.interleaved_rope and item.rotated
    recipe: Recipe = Deinterleaved(config.head_dim) if rotated else AsIs()
    return DraftTensor(item.name, tensor, DTYPES[tensor.dtype], shape, recipe)


def _absolute(config: DraftConfig, tensor: SourceTensor) -> Ready:
    """Turn distances into target token ids. Raises ConvertError unless they are different tokens."""
    raw = read_whole(tensor)
    offsets = np.frombuffer(raw, "<i8" if tensor.dtype == "I64" else "<i4").astype(np.int64)
    ids = offsets + np.arange(len(offsets), dtype=np.int64)
    if ids.min() < 0 or ids.max() >= config.vocab_size:
        refuse(
            f"{tensor.path}: {tensor.name} points at the tokens {ids.min()} to {ids.max()}; expected 0 to "
            f"{config.vocab_size - 1}: get the checkpoint again"
        )
    if len(np.unique(ids)) != len(ids):
        refuse(
            f"{tensor.path}: {tensor.name} points at a token twice; expected different ones: get the "
            "checkpoint again"
        )
    if len(ids) == config.vocab_size and offsets.any():
        refuse(
            f"{tensor.path}: {tensor.name} reorders the whole vocabulary; expected a part of it, or no {tensor.name}"
        )
    return Ready(ids.astype("<i8").tobytes(), I64)


def _refuse(tensor: SourceTensor) -> NoReturn:
    hint = next(
        (text for parts, text in _HINTS if any(part in tensor.name for part in parts)),
        "it is no part of a DFlash drafter with the layers config.json tells",
    )
    refuse(f"{tensor.path}: unknown tensor {tensor.name or repr('')}; {hint}")
