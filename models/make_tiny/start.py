"""The target's first weights: a structured start that can already copy.

Small models learn to repeat what stood in the prompt only after a long plateau, and all
three kinds of text are full of names and numbers to repeat. Here some delta net layers
begin as a lookup "what followed this token before": the convolution makes keys from the
previous token, queries and values from the current one, both through the same projection, and
the value's way to the head is a rotation that the head undoes. Heads also begin with
memories of useful length, where transformers' own start lets most forget within one token.
Everything else starts small and random, and all of it is trained.
"""

from __future__ import annotations

from math import log
from typing import Any

import torch
from torch import Tensor
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM

from .shape import target_config

COPYING = (2, 5, 6)  # layers that begin as lookups
LONGEST, SHORTEST = 0.002, 0.3  # decay per token of the other layers' heads
SHARED = 3.0  # one coordinate that all embeddings have in common, to open the gates


def rotation(size: int) -> Tensor:
    """A random orthogonal matrix."""
    return torch.linalg.qr(torch.randn(size, size))[0]


@torch.no_grad()
def new_target() -> Qwen3_5ForCausalLM:
    """Fresh weights from the global random state."""
    model = Qwen3_5ForCausalLM(target_config())
    embedding = model.model.embed_tokens.weight  # (V, D)
    embedding.normal_()
    embedding[:, 0] = SHARED
    turn = rotation(embedding.shape[1])
    model.lm_head.weight.copy_(0.03 * embedding @ turn.T)
    for index, layer in enumerate(model.model.layers):
        if layer.block_type == "linear_attention":
            net = layer.linear_attn
            heads = torch.empty(net.num_v_heads)
            decay = heads.uniform_(log(LONGEST), log(SHORTEST)).exp()
            net.A_log.uniform_(log(1.0), log(8.0))
            if index in COPYING:
                _make_lookup(net, turn)
                decay = torch.full_like(decay, 2 * LONGEST)
            step = decay / net.A_log.exp()
            net.dt_bias.copy_(step.expm1().log())  # softplus(dt_bias) = step
    return model


def _make_lookup(net: Any, turn: Tensor) -> None:
    """Lets a delta net return, turned for the head, what followed the current token before."""
    size = net.hidden_size
    if not size == net.key_dim == net.value_dim:
        msg = "the structured start needs key and value widths of the hidden size"
        raise ValueError(msg)
    match, value = rotation(size), rotation(size)
    match[:, 0] = 0.0  # what all tokens share must not match
    net.in_proj_qkv.weight.copy_(torch.cat([match, match, value]))
    net.out_proj.weight.copy_(0.5 * turn @ value.T)
    net.in_proj_z.weight[:, 0] = 0.5
    kernel = net.conv1d.weight  # (3 * D, 1, 4); the last tap is the current token
    kernel.mul_(0.1)
    kernel[:size, 0, 3] += 1
    kernel[size : 2 * size, 0, 2] += 1
    kernel[2 * size :, 0, 3] += 1
