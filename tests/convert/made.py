"""Small made checkpoints and targets, the same bytes everywhere, without torch."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

VOCAB = 320
MASK = 301
EOS = 300
TARGET_LAYERS = 8
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}{% endfor %}"

Weights = dict[str, tuple[str, tuple[int, ...], bytes]]


def make_config(**changes: Any) -> dict[str, Any]:
    """A small drafter's config in the nested spelling; `changes` replace keys, None removes one."""
    config: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCAB,
        "max_position_embeddings": 1024,
        "rope_theta": 10000000.0,
        "block_size": 16,
        "num_target_layers": TARGET_LAYERS,
        "attention_bias": False,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [1, 4]},
    }
    config.update(changes)
    return {key: value for key, value in config.items() if value is not None}


def make_values(name: str, count: int, scale: float = 0.2) -> np.ndarray[Any, np.dtype[np.float32]]:
    """`count` f32 values in about +-scale/2 that depend on `name` alone."""
    raw = np.frombuffer(hashlib.shake_128(name.encode()).digest(2 * count), dtype="<u2")
    return ((raw.astype(np.float64) / 65535.0 - 0.5) * scale).astype(np.float32)


def to_bf16(values: np.ndarray[Any, np.dtype[np.float32]]) -> bytes:
    """The upper halves of f32 values: bf16, rounded towards zero."""
    return (values.view(np.uint32) >> 16).astype("<u2").tobytes()


def pack(values: np.ndarray[Any, np.dtype[np.float32]], dtype: str) -> bytes:
    """Values as a checkpoint of type BF16, F16 or F32 holds them."""
    if dtype == "BF16":
        return to_bf16(values)
    return values.astype("<f2" if dtype == "F16" else "<f4").tobytes()


def shapes_of(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors such a drafter's checkpoint holds, written down apart from the converter."""
    config = {**config, **config.get("transformer_layer_config", {})}
    d, ffn, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    nested = config.get("dflash_config", {})
    taps = nested.get("target_layer_ids") or config.get("target_layer_ids") or [0, 0]
    sinks = config.get("sinks")
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (d, len(taps) * d),
        "hidden_norm.weight": (d,),
        "norm.weight": (d,),
    }
    for index in range(config["num_hidden_layers"]):
        layer = f"layers.{index}."
        shapes[layer + "input_layernorm.weight"] = (d,)
        shapes[layer + "post_attention_layernorm.weight"] = (d,)
        shapes[layer + "self_attn.q_proj.weight"] = (q, d)
        shapes[layer + "self_attn.k_proj.weight"] = (kv, d)
        shapes[layer + "self_attn.v_proj.weight"] = (kv, d)
        shapes[layer + "self_attn.o_proj.weight"] = (d, q)
        shapes[layer + "self_attn.q_norm.weight"] = (head,)
        shapes[layer + "self_attn.k_norm.weight"] = (head,)
        shapes[layer + "mlp.gate_proj.weight"] = (ffn, d)
        shapes[layer + "mlp.up_proj.weight"] = (ffn, d)
        shapes[layer + "mlp.down_proj.weight"] = (d, ffn)
        if sinks:
            shapes[f"{layer}self_attn.{sinks}"] = (config["num_attention_heads"],)
        if "conv_kernel_size" in nested:
            kernel, groups = nested["conv_kernel_size"], d // nested["conv_group_size"]
            for conv in ("attention_conv", "mlp_conv"):
                shapes[f"{layer}{conv}.base_kernel"] = (2, kernel, d)
                shapes[f"{layer}{conv}.kernel_projection.weight"] = (2 * kernel * groups, d)
    return shapes | _selector_shapes(config) | _dspark_shapes(config)


def _selector_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    rank, vocab = config.get("dflash_config", {}).get("selector_rank"), config["vocab_size"]
    if rank is None:
        return {}
    return {
        "candidate_selector.predecessor_codebook": (vocab, rank),
        "candidate_selector.successor_codebook.weight": (vocab, rank),
        "candidate_selector.hidden_projection.weight": (rank, config["hidden_size"]),
    }


def _dspark_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    rank, d = config.get("markov_rank"), config["hidden_size"]
    if rank is None:
        return {}
    vocab = config["vocab_size"]
    draft = config.get("draft_vocab_size", vocab)
    shapes: dict[str, tuple[int, ...]] = {
        "markov_head.markov_w1.weight": (vocab, rank),
        "markov_head.markov_w2.weight": (draft, rank),
        "confidence_head.proj.weight": (1, d + rank),
        "confidence_head.proj.bias": (1,),
    }
    return shapes | ({"lm_head.weight": (draft, d)} if draft < vocab else {})


def make_weights(config: Mapping[str, Any], dtype: str = "BF16", prefix: str = "") -> Weights:
    """A checkpoint's tensors as (dtype, shape, bytes) by name."""
    return {
        prefix + name: (dtype, shape, pack(make_values(name, math.prod(shape)), dtype))
        for name, shape in shapes_of(config).items()
    }


