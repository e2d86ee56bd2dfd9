"""A random pair with a large vocabulary: a head's share of the work is as in a real one, the text is noise."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np

HIDDEN, FFN, HEADS, KV_HEADS, HEAD = 1024, 3072, 16, 8, 128
TARGET_LAYERS, DRAFT_LAYERS, BLOCK = 4, 5, 16
_SPECIALS = 64


def make_pair(folder: Path, vocab: int) -> tuple[Path, Path]:
    """Write a target GGUF and a drafter's checkpoint, both bf16; return their paths."""
    random = np.random.default_rng(0)
    target = folder / "target.gguf"
    writer = gguf.GGUFWriter(target, "qwen3")
    writer.add_block_count(TARGET_LAYERS)
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"t{index}" for index in range(vocab)])
    writer.add_token_types([1] * (vocab - _SPECIALS) + [3] * _SPECIALS)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(vocab - 1)
    names = {"token_embd.weight": (vocab, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for index in range(TARGET_LAYERS):
        names |= {f"blk.{index}.{name}.weight": shape for name, shape in _target_layer().items()}
    for name, shape in names.items():
        if len(shape) == 1:
            writer.add_tensor(name, np.ones(shape, np.float32))
        else:
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(name, _bf16(shape, random).view(np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target, _checkpoint(folder / "draft", vocab, random)


def _target_layer() -> dict[str, tuple[int, ...]]:
    query, key_value = HEADS * HEAD, KV_HEADS * HEAD
    return {
        "attn_norm": (HIDDEN,),
        "ffn_norm": (HIDDEN,),
        "attn_q_norm": (HEAD,),
        "attn_k_norm": (HEAD,),
        "attn_q": (query, HIDDEN),
        "attn_k": (key_value, HIDDEN),
        "attn_v": (key_value, HIDDEN),
        "attn_output": (HIDDEN, query),
        "ffn_gate": (FFN, HIDDEN),
        "ffn_up": (FFN, HIDDEN),
        "ffn_down": (HIDDEN, FFN),
    }


def _checkpoint(folder: Path, vocab: int, random: np.random.Generator) -> Path:
    folder.mkdir()
    config: dict[str, Any] = {
        "architectures": ["DFlashDraftModel"],
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": DRAFT_LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "rms_norm_eps": 1e-6,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        "rope_theta": 1e6,
        "block_size": BLOCK,
        "num_target_layers": TARGET_LAYERS,
        "dflash_config": {"mask_token_id": vocab - 2, "target_layer_ids": [0, 1, 2]},
    }
    (folder / "config.json").write_text(json.dumps(config))
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (HIDDEN, 3 * HIDDEN),
        "hidden_norm.weight": (HIDDEN,),
        "norm.weight": (HIDDEN,),
    }
    theirs = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        **{f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"},
        **{f"attn_{part}_norm": f"self_attn.{part}_norm" for part in "qk"},
        "attn_output": "self_attn.o_proj",
        **{f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")},
    }
    for index in range(DRAFT_LAYERS):
        layer = _target_layer().items()
        shapes |= {f"layers.{index}.{theirs[name]}.weight": shape for name, shape in layer}
    tensors = {name: _bf16(shape, random).tobytes() for name, shape in shapes.items()}
    header, offset = {}, 0
    for name, data in tensors.items():
        end = offset + len(data)
        header[name] = {"dtype": "BF16", "shape": shapes[name], "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(tensors.values())
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    return folder


def _bf16(
    shape: tuple[int, ...], random: np.random.Generator
) -> np.ndarray[Any, np.dtype[np.uint16]]:
    if len(shape) == 1:
        return np.full(shape, 0x3F80, np.uint16)  # 1.0
    values = random.standard_normal(shape, np.float32)
    values /= np.sqrt(np.float32(shape[-1]))
    return (values.view(np.uint32) >> 16).astype(np.uint16)
