"""From a drafter's raw config.json to typed, checked values.

Read raw: going through transformers would fill in defaults and null the windows. What is missing is an error
that names the key, not a default; but hidden_act is silu, as in the reference and in llama.cpp, and head_dim
the hidden size by head, which the tensors' shapes then bear out or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .families import DFLASH2, DSPARK, Family, find_family
from .files import read_json
from .keys import MAX_COUNT, Keys
from .layers import Attention, read_attention
from .rope import Rope, read_rope
from .variants import Dflash2, Dspark, read_dflash2, read_dspark

_MAX_LAYERS = 512  # llama.cpp's LLAMA_MAX_LAYERS
_MAX_WIDTH = 1 << 20
_ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh")


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a mix of types may depend on, by llama.cpp's names."""

    n_embd: int
    n_ff: int
    n_layer: int
    n_head: int
    n_head_kv: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """A drafter's config. `target_layer_ids` are 0-based layers whose output is used.

    `rotary_part` is the rotated fraction of a head that goes into the file (None: all of it);
    `interleaved_rope` tells that neighbours rotate together in the checkpoint, not the halves of a head.
    `own_embeddings` is false where the config says that an embedding table in the checkpoint is to be
    left out; `tied_head` tells that a table of its own is its output head too.
    """

    family: Family
    hidden_size: int
    intermediate_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    vocab_size: int
    context_length: int
    hidden_act: str
    rope: Rope
    rotary_part: float | None
    interleaved_rope: bool
    attention: Attention
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int | None
    embedding_scale: float | None
    logit_scale: float | None
    logit_softcap: float | None
    value_scale: float | None
    own_embeddings: bool
    tied_head: bool
    dflash2: Dflash2 | None
    dspark: Dspark | None
    warnings: tuple[str, ...]

    @property
    def sizes(self) -> Sizes:
        """Its sizes."""
        return Sizes(
            self.hidden_size,
            self.intermediate_size,
            self.n_layers,
            self.n_heads,
            self.n_kv_heads,
            self.head_dim,
        )

    @property
    def draft_vocab(self) -> int:
        """Tokens its own output head knows."""
        return self.vocab_size if self.dspark is None else self.dspark.draft_vocab


def read_config(path: Path) -> DraftConfig:
    """Read and check config.json. Raises ConvertError, naming the key and both values."""
    return parse_config(read_json(path), str(path))


def parse_config(raw: Mapping[str, Any], where: str) -> DraftConfig:
    """Check a raw config whose keys are flat or nested; `where` names it in errors."""
    merged = _merge_speculators(raw, where)
    family = find_family(merged, where)
    keys = Keys(merged, where)
    _refuse_what_gguf_cannot_hold(keys)
    heads = keys.count("num_attention_heads", keys.top("num_attention_heads"), limit=_MAX_WIDTH)
    hidden = keys.count("hidden_size", keys.top("hidden_size"), limit=_MAX_WIDTH)
    layers = keys.count("num_hidden_layers", keys.top("num_hidden_layers"), limit=_MAX_LAYERS + 1)
    head_dim = _head_dim(keys, hidden, heads)
    rope = read_rope(keys)
    vocab = keys.count("vocab_size", keys.top("vocab_size"))
    return DraftConfig(
        family=family,
        hidden_size=hidden,
        intermediate_size=keys.count(
            "intermediate_size", keys.top("intermediate_size"), limit=_MAX_WIDTH
        ),
        n_layers=layers,
        n_heads=heads,
        n_kv_heads=_kv_heads(keys, heads),
        head_dim=head_dim,
        rms_norm_eps=_epsilon(keys),
        vocab_size=vocab,
        context_length=keys.count("max_position_embeddings", keys.top("max_position_embeddings")),
        hidden_act=_activation(keys),
        rope=rope,
        rotary_part=_rotary_part(keys, rope, head_dim),
        interleaved_rope=_interleaved(keys, rope),
        attention=read_attention(keys, layers),
        block_size=keys.count("block_size", keys.either("block_size"), least=2, limit=1 << 16),
        mask_token_id=_mask(keys, vocab),
        target_layer_ids=_taps(keys),
        num_target_layers=_optional_count(keys, "num_target_layers"),
        embedding_scale=_scale(keys, "input_embedding_scale"),
        logit_scale=_scale(keys, "output_multiplier"),
        logit_softcap=_softcap(keys),
        value_scale=_value_scale(keys),
        own_embeddings=keys.flag("has_embed_tokens", keys.top("has_embed_tokens")) is not False,
        tied_head=bool(keys.flag("tie_word_embeddings", keys.top("tie_word_embeddings"))),
        dflash2=read_dflash2(keys, hidden) if family is DFLASH2 else None,
        dspark=read_dspark(keys, raw, vocab) if family is DSPARK else None,
        warnings=tuple(keys.warnings),
    )


