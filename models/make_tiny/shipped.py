"""The target as it is shipped, back in PyTorch: what export.py writes, read again, in f32."""

from __future__ import annotations

from pathlib import Path

import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from torch import Tensor
from transformers import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM

from .export import LAYER_NAMES, TOP_NAMES
from .shape import target_config


def shipped_target(path: Path) -> Qwen3_5ForCausalLM:
    """The target of target.gguf; raises KeyError for a tensor that the model lacks or the file does."""
    tensors = {
        tensor.name: torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        for tensor in GGUFReader(path).tensors
    }
    config = target_config()
    model = Qwen3_5ForCausalLM(config)
    state = {name: _tensor(name, tensors, config) for name in model.state_dict()}
    if tensors:
        msg = f"{path}: the model has no place for {', '.join(tensors)}"
        raise KeyError(msg)
    model.load_state_dict(state)
    return model.eval().requires_grad_(False)


def _tensor(name: str, tensors: dict[str, Tensor], config: Qwen3_5TextConfig) -> Tensor:
    """The tensor of a name in transformers' form; taken out of the file's."""
    if name in TOP_NAMES:
        tensor = tensors.pop(TOP_NAMES[name])
    else:
        _, _, layer, part = name.split(".", 3)
        tensor = tensors.pop(f"blk.{layer}.{LAYER_NAMES[part]}")
        if part.startswith("linear_attn."):
            return _delta_net(part, tensor, config)
    return tensor - 1 if name.endswith("norm.weight") else tensor


def _delta_net(part: str, tensor: Tensor, config: Qwen3_5TextConfig) -> Tensor:
    """One tensor of a gated delta net with a key head's value heads together."""
    key_heads, size = config.linear_num_key_heads, config.linear_value_head_dim
    keys = 2 * key_heads * config.linear_key_head_dim  # rows of query and key before the values

    def together(x: Tensor, width: int) -> Tensor:  # over the first axis
        tiled = x.reshape(-1, key_heads, width, *x.shape[1:])
        return tiled.transpose(0, 1).reshape(x.shape)

    if "in_proj_qkv" in part or "conv1d" in part:
        tensor = torch.cat([tensor[:keys], together(tensor[keys:], size)])
        return tensor.unsqueeze(1) if "conv1d" in part else tensor
    if "in_proj_z" in part:
        return together(tensor, size)
    if "out_proj" in part:
        return together(tensor.T, size).T
    if "A_log" in part:
        return together((-tensor).log(), 1)
    return together(tensor, 1) if "norm" not in part else tensor
