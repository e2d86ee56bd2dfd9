"""Which tensors a drafter has: name in the checkpoint, name in the GGUF, and shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .config import DraftConfig

# names that mean the same tensor, by what they end with
_SINKS = ("attention_sink_bias", "learnable_sink_param", "sinks")
_CODEBOOKS = ("predecessor_codebook", "successor_codebook")


@dataclass(frozen=True, slots=True)
class Expected:
    """A tensor: `source` without prefix, `shape` rows first; `rotated` with the rows of a head."""

    source: str
    name: str
    shape: tuple[int, ...]
    required: bool = True
    rotated: bool = False


def canonical_name(name: str) -> str:
    """Return a checkpoint's tensor name without the prefix `model.` and in the spelling used here."""
    bare = name.removeprefix("model.")
    stem = bare.removesuffix(".weight")
    if stem.endswith(_CODEBOOKS):
        return f"{stem}.weight"
    if stem.endswith(_SINKS):
        return f"{stem.rpartition('.')[0]}.sinks"
    return bare


def expected_tensors(config: DraftConfig, markov_rank: int) -> Iterator[Expected]:
    """Yield every tensor such a drafter has or may have; `markov_rank` is only asked for in a DSpark."""
    hidden = config.hidden_size
    fused = len(config.target_layer_ids) * hidden
    yield Expected("fc.weight", "fc.weight", (hidden, fused))
    yield Expected("hidden_norm.weight", "enc.output_norm.weight", (hidden,))
    yield Expected("norm.weight", "output_norm.weight", (hidden,))
    embeddings = (config.vocab_size, hidden)
    yield Expected("embed_tokens.weight", "token_embd.weight", embeddings, required=False)
    reduced = config.draft_vocab < config.vocab_size
    yield Expected(
        "lm_head.weight", "output.weight", (config.draft_vocab, hidden), required=reduced
    )
    if config.dspark is not None:
        yield from _dspark(config, markov_rank, reduced=reduced)
    if config.dflash2 is not None:
        yield from _selector(config)
    for index in range(config.n_layers):
        yield from _layer(config, index)


def _dspark(config: DraftConfig, rank: int, *, reduced: bool) -> Iterator[Expected]:
    yield Expected("markov_head.markov_w1.weight", "markov_w1.weight", (config.vocab_size, rank))
    yield Expected("markov_head.markov_w2.weight", "markov_w2.weight", (config.draft_vocab, rank))
    width = config.hidden_size + rank
    yield Expected("confidence_head.proj.weight", "conf_proj.weight", (1, width), required=False)
    yield Expected("confidence_head.proj.bias", "conf_proj.bias", (1,), required=False)
    yield Expected("d2t", "d2t", (config.draft_vocab,), required=reduced)


def _selector(config: DraftConfig) -> Iterator[Expected]:
    assert config.dflash2 is not None
    rank = config.dflash2.rank
    for source, name, shape in (
        ("predecessor_codebook", "predecessor", (config.vocab_size, rank)),
        ("successor_codebook", "successor", (config.vocab_size, rank)),
        ("hidden_projection", "hidden", (rank, config.hidden_size)),
    ):
        yield Expected(f"candidate_selector.{source}.weight", f"selector_{name}.weight", shape)


def _layer(config: DraftConfig, index: int) -> Iterator[Expected]:
    hidden, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    q, kv = config.n_heads * head, config.n_kv_heads * head
    here, there = f"layers.{index}", f"blk.{index}"
    for source, name, shape in (
        ("input_layernorm", "attn_norm", (hidden,)),
        ("self_attn.q_proj", "attn_q", (q, hidden)),
        ("self_attn.k_proj", "attn_k", (kv, hidden)),
        ("self_attn.v_proj", "attn_v", (kv, hidden)),
        ("self_attn.o_proj", "attn_output", (hidden, q)),
        ("self_attn.q_norm", "attn_q_norm", (head,)),
        ("self_attn.k_norm", "attn_k_norm", (head,)),
        ("post_attention_layernorm", "ffn_norm", (hidden,)),
        ("mlp.gate_proj", "ffn_gate", (inner, hidden)),
        ("mlp.up_proj", "ffn_up", (inner, hidden)),
        ("mlp.down_proj", "ffn_down", (hidden, inner)),
    ):
        rotated = name in {"attn_q", "attn_k", "attn_q_norm", "attn_k_norm"}
        yield Expected(f"{here}.{source}.weight", f"{there}.{name}.weight", shape, rotated=rotated)
    yield Expected(
        f"{here}.self_attn.sinks", f"{there}.attn_sinks.weight", (config.n_heads,), required=False
    )
    if config.dflash2 is not None:
        yield from _convolutions(config, here, there)


def _convolutions(config: DraftConfig, here: str, there: str) -> Iterator[Expected]:
    assert config.dflash2 is not None
    kernel, hidden = config.dflash2.kernel_size, config.hidden_size
    projected = 2 * kernel * (hidden // config.dflash2.group_size)
    for source, name in (("attention_conv", "attn_conv"), ("mlp_conv", "ffn_conv")):
        # one kernel before and one behind
        stem = f"{there}.{name}"
        yield Expected(f"{here}.{source}.base_kernel", f"{stem}_base", (2, kernel, hidden))
        shape = (projected, hidden)
        yield Expected(f"{here}.{source}.kernel_projection.weight", f"{stem}_proj.weight", shape)