def _merge_speculators(raw: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    inner = raw.get("transformer_layer_config")
    if inner is None:
        return raw
    if not isinstance(inner, dict):
        Keys(raw, where).fail("transformer_layer_config", inner, "an object")
    # the outer architectures name the drafter, the inner ones its layer
    return {**raw, **{key: value for key, value in inner.items() if key != "architectures"}}


def _refuse_what_gguf_cannot_hold(keys: Keys) -> None:
    for key in ("quantization_config", "compression_config"):
        if keys.top(key):
            keys.fail(key, "set", "an unquantised checkpoint: give the bf16 one this was made from")
    if keys.flag("attention_bias", keys.top("attention_bias")):
        keys.fail(
            "attention_bias", value=True, expected="false: a DFlash GGUF has no place for biases"
        )


def _epsilon(keys: Keys) -> float:
    own = keys.top("rms_norm_eps")
    # LFM2's spelling
    if own is None and keys.top("norm_eps") is not None:
        return keys.number("norm_eps", keys.top("norm_eps"))
    return keys.number("rms_norm_eps", own)


def _kv_heads(keys: Keys, heads: int) -> int:
    count = keys.count("num_key_value_heads", keys.top("num_key_value_heads"), limit=_MAX_WIDTH)
    if heads % count:
        keys.fail("num_key_value_heads", count, f"a divisor of num_attention_heads = {heads}")
    return count


def _head_dim(keys: Keys, hidden: int, heads: int) -> int:
    declared = keys.top("head_dim")
    if declared is None:
        if hidden % heads:
            keys.missing("head_dim")
        declared = hidden // heads  # the tensors' shapes are held against it
    size = keys.count("head_dim", declared, limit=_MAX_WIDTH)
    if size % 2:
        keys.fail("head_dim", size, "an even number")
    return size


def _activation(keys: Keys) -> str:
    name = keys.top("hidden_act")
    name = "silu" if name is None else name
    if name not in _ACTIVATIONS:
        keys.fail("hidden_act", name, "silu, gelu or gelu_pytorch_tanh")
    if name == "gelu":
        keys.warnings.append("hidden_act is gelu; llama.cpp computes its tanh approximation")
    return str(name)


def _rotary_part(keys: Keys, rope: Rope, head_dim: int) -> float | None:
    if rope.partial is None or rope.partial == 1.0:
        return None
    if rope.partial > 1.0:
        keys.fail("partial_rotary_factor", rope.partial, "at most 1")
    # MiMo's drafters really rotate a part; the reference for Qwen3-style ones rotates the whole head
    if _is_mimo(keys):
        rotated = int(head_dim * rope.partial)
        if rotated < 2 or rotated % 2:
            expected = f"an even number of head_dim = {head_dim} values"
            keys.fail("partial_rotary_factor", rope.partial, expected)
        return rope.partial
    keys.warnings.append(
        f"partial_rotary_factor {rope.partial:g} is not written, so all {head_dim} dimensions of a head "
        "rotate, as in this drafter's reference (the key is often left over from the target's config)"
    )
    return None


def _interleaved(keys: Keys, rope: Rope) -> bool:
    if keys.flag("rope_is_neox_style", keys.top("rope_is_neox_style")) is not False:
        return False
    if _is_mimo(keys) and rope.partial not in (None, 1.0):
        keys.fail(
            "rope_is_neox_style", value=False, expected="true where only a part of a head rotates"
        )
    return True


def _is_mimo(keys: Keys) -> bool:
    return str(keys.top("model_type") or "").lower().startswith("mimo")


def _mask(keys: Keys, vocab: int) -> int:
    mask = keys.count("mask_token_id", keys.either("mask_token_id"), least=0)
    if mask >= vocab:
        keys.fail("mask_token_id", mask, f"below vocab_size = {vocab}")
    return mask


def _taps(keys: Keys) -> tuple[int, ...]:
    shifted = keys.top("aux_hidden_state_layer_ids")
    key = "target_layer_ids"
    taps = keys.either(key)
    offset = 0
    if taps is None and shifted is not None:
        key, taps, offset = "aux_hidden_state_layer_ids", shifted, 1
    if taps is None:
        keys.missing("target_layer_ids")
    if not isinstance(taps, list) or not taps:
        keys.fail(key, taps, "a list of layer numbers of the target")
    return tuple(keys.count(key, tap, least=offset, limit=MAX_COUNT - 1) - offset for tap in taps)


def _optional_count(keys: Keys, key: str) -> int | None:
    value = keys.top(key)
    return None if value is None else keys.count(key, value)


def _scale(keys: Keys, key: str) -> float | None:
    value = keys.either(key)
    return None if value is None else keys.number(key, value)


def _softcap(keys: Keys) -> float | None:
    value = keys.either("final_logit_softcapping")
    cap = None if value is None else keys.number("final_logit_softcapping", value, positive=False)
    return cap if cap and cap > 0 else None


def _value_scale(keys: Keys) -> float | None:
    value = keys.nested("attention_value_scale")
    return None if value is None else keys.number("attention_value_scale", value, positive=False)
