"""The dflash.* keys, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..gguf_file import GgufFile, Value

_Words: TypeAlias = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the file, its value, and what it means ('' for one that llama.cpp does not know)."""

    key: str
    value: Value
    meaning: str


def describe_keys(file: GgufFile) -> list[Key]:
    """Return every `dflash.*` key of a drafter in file order."""
    prefix = f"{file.architecture}."
    return [_describe(file, key, prefix) for key in file.fields if key.startswith(prefix)]


def _describe(file: GgufFile, key: str, prefix: str) -> Key:
    value = file.value(key)
    words = _WORDS.get(key.removeprefix(prefix))
    try:
        meaning = "" if words is None else words(value)
    except (TypeError, ValueError, IndexError, AttributeError):
        meaning = "of a type that is not expected here"
    return Key(key, plain(value), meaning)


def plain(value: Value) -> Value:
    """Return a value that JSON can hold: a float that is not finite as text."""
    if isinstance(value, list):
        return [item if not _odd(item) else str(item) for item in value]
    return str(value) if _odd(value) else value


def _odd(value: Value) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _fixed(text: str) -> _Words:
    return lambda _: text


def _taps(value: Any) -> str:
    outputs = ", ".join(str(tap - 1) for tap in value)
    return f"reads the outputs of the target's layers {outputs} (counted from 0)"


def _pattern(value: Any) -> str:
    slides = [str(index) for index, flag in enumerate(value) if flag]
    return f"layers with the window: {', '.join(slides) or 'none'}"


def _sections(value: Any) -> str:
    return f"the target's positions have parts; of a head {2 * value[0]} values turn with the first part"


def _causal(value: Any) -> str:
    return f"every layer is {'causal' if value else 'bidirectional'} inside the block"


def _anchor(value: Any) -> str:
    if value:
        return "a token is drafted at the block's first position too"
    return "the block's first position holds a known token, nothing is drafted there"


_WORDS: Mapping[str, _Words] = {
    "block_count": lambda value: f"{value} layers",
    "context_length": lambda value: f"trained for up to {value:,} tokens",
    "embedding_length": _fixed("hidden size, the target's too"),
    "feed_forward_length": _fixed("inner size of the feed-forward part"),
    "attention.head_count": _fixed("attention heads"),
    "attention.head_count_kv": _fixed("heads of keys and values"),
    "attention.key_length": _fixed("size of a head's keys"),
    "attention.value_length": _fixed("size of a head's values"),
    "attention.layer_norm_rms_epsilon": _fixed("epsilon of the norms"),
    "attention.sliding_window": lambda value: f"sliding layers see the last {value:,} tokens",
    "attention.sliding_window_pattern": _pattern,
    "attention.causal": _causal,
    "attention.scale": _fixed("scale of the attention scores, instead of 1 / sqrt(head size)"),
    "attention.value_scale": _fixed("factor on the attention's result"),
    "hidden_activation": lambda value: f"feed-forward activation {value}",
    "block_size": lambda value: f"trained on blocks of {value:d} positions",
    "target_layers": _taps,
    "rope.freq_base": _fixed("base of the rotary embedding"),
    "rope.freq_base_swa": _fixed("the same for sliding layers; llama.cpp takes the other one"),
    "rope.dimension_count": lambda value: f"only {value} values of a head rotate",
    "rope.dimension_sections": _sections,
    "rope.scaling.type": lambda value: f"contexts are stretched by {value}",
    "rope.scaling.factor": lambda value: f"stretched by {value:g}",
    "rope.scaling.original_context_length": lambda value: f"context before stretching: {value:,}",
    "rope.scaling.yarn_ext_factor": _fixed("yarn's extrapolation"),
    "rope.scaling.yarn_attn_factor": _fixed("yarn's factor on the scores"),
    "rope.scaling.yarn_beta_fast": _fixed("yarn's fast limit"),
    "rope.scaling.yarn_beta_slow": _fixed("yarn's slow limit"),
    "embedding_scale": _fixed("factor on the embeddings"),
    "logit_scale": _fixed("factor on the logits, which only DFlash2's graph applies"),
    "final_logit_softcapping": _fixed(
        "soft limit of the logits, which only DFlash2's graph applies"
    ),
    "conv_kernel_size": lambda value: f"convolutions over {value} positions",
    "conv_group_size": lambda value: f"convolution kernels shared by {value} channels",
    "selector_rank": _fixed("rank of the candidate selector"),
    "selector_top_k": lambda value: f"the selector chooses among {value} candidates",
    "sample_from_anchor": _anchor,
    "has_confidence_head": lambda value: f"has {'a' if value else 'no'} confidence head",
}
