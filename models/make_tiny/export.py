"""Writes the two files of the pair: the target as a qwen35 GGUF, the drafter as a checkpoint.

llama.cpp's qwen35 graph wants some tensors in another form than transformers keeps them:
norm weights with their implied one added, the decay as -exp(A_log), the convolution
without its middle axis, and value heads of the delta net in "tiled" order (head h of every
key group, then head h + 1) where transformers keeps a key head's value heads together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import Qwen3_5TextConfig

from .chat import END, TEMPLATE
from .tokenizer import CONTROL, THINKING

ARCH = "qwen35"
TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "self_attn.q_proj.weight": "attn_q.weight",  # per head: query, then gate
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
}


def export_target(
    path: Path, state: dict[str, torch.Tensor], config: Qwen3_5TextConfig, tokenizer: Tokenizer
) -> None:
    """Writes the target: matrices in bf16, vectors and the small convolution in f32."""
    writer = gguf.GGUFWriter(path, ARCH)
    _write_settings(writer, config)
    _write_tokenizer(writer, tokenizer)
    for name, tensor in _tensors(state, config):
        if tensor.ndim == 1 or name.endswith("ssm_conv1d.weight"):
            writer.add_tensor(name, tensor.float().numpy())
        else:
            bits = tensor.to(torch.bfloat16).contiguous().view(torch.int16).numpy()
            writer.add_tensor(name, bits.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_settings(writer: gguf.GGUFWriter, config: Qwen3_5TextConfig) -> None:
    rope = config.rope_parameters
    value_width = config.linear_num_value_heads * config.linear_value_head_dim
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name("Tiny Qwen3.5")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(config.head_dim * rope["partial_rotary_factor"]))
    writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(value_width)
    writer.add_full_attention_interval(config.layer_types.index("full_attention") + 1)


def _write_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    kinds = dict.fromkeys(CONTROL, gguf.TokenType.CONTROL)
    kinds |= dict.fromkeys(THINKING, gguf.TokenType.USER_DEFINED)
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(ARCH)
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(t, gguf.TokenType.NORMAL) for t in tokens])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(tokenizer.token_to_id(END))
    writer.add_pad_token_id(tokenizer.token_to_id("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def _tensors(
    state: dict[str, torch.Tensor], config: Qwen3_5TextConfig
) -> Iterator[tuple[str, torch.Tensor]]:
    """GGUF names and tensors in llama.cpp's form; an unknown name is an error."""
    for name, weight in state.items():
        zero_centred = name.endswith("norm.weight") and "linear_attn" not in name
        tensor = weight.detach().float() + 1 if zero_centred else weight.detach()
        if name in TOP_NAMES:
            yield TOP_NAMES[name], tensor
            continue
        _, _, layer, part = name.split(".", 3)
        delta = part.startswith("linear_attn.")
        done = _delta_net(part, tensor, config) if delta else tensor
        yield f"blk.{layer}.{LAYER_NAMES[part]}", done


def _delta_net(part: str, tensor: torch.Tensor, config: Qwen3_5TextConfig) -> torch.Tensor:
    """One tensor of a gated delta net with its value heads in tiled order."""
    key_heads, size = config.linear_num_key_heads, config.linear_value_head_dim
    keys = 2 * key_heads * config.linear_key_head_dim  # rows of query and key before the values

    def tile(x: torch.Tensor, width: int) -> torch.Tensor:  # over the first axis
        grouped = x.reshape(key_heads, -1, width, *x.shape[1:])
        return grouped.transpose(0, 1).reshape(x.shape)

    if "conv1d" in part:
        tensor = tensor.squeeze(1)
    if "in_proj_qkv" in part or "conv1d" in part:
        return torch.cat([tensor[:keys], tile(tensor[keys:], size)])
    if "in_proj_z" in part:
        return tile(tensor, size)
    if "out_proj" in part:
        return tile(tensor.T, size).T
    if "A_log" in part:
        return tile(-tensor.float().exp(), 1)
    return tile(tensor, 1) if "norm" not in part else tensor


def export_draft(folder: Path, state: dict[str, torch.Tensor], config: dict[str, object]) -> None:
    """Writes model.safetensors (bf16) and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: t.detach().to(torch.bfloat16).contiguous() for name, t in state.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
