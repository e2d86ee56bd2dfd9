"""What is missing in a drafter's GGUF, or strange about it, a line for each."""

from __future__ import annotations

from collections.abc import Iterator

from ..draft_family import read_layout
from ..draft_head import head_fault
from ..draft_layers import Layer
from ..errors import ModelError
from ..gguf_file import GgufFile
from ..pair import FORKS, NEEDED_KEYS, WINDOW_KEYS

_WHOLE = frozenset({"fc.weight", "enc.output_norm.weight", "output_norm.weight"})
_WHOLE_OPTIONAL = frozenset(
    {"token_embd.weight", "output.weight", "d2t", "fc.scale", "conf_proj.weight", "conf_proj.bias"}
    | {"markov_w1.weight", "markov_w2.weight", "markov_w2.scale"}
    | {"selector_predecessor.weight", "selector_successor.weight", "selector_hidden.weight"}
)
_IN_LAYER = frozenset(
    f"{name}.weight"
    for name in (
        *("attn_norm", "attn_q", "attn_k", "attn_output", "attn_q_norm", "attn_k_norm"),
        *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"),
    )
)
_IN_LAYER_OPTIONAL = frozenset(
    {"attn_conv_base", "ffn_conv_base"}
    | {f"{name}.weight" for name in ("attn_v", "attn_sinks", "attn_conv_proj", "ffn_conv_proj")}
    | {f"{name}.weight" for name in ("attn_post_norm", "post_attention_norm", "post_ffw_norm")}
    | {"layer_output_scale.weight", "rope_freqs.weight"}
)


def find_oddities(file: GgufFile, layers: list[Layer], *, trained_known: bool) -> list[str]:
    """Return what a person should know before relying on the file."""
    architecture = file.architecture
    if architecture in FORKS:
        text = (
            f"the architecture '{architecture}' is a fork's format, which mainline llama.cpp and dflash-gguf do "
            "not read: convert the drafter's checkpoint with 'dflash-gguf convert'"
        )
        return [text]
    if architecture != "dflash":
        return [f"the architecture '{architecture}' is not a drafter's: this may be a target"]
    return [
        *_missing_keys(file),
        *_layout(file),
        *_tensors(file, len(layers)),
        *_masks(layers, trained_known=trained_known),
        *_values(file),
        *_origin(file),
    ]


def _missing_keys(file: GgufFile) -> Iterator[str]:
    half = any(key in file.fields for key in WINDOW_KEYS)
    for key in (*NEEDED_KEYS, *(WINDOW_KEYS if half else ())):
        if key not in file.fields:
            yield f"the key {key} is missing: the file was made by an older tool; convert it again"
    for key in ("dflash.attention.key_length", "dflash.attention.value_length"):
        if key not in file.fields:
            yield f"the key {key} is missing: llama.cpp takes hidden size / heads"


def _layout(file: GgufFile) -> Iterator[str]:
    try:
        read_layout(file)
    except ModelError as error:
        yield str(error).removeprefix(f"{file.path}: ")


def _tensors(file: GgufFile, count: int) -> Iterator[str]:
    names = set(file.tensors)
    needed = _WHOLE | {f"blk.{index}.{name}" for index in range(count) for name in _IN_LAYER}
    allowed = needed | _WHOLE_OPTIONAL
    allowed |= {f"blk.{index}.{name}" for index in range(count) for name in _IN_LAYER_OPTIONAL}
    if missing := sorted(needed - names):
        yield f"{len(missing)} tensors are missing, such as {missing[0]}: llama.cpp will not load it"
    if unknown := sorted(names - allowed):
        yield f"{len(unknown)} tensors are unknown, such as {unknown[0]}: llama.cpp will not load it"
    if "tokenizer.ggml.tokens" in file.fields and (fault := head_fault(file)) is not None:
        yield fault
    if "token_embd.weight" in names and "output.weight" not in names:
        yield "it has its own embeddings and no head: llama.cpp takes the embeddings for the head too"


def _masks(layers: list[Layer], *, trained_known: bool) -> Iterator[str]:
    apart = [layer for layer in layers if layer.trained_causal != layer.llama_cpp_causal]
    if not apart:
        return
    listed = ", ".join(str(layer.index) for layer in apart)
    trained = "causal" if apart[0].trained_causal else "bidirectional"
    by = "" if trained_known else ", by the reference's rule for sliding layers,"
    yield (
        f"layers {listed} were{by} trained {trained} inside the block: dflash-gguf runs them so, llama.cpp's own "
        "tools have one mask for all layers and draft somewhat worse"
    )


def _values(file: GgufFile) -> Iterator[str]:
    rotated = file.integer("dflash.rope.dimension_count", 0)
    head = file.integer("dflash.attention.key_length", 0)
    if 0 < rotated < head:
        yield (
            f"only {rotated} of {head} values of a head rotate: right for MiMo, but in a Qwen3-style drafter a "
            "slip of the converter, and drafts are then poor"
        )
    mask = file.integer("tokenizer.ggml.mask_token_id", 0)
    vocabulary = (
        file.count("tokenizer.ggml.tokens") if "tokenizer.ggml.tokens" in file.fields else 0
    )
    if vocabulary and mask >= vocabulary:
        yield f"the mask token {mask} is outside the vocabulary of {vocabulary}"
    if any(info.type.name == "F16" for info in file.tensors.values()):
        yield "it has f16 tensors, whose values end at 65504: if drafts are never right, try a bf16 file"


def _origin(file: GgufFile) -> Iterator[str]:
    if "dflash_gguf.version" not in file.fields:
        yield "it was made by another converter than dflash-gguf, which may not have checked it"
