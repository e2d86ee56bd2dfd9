"""The drafter of a shape: what the converter would make of a checkpoint with random weights, without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..convert.config import DraftConfig, parse_config
from ..convert.expected import expected_tensors
from ..convert.fields import string
from ..convert.metadata import ARCHITECTURE, describe_model
from ..convert.output import Output
from ..convert.target import read_target
from ..convert.tensors import DraftTensor, llama_order
from ..convert.trimmed_head import HEAD, TrimmedHead, trim_head
from ..convert.types import OutputType, choose_types
from ..convert.vocabulary import copy_tokenizer
from ..ggml_types import F32, I64, TensorType
from ..gguf_file import GgufFile
from .catalogue import Shape
from .noise import Noise, random_tensor


def plan_drafter(
    shape: Shape,
    kind: OutputType,
    path: Path,
    target: GgufFile,
    noise: Noise,
    draft_vocab: int | None,
) -> tuple[Output, list[DraftTensor]]:
    """Return the file to write, but for its name, and its tensors; `draft_vocab`: rows of a head of its own.

    Raises UsageError for a `draft_vocab` that cannot be.
    """
    config = parse_config(_config(shape), shape.name)
    tensors = [
        random_tensor(item.name, item.shape[::-1], noise, path)
        for item in expected_tensors(config, 0)
        if item.required
    ]
    tensors.sort(key=lambda tensor: llama_order(tensor.name))
    head = None
    if draft_vocab is not None:
        head = trim_head(tensors, config, path.parent, target, draft_vocab, None)
        tensors = head.tensors
    fields = (
        {"general.architecture": string(ARCHITECTURE)}
        | describe_model(config, read_target(target), {tensor.name for tensor in tensors})
        | copy_tokenizer(target, config.mask_token_id)
        | (head.fields if head is not None else {})
    )
    return Output(path, kind.label, fields, _types(config, kind, tensors, head), ()), tensors


def _config(shape: Shape) -> dict[str, Any]:
    """The config.json such a drafter would have, in z-lab's spelling."""
    drafter = shape.drafter
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": shape.hidden,
        "intermediate_size": drafter.ffn,
        "num_hidden_layers": drafter.layers,
        "num_attention_heads": drafter.heads,
        "num_key_value_heads": drafter.kv_heads,
        "head_dim": drafter.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.epsilon,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.context,
        "rope_theta": shape.rope_base,
        "block_size": drafter.block,
        "layer_types": ["full_attention"] * drafter.layers,
        "num_target_layers": shape.layers,
        "dflash_config": {"mask_token_id": shape.mask, "target_layer_ids": list(shape.taps)},
    }


def _types(
    config: DraftConfig,
    kind: OutputType,
    tensors: list[DraftTensor],
    head: TrimmedHead | None,
) -> list[TensorType]:
    wishes = {} if head is None else head.types({})
    everywhere = () if head is None else (HEAD,)
    chosen = choose_types(kind, config.sizes, tensors, wishes, weighed=False, everywhere=everywhere)
    return [
        found if found is not None else I64 if tensor.type == I64 else F32
        for tensor, found in zip(tensors, chosen, strict=True)
    ]