def make_d2t(draft: int = 100) -> Weights:
    """The tables of a reduced vocabulary of every third token: d2t relative, t2d its inverse."""
    ids = np.arange(draft, dtype="<i8") * 3
    known = np.isin(np.arange(VOCAB), ids)
    return {
        "d2t": ("I64", (draft,), (ids - np.arange(draft)).astype("<i8").tobytes()),
        "t2d": ("BOOL", (VOCAB,), known.tobytes()),
    }


def make_tables(hidden: int, dtype: str) -> Weights:
    """A target's embeddings and head."""
    shape = (VOCAB, hidden)
    return {
        name: (dtype, shape, pack(make_values(f"target {name}", math.prod(shape)), dtype))
        for name in ("token_embd.weight", "output.weight")
    }


def make_mask(path: Path, hidden: int, **changes: Any) -> Path:
    """Write a mask_embedding.pt; needs torch."""
    import torch

    parts = {"mask_token_id": MASK, "embedding": torch.from_numpy(make_values("mask row", hidden))}
    torch.save(parts | changes, path)
    return path


def make_imatrix(path: Path, draft: Path, *, legacy: bool = False, calls: int = 7) -> Path:
    """Write an importance matrix for the matrices of a drafter's GGUF, as llama-imatrix would."""
    matrices = [
        tensor
        for tensor in gguf.GGUFReader(draft).tensors
        if len(tensor.shape) == 2 and "attn_k" not in tensor.name
    ]
    sums = {
        str(tensor.name): np.abs(make_values(f"imatrix {tensor.name}", int(tensor.shape[0])))
        * calls
        for tensor in matrices
    }
    if legacy:
        parts = [struct.pack("<i", len(sums))]
        for name, values in sums.items():
            raw = name.encode()
            parts += [struct.pack("<i", len(raw)), raw, struct.pack("<ii", calls, len(values))]
            parts.append(values.astype("<f4").tobytes())
        parts += [struct.pack("<ii", 3, 4), b"text"]
        path.write_bytes(b"".join(parts))
        return path
    writer = gguf.GGUFWriter(path, "imatrix")
    writer.add_array("imatrix.datasets", ["text"])
    writer.add_uint32("imatrix.chunk_count", 3)
    writer.add_uint32("imatrix.chunk_size", 512)
    for name, values in sums.items():
        writer.add_tensor(f"{name}.in_sum2", values.reshape(1, -1))
        writer.add_tensor(f"{name}.counts", np.full((1, 1), calls, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_safetensors(path: Path, weights: Weights) -> Path:
    """Write a safetensors file by hand."""
    header: dict[str, Any] = {}
    offset = 0
    for name, (dtype, shape, data) in weights.items():
        end = offset + len(data)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(data for _, _, data in weights.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def make_checkpoint(
    folder: Path, config: Mapping[str, Any], *, dtype: str = "BF16", weights: Weights | None = None
) -> Path:
    """Write config.json and model.safetensors into `folder`; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", weights or make_weights(config, dtype))
    return folder


def make_shards(
    folder: Path, config: Mapping[str, Any], *, dtype: str = "BF16", stem: str = "model"
) -> Path:
    """Write a two-part checkpoint with its index; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    weights = list(make_weights(config, dtype, prefix="model.").items())
    mapping: dict[str, str] = {}
    for part, items in enumerate((weights[:9], weights[9:]), 1):
        name = f"{stem}-0000{part}-of-00002.safetensors"
        write_safetensors(folder / name, dict(items))
        mapping |= {tensor: name for tensor, _ in items}
    index = {"metadata": {"total_size": 0}, "weight_map": mapping}
    (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index))
    return folder


def byte_tokens() -> list[str]:
    """The 256 byte tokens of a byte-level BPE, in its order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + index) for index in range(len(extra))]


def vocabulary() -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level BPE with specials from 300 on; no mask token among them."""
    tokens = byte_tokens()
    letters = "etaoinshrdlu"
    merges = [f"{a} {b}" for a in letters for b in letters][: EOS - len(tokens)]
    tokens += [merge.replace(" ", "") for merge in merges]
    tokens += [f"<|special_{index}|>" for index in range(VOCAB - EOS)]
    return tokens, merges


def make_target(
    path: Path,
    *,
    architecture: str = "qwen35",
    hidden: int = 256,
    layers: int = TARGET_LAYERS,
    tokens: Sequence[str] | None = None,
    tokenizer: str = "gpt2",
    tensors: Weights | None = None,
    **keys: int,
) -> Path:
    """Write a target GGUF as mainline's converter would describe it; without tensors if none are given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(layers)
    writer.add_embedding_length(hidden)
    own, merges = vocabulary()
    names = list(tokens) if tokens is not None else own
    writer.add_tokenizer_model(tokenizer)
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(names)
    writer.add_token_types([3 if index >= EOS else 1 for index in range(len(names))])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(EOS)
    writer.add_chat_template(CHAT_TEMPLATE)
    for key, value in keys.items():
        writer.add_uint32(key.replace("__", "."), value)
    for name, (dtype, shape, data) in (tensors or {}).items():
        size = len(data) // math.prod(shape[:-1])
        raw = np.frombuffer(data, np.uint8).reshape(*shape[:-1], size)
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[dtype])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
