"""From a drafter's config and its target to the key/values of the GGUF."""

from __future__ import annotations

from collections.abc import Collection
from importlib import metadata

from .config import DraftConfig
from .fields import Field, boolean, boolean_array, f32, i32_array, string, u32
from .gguf_package import gguf_package
from .rope import Rope
from .target import Target

ARCHITECTURE = "dflash"
_QUANTIZATION_VERSION = 2  # ggml's GGML_QNT_VERSION


def describe_model(
    config: DraftConfig, target: Target, tensors: Collection[str]
) -> dict[str, Field]:
    """Return the dflash.* keys, with the exact types llama.cpp's loader asks for, and our own two.

    `tensors` are the names in the GGUF.
    `dflash_gguf.layer_causal` keeps what the architecture has no key for: which layers are causal inside
    the block. llama.cpp ignores keys it does not know.
    """
    fields: dict[str, Field | None] = {
        "block_count": u32(config.n_layers),
        "context_length": u32(config.context_length),
        "embedding_length": u32(config.hidden_size),
        "feed_forward_length": u32(config.intermediate_size),
        "attention.head_count": u32(config.n_heads),
        "attention.head_count_kv": u32(config.n_kv_heads),
        "attention.key_length": u32(config.head_dim),
        "attention.value_length": u32(config.head_dim),
        "attention.layer_norm_rms_epsilon": f32(config.rms_norm_eps),
        "hidden_activation": None if config.hidden_act == "silu" else string(config.hidden_act),
        "block_size": u32(config.block_size),
        # llama.cpp reads a layer's input, the config counts outputs
        "target_layers": i32_array([tap + 1 for tap in config.target_layer_ids]),
        "embedding_scale": _optional(config.embedding_scale),
        "logit_scale": _optional(config.logit_scale),
        "final_logit_softcapping": _optional(config.logit_softcap),
        "attention.value_scale": _optional(config.value_scale),
        **_attention(config),
        **_rope(config.rope),
        **_rotation(config, target),
        **_variant(config, tensors),
    }
    named = {f"{ARCHITECTURE}.{key}": field for key, field in fields.items() if field is not None}
    named["dflash_gguf.layer_causal"] = boolean_array(
        [layer.causal for layer in config.attention.layers]
    )
    named["dflash_gguf.version"] = string(_version())
    return named


def describe_file(name: str, parameters: int) -> dict[str, Field]:
    """Return the general.* keys that all output files have."""
    gguf = gguf_package()
    return {
        "general.architecture": string(ARCHITECTURE),
        "general.type": string("model"),
        "general.name": string(name),
        "general.size_label": string(gguf.size_label(parameters, 0, 0, 0)),
    }


def describe_type(file_type: int) -> dict[str, Field]:
    """Return the general.* keys that depend on an output file's type."""
    return {
        "general.quantization_version": u32(_QUANTIZATION_VERSION),
        "general.file_type": u32(file_type),
    }


def _attention(config: DraftConfig) -> dict[str, Field | None]:
    attention = config.attention
    windows = [layer.window for layer in attention.layers]
    window = max((width for width in windows if width), default=None)
    return {
        "attention.causal": None if attention.causal is None else boolean(attention.causal),
        "attention.sliding_window": None if window is None else u32(window),
        # the loader refuses a window without it
        "attention.sliding_window_pattern": (
            None if window is None else boolean_array([width is not None for width in windows])
        ),
    }


def _rope(rope: Rope) -> dict[str, Field | None]:
    fields: dict[str, Field | None] = {
        "rope.freq_base": f32(rope.base),
        "rope.freq_base_swa": _optional(rope.sliding_base),
    }
    if rope.linear_factor is not None:
        fields["rope.scaling.type"] = string("linear")
        fields["rope.scaling.factor"] = f32(rope.linear_factor)
    if rope.yarn is not None:
        yarn = rope.yarn
        fields["rope.scaling.type"] = string("yarn")
        fields["rope.scaling.factor"] = f32(yarn.factor)
        fields["rope.scaling.original_context_length"] = u32(yarn.original_context)
        fields["rope.scaling.yarn_ext_factor"] = _optional(yarn.extrapolation)
        fields["rope.scaling.yarn_attn_factor"] = _optional(yarn.attention)
        fields["rope.scaling.yarn_beta_fast"] = _optional(yarn.beta_fast)
        fields["rope.scaling.yarn_beta_slow"] = _optional(yarn.beta_slow)
    return fields


def _rotation(config: DraftConfig, target: Target) -> dict[str, Field | None]:
    part = config.rotary_part
    return {
        "rope.dimension_count": None if part is None else u32(int(config.head_dim * part)),
        # a drafter of an M-RoPE target takes the temporal position alone
        "rope.dimension_sections": (
            i32_array([config.head_dim // 2, 0, 0, 0]) if target.uses_mrope else None
        ),
    }


def _variant(config: DraftConfig, tensors: Collection[str]) -> dict[str, Field | None]:
    if config.dflash2 is not None:
        return {
            "conv_kernel_size": u32(config.dflash2.kernel_size),
            "conv_group_size": u32(config.dflash2.group_size),
            "selector_rank": u32(config.dflash2.rank),
            "selector_top_k": u32(config.dflash2.top_k),
        }
    if config.dspark is not None:
        return {
            "sample_from_anchor": boolean(config.dspark.sample_from_anchor),
            "has_confidence_head": boolean("conf_proj.weight" in tensors),
        }
    return {}


def _optional(value: float | None) -> Field | None:
    return None if value is None else f32(value)


def _version() -> str:
    try:
        return metadata.version("dflash-gguf")
    except metadata.PackageNotFoundError:
        return "0+unknown"
