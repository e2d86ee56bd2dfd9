"""Random pairs, made on the fly in a second: a dense (Qwen3) or hybrid (Qwen3.5) target and a drafter.

Their text means nothing and their drafts are almost never right, which is what many tests want.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from dflash_gguf.convert import convert

from ..convert.made import byte_tokens, make_checkpoint, make_config, make_weights

HIDDEN, FFN, HEAD, HEADS, KV_HEADS, LAYERS = 64, 128, 32, 2, 1, 4
STATE, KEY_HEADS, VALUE_HEADS, KERNEL = 32, 2, 4, 4
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<mask>", "<think>", "</think>"]
VOCAB = 256 + len(SPECIALS)
IM_START, IM_END, MASK, THINK = 257, 258, 259, 260
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n"
    "{% endif %}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Files of a target and a drafter."""

    target: Path
    draft: Path


def make_pair(
    folder: Path, *, hybrid: bool, block: int = 8, seed: int = 0, experts: int = 0
) -> Pair:
    """Write a random pair in f32 into `folder`; the drafter goes through the converter."""
    target = make_target(folder / "target.gguf", hybrid=hybrid, seed=seed, experts=experts)
    config = small_config(block)
    source = make_checkpoint(folder / "draft", config, weights=make_weights(config, "F32"))
    (written,) = convert(source, target, outdir=folder, outtypes=["f32"])
    return Pair(target, written.path)


def small_config(block: int, **changes: Any) -> dict[str, Any]:
    """The config of a drafter for such a target; `changes` replace keys, None removes one."""
    small: dict[str, Any] = {
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "vocab_size": VOCAB,
        "block_size": block,
        "num_target_layers": LAYERS,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0, 2]},
    }
    return make_config(**{**small, **changes})


def make_target(path: Path, *, hybrid: bool, seed: int = 0, experts: int = 0) -> Path:
    """Write a random target that llama.cpp runs; a hybrid one with experts is Qwen3-Next, not Qwen3.5."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arch = ("qwen3next" if experts else "qwen35") if hybrid else "qwen3"
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(LAYERS)
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    if hybrid:
        writer.add_rope_dimension_count(HEAD // 2)
        if not experts:
            writer.add_rope_dimension_sections([3, 3, 2, 0])
        writer.add_ssm_conv_kernel(KERNEL)
        writer.add_ssm_state_size(STATE)
        writer.add_ssm_group_count(KEY_HEADS)
        writer.add_ssm_time_step_rank(VALUE_HEADS)
        writer.add_ssm_inner_size(VALUE_HEADS * STATE)
        writer.add_full_attention_interval(LAYERS)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(1)
        writer.add_expert_feed_forward_length(FFN)
        writer.add_expert_shared_feed_forward_length(FFN)
    _add_tokenizer(writer)
    random = np.random.default_rng(seed)
    for name, shape in _shapes(hybrid, experts).items():
        writer.add_tensor(name, _values(name, shape, random))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    control, own = gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(byte_tokens() + SPECIALS)
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [control] * 4 + [own] * 2)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(IM_END)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _shapes(hybrid: bool, experts: int) -> dict[str, tuple[int, ...]]:
    query, key_value = HEADS * HEAD, KV_HEADS * HEAD
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (VOCAB, HIDDEN),
        "output_norm.weight": (HIDDEN,),
        "output.weight": (VOCAB, HIDDEN),
    }
    for index in range(LAYERS):
        gated = 2 if hybrid else 1
        layer: dict[str, tuple[int, ...]] = {
            "attn_norm": (HIDDEN,),
            "post_attention_norm" if hybrid else "ffn_norm": (HIDDEN,),
            **(_experts(experts) if experts else _feed_forward()),
        }
        if hybrid and index != LAYERS - 1:
            inner, keys = VALUE_HEADS * STATE, KEY_HEADS * STATE
            layer |= {
                "attn_qkv": (2 * keys + inner, HIDDEN),
                "attn_gate": (inner, HIDDEN),
                "ssm_conv1d": (2 * keys + inner, KERNEL),
                **(
                    {"ssm_ba": (2 * VALUE_HEADS, HIDDEN)}
                    if experts
                    else {"ssm_alpha": (VALUE_HEADS, HIDDEN), "ssm_beta": (VALUE_HEADS, HIDDEN)}
                ),
                "ssm_norm": (STATE,),
                "ssm_out": (HIDDEN, inner),
            }
            shapes[f"blk.{index}.ssm_a"] = (VALUE_HEADS,)
            shapes[f"blk.{index}.ssm_dt.bias"] = (VALUE_HEADS,)
        else:
            layer |= {
                "attn_q": (gated * query, HIDDEN),
                "attn_k": (key_value, HIDDEN),
                "attn_v": (key_value, HIDDEN),
                "attn_output": (HIDDEN, query),
                "attn_q_norm": (HEAD,),
                "attn_k_norm": (HEAD,),
            }
        shapes |= {f"blk.{index}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


def _feed_forward(name: str = "") -> dict[str, tuple[int, ...]]:
    return {
        f"ffn_gate{name}": (FFN, HIDDEN),
        f"ffn_up{name}": (FFN, HIDDEN),
        f"ffn_down{name}": (HIDDEN, FFN),
    }


def _experts(count: int) -> dict[str, tuple[int, ...]]:
    each = {name: (count, *shape) for name, shape in _feed_forward("_exps").items()}
    router = {"ffn_gate_inp": (count, HIDDEN), "ffn_gate_inp_shexp": (HIDDEN,)}
    return router | each | _feed_forward("_shexp")


def _values(
    name: str, shape: tuple[int, ...], random: np.random.Generator
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    noise = random.standard_normal(shape).astype(np.float32)
    if name.endswith("ssm_a"):
        return -np.exp(noise)  # a decay
    if "norm" in name:
        return np.float32(1) + noise / np.float32(10)
    scale = 1.0 if name.startswith("token_embd") else 2 / np.sqrt(shape[-1])
    return (noise * scale).astype(np.float32)
