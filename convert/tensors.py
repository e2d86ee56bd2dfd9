"""Which tensors a drafter has: checkpoint name, GGUF name and shape of each.

A tensor that is not expected stops the conversion: leaving it out would give a file that drafts fluently
and is hardly ever right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from .config import DraftConfig
from .faults import refuse
from .source import DTYPES, Checkpoint, SourceTensor

_IGNORED = (".rotary_emb.inv_freq",)  # computed from rope_theta

# what an unexpected tensor's name tells of the checkpoint
_HINTS = (
    (
        ("markov", "confidence_head", "d2t", "t2d"),
        "it belongs to a DSpark drafter, not converted yet",
    ),
    (("conv", "candidate_selector"), "it belongs to a DFlash2 drafter, not converted yet"),
    (("embed_tokens", "lm_head"), "a drafter with its own embeddings or head is not converted yet"),
    (("sink",), "attention sinks are not converted yet"),
    ((".bias",), "a DFlash GGUF has no place for biases"),
    (
        ("scale", "qweight", "packed", "zero"),
        "the checkpoint is quantised: give the bf16 one it was made from",
    ),
)


@dataclass(frozen=True, slots=True)
class DraftTensor:
    """A tensor on its way: `source` in the checkpoint, `name` in the GGUF.

    It has `rows` x `columns` values, rows 0 standing for a vector. Vectors and norms stay f32.
    """

    name: str
    source: SourceTensor
    rows: int
    columns: int

    @property
    def is_vector(self) -> bool:
        """Whether it has one dimension."""
        return self.rows == 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape as ggml orders it, row length first."""
        return (self.columns,) if self.is_vector else (self.columns, self.rows)


def match_tensors(config: DraftConfig, checkpoint: Checkpoint) -> list[DraftTensor]:
    """Pair the checkpoint's tensors with the expected ones, in llama.cpp's order (block number, then name).

    Raises ConvertError for one that is missing, unknown, of another shape or of a type not converted.
    """
    found = _without_prefix(checkpoint)
    expected = {name: (gguf, shape) for name, gguf, shape in expected_tensors(config)}
    for name, tensor in found.items():
        if name not in expected and not name.endswith(_IGNORED):
            _refuse(tensor)
    missing = [name for name in expected if name not in found]
    if missing:
        refuse(
            f"{checkpoint.origin}: {len(missing)} tensors are missing, such as {missing[0]}; "
            f"expected {len(expected)} for {config.n_layers} layers: get the checkpoint again"
        )
    matched = [_check(found[name], gguf, shape) for name, (gguf, shape) in expected.items()]
    return sorted(matched, key=lambda tensor: llama_order(tensor.name))


def llama_order(name: str) -> tuple[int, str]:
    """Sort key of a GGUF tensor name as llama.cpp orders them: by block number, then by name."""
    parts = name.split(".")
    in_block = parts[0] == "blk" and len(parts) > 1 and parts[1].isdecimal()
    return (int(parts[1]) if in_block else -1, name)


def expected_tensors(config: DraftConfig) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield (checkpoint name without prefix, GGUF name, shape rows first) of every tensor."""
    hidden, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    q, kv = config.n_heads * head, config.n_kv_heads * head
    yield "fc.weight", "fc.weight", (hidden, len(config.target_layer_ids) * hidden)
    yield "hidden_norm.weight", "enc.output_norm.weight", (hidden,)
    yield "norm.weight", "output_norm.weight", (hidden,)
    for index in range(config.n_layers):
        for name, gguf, shape in (
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
            yield f"layers.{index}.{name}.weight", f"blk.{index}.{gguf}.weight", shape


def _without_prefix(checkpoint: Checkpoint) -> dict[str, SourceTensor]:
    found: dict[str, SourceTensor] = {}
    for tensor in checkpoint.tensors.values():
        name = tensor.name.removeprefix("model.")
        if name in found:
            refuse(
                f"{checkpoint.origin}: {name} stands with and without the prefix 'model.'; "
                "expected one of them"
            )
        found[name] = tensor
    return found


def _check(tensor: SourceTensor, name: str, shape: tuple[int, ...]) -> DraftTensor:
    if tensor.dtype not in DTYPES:
        refuse(
            f"{tensor.path}: {tensor.name} has the type {tensor.dtype}, expected {', '.join(DTYPES)}; "
            "give the unquantised checkpoint"
        )
    if tensor.shape != shape:
        refuse(
            f"{tensor.path}: {tensor.name} has the shape {list(tensor.shape)}, expected {list(shape)} by "
            "config.json; the two do not belong together"
        )
    return DraftTensor(name, tensor, rows=shape[0] if len(shape) == 2 else 0, columns=shape[-1])


def _refuse(tensor: SourceTensor) -> NoReturn:
    hint = next(
        (text for parts, text in _HINTS if any(part in tensor.name for part in parts)),
        "it is no part of a DFlash drafter with the layers config.json tells",
    )
    refuse(f"{tensor.path}: unknown tensor {tensor.name}; {hint}")
