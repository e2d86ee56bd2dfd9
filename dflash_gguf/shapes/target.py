"""The target of a shape: a qwen35 GGUF, as llama.cpp's converter would make it of a real checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from .._native import core
from ..convert.fields import Field, boolean_array, f32, i32_array, string, u32
from ..convert.output import Output
from ..convert.tensors import DraftTensor, llama_order
from ..convert.types import OutputType
from ..ggml_types import F32, TENSOR_TYPES, TensorType
from .catalogue import Shape
from .noise import Noise, random_tensor
from .vocabulary import tokenizer_fields

ARCHITECTURE = "qwen35"


def plan_target(
    shape: Shape, kind: OutputType, path: Path, noise: Noise
) -> tuple[Output, list[DraftTensor]]:
    """Return the file to write, but for its name, and its tensors."""
    shapes = _shapes(shape)
    tensors = [random_tensor(name, size, noise, path) for name, size in shapes.items()]
    tensors.sort(key=lambda tensor: llama_order(tensor.name))
    fields = _settings(shape) | tokenizer_fields(shape)
    return Output(path, kind.label, fields, _types(shape, kind, tensors), ()), tensors


def parameters(tensors: Sequence[DraftTensor]) -> int:
    """Return how many numbers the tensors hold."""
    return sum(math.prod(tensor.shape) for tensor in tensors)


def _settings(shape: Shape) -> dict[str, Field]:
    keys = {
        "block_count": u32(shape.blocks),
        "context_length": u32(shape.context),
        "embedding_length": u32(shape.hidden),
        "feed_forward_length": u32(shape.ffn),
        "attention.head_count": u32(shape.heads),
        "attention.head_count_kv": u32(shape.kv_heads),
        "attention.key_length": u32(shape.head_dim),
        "attention.value_length": u32(shape.head_dim),
        "attention.layer_norm_rms_epsilon": f32(shape.epsilon),
        "rope.freq_base": f32(shape.rope_base),
        "rope.dimension_count": u32(shape.rotary),
        "rope.dimension_sections": i32_array([*shape.sections, 0]),
        "ssm.conv_kernel": u32(shape.kernel),
        "ssm.state_size": u32(shape.delta_dim),
        "ssm.group_count": u32(shape.key_heads),
        "ssm.time_step_rank": u32(shape.value_heads),
        "ssm.inner_size": u32(shape.value_heads * shape.delta_dim),
        "full_attention_interval": u32(shape.interval),
        "attention.recurrent_layers": boolean_array(
            [not _attends(shape, index) for index in range(shape.blocks)]
        ),
    }
    if shape.mtp:
        keys["nextn_predict_layers"] = u32(1)
    named = {f"{ARCHITECTURE}.{key}": field for key, field in keys.items()}
    return {"general.architecture": string(ARCHITECTURE), **named}


def _shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Name and shape (row length first) of every tensor: llama_model_qwen35::load_arch_tensors."""
    hidden = shape.hidden
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (hidden, shape.vocab),
        "output_norm.weight": (hidden,),
    }
    if not shape.tied:
        shapes["output.weight"] = (hidden, shape.vocab)
    for index in range(shape.blocks):
        layer = {
            "attn_norm.weight": (hidden,),
            "post_attention_norm.weight": (hidden,),
            "ffn_gate.weight": (hidden, shape.ffn),
            "ffn_up.weight": (hidden, shape.ffn),
            "ffn_down.weight": (shape.ffn, hidden),
            **(_attention(shape) if _attends(shape, index) else _delta_net(shape)),
            **(_next_token(shape) if index >= shape.layers else {}),
        }
        shapes |= {f"blk.{index}.{name}": size for name, size in layer.items()}
    return shapes


def _attends(shape: Shape, index: int) -> bool:
    return index >= shape.layers or (index + 1) % shape.interval == 0


def _next_token(shape: Shape) -> dict[str, tuple[int, ...]]:
    """What a next-token layer has before its attention and behind it; embeddings and head are the target's."""
    return {
        "nextn.eh_proj.weight": (2 * shape.hidden, shape.hidden),
        "nextn.enorm.weight": (shape.hidden,),
        "nextn.hnorm.weight": (shape.hidden,),
        "nextn.shared_head_norm.weight": (shape.hidden,),
    }


def _attention(shape: Shape) -> dict[str, tuple[int, ...]]:
    query, key_value = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "attn_q.weight": (shape.hidden, 2 * query),  # per head: query, then gate
        "attn_k.weight": (shape.hidden, key_value),
        "attn_v.weight": (shape.hidden, key_value),
        "attn_output.weight": (query, shape.hidden),
        "attn_q_norm.weight": (shape.head_dim,),
        "attn_k_norm.weight": (shape.head_dim,),
    }


def _delta_net(shape: Shape) -> dict[str, tuple[int, ...]]:
    inner = shape.value_heads * shape.delta_dim
    mixed = 2 * shape.key_heads * shape.delta_dim + inner
    return {
        "attn_qkv.weight": (shape.hidden, mixed),
        "attn_gate.weight": (shape.hidden, inner),
        "ssm_conv1d.weight": (shape.kernel, mixed),
        "ssm_alpha.weight": (shape.hidden, shape.value_heads),
        "ssm_beta.weight": (shape.hidden, shape.value_heads),
        "ssm_norm.weight": (shape.delta_dim,),
        "ssm_out.weight": (inner, shape.hidden),
        "ssm_a": (shape.value_heads,),
        "ssm_dt.bias": (shape.value_heads,),
    }


def _types(shape: Shape, kind: OutputType, tensors: Sequence[DraftTensor]) -> list[TensorType]:
    """The matrices' types: llama.cpp's choice for this kind of file; what it never quantises stays f32."""
    plain = kind.plain
    if plain is not None:
        kept = [tensor.stays_float or "ssm_conv1d" in tensor.name for tensor in tensors]
        return [F32 if keep else plain for keep in kept]
    numbers = core().quantized_types(
        ARCHITECTURE,
        kind.file_type,
        n_embd=shape.hidden,
        n_ff=shape.ffn,
        n_layer=shape.blocks,
        n_head=shape.heads,
        n_head_kv=shape.kv_heads,
        head_dim=shape.head_dim,
        tensors=[(tensor.name, list(tensor.shape)) for tensor in tensors],
    )
    return [TENSOR_TYPES[number] for number in numbers]
