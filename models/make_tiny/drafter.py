"""The drafter: DFlash's block-parallel transformer, for many anchors of a text at once.

A block starts at an anchor: its rows are `[anchor token, mask, mask, ...]` at positions
`anchor, anchor + 1, ...`. Keys and values come from two sources, the context (one row for
each token before the anchor, made from the target's tapped hidden states) and the block
itself. All blocks of one text are computed together over one set of context rows; a mask
keeps each block to its own context and rows.

Shapes: B texts, L context rows, A anchors, S block rows, T taps, D hidden size.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

MASKS = ("trained", "bidirectional", "causal")


class Norm(nn.Module):
    """RMS norm in f32, then a learned scale."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., size)."""
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


class Rotation:
    """Rotary embedding of whole heads, halves paired (first half with second half)."""

    def __init__(self, positions: Tensor, head_dim: int, base: float) -> None:
        """positions: (B, N)."""
        steps = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        angles = positions[:, None, :, None].float() * base**-steps  # (B, 1, N, head_dim / 2)
        self.cos, self.sin = angles.cos(), angles.sin()

    def __call__(self, x: Tensor) -> Tensor:
        """x: (B, heads, N, head_dim)."""
        first, second = x.float().chunk(2, dim=-1)
        turned = (first * self.cos - second * self.sin, second * self.cos + first * self.sin)
        return torch.cat(turned, dim=-1).to(x.dtype)


class Attention(nn.Module):
    """Queries from the block, keys and values from context and block."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        hidden, self.head_dim = config["hidden_size"], config["head_dim"]
        width = config["num_attention_heads"] * self.head_dim
        narrow = config["num_key_value_heads"] * self.head_dim
        self.q_proj = nn.Linear(hidden, width, bias=False)
        self.k_proj = nn.Linear(hidden, narrow, bias=False)
        self.v_proj = nn.Linear(hidden, narrow, bias=False)
        self.o_proj = nn.Linear(width, hidden, bias=False)
        self.q_norm = Norm(self.head_dim, config["rms_norm_eps"])
        self.k_norm = Norm(self.head_dim, config["rms_norm_eps"])

    def heads(self, x: Tensor) -> Tensor:
        """(B, N, width) to (B, heads, N, head_dim)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def forward(
        self, x: Tensor, context: Tensor, rotate: tuple[Rotation, Rotation], mask: Tensor
    ) -> Tensor:
        """x: (B, A*S, D); context: (B, L, D); mask: (B, 1, A*S, L + A*S), True where seen."""
        both = torch.cat([context, x], dim=1)
        q = rotate[0](self.q_norm(self.heads(self.q_proj(x))))
        k = rotate[1](self.k_norm(self.heads(self.k_proj(both))))
        v = self.heads(self.v_proj(both))
        repeat = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """Gated SiLU feed-forward part."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: (B, N, D)."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and feed-forward with norms before them."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        hidden, eps = config["hidden_size"], config["rms_norm_eps"]
        self.self_attn = Attention(config)
        self.mlp = Mlp(hidden, config["intermediate_size"])
        self.input_layernorm = Norm(hidden, eps)
        self.post_attention_layernorm = Norm(hidden, eps)

    def forward(
        self, x: Tensor, context: Tensor, rotate: tuple[Rotation, Rotation], mask: Tensor
    ) -> Tensor:
        """Shapes as in Attention."""
        x = x + self.self_attn(self.input_layernorm(x), context, rotate, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Drafter(nn.Module):
    """DFlash drafter; parameter names are those of published checkpoints."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        hidden, taps = config["hidden_size"], len(config["dflash_config"]["target_layer_ids"])
        self.fc = nn.Linear(taps * hidden, hidden, bias=False)
        self.hidden_norm = Norm(hidden, config["rms_norm_eps"])
        self.layers = nn.ModuleList([Layer(config) for _ in range(config["num_hidden_layers"])])
        self.norm = Norm(hidden, config["rms_norm_eps"])

    def forward(
        self, features: Tensor, noise: Tensor, anchors: Tensor, masking: str = "trained"
    ) -> Tensor:
        """Final hidden states (B, A, S, D) of all blocks.

        features: (B, L, T*D) tapped states of tokens 0..L-1; noise: (B, A, S, D) target
        embeddings of the block tokens; anchors: (B, A) positions of the first block rows.
        """
        batch, count, size, _ = noise.shape
        context = self.hidden_norm(self.fc(features))
        place = torch.arange(features.shape[1]).expand(batch, -1)
        query = (anchors[..., None] + torch.arange(size)).flatten(1)  # (B, A*S)
        shape = self.config["head_dim"], self.config["rope_theta"]
        rotate = Rotation(query, *shape), Rotation(torch.cat([place, query], 1), *shape)
        masks = {
            kind: block_mask(
                anchors,
                features.shape[1],
                size,
                causal=masking == "causal" or (masking == "trained" and kind.startswith("sl")),
                window=self.config["sliding_window"] if kind.startswith("sl") else None,
            )
            for kind in set(self.config["layer_types"])
        }
        x = noise.flatten(1, 2)
        for kind, layer in zip(self.config["layer_types"], self.layers, strict=True):
            x = layer(x, context, rotate, masks[kind])
        return self.norm(x).unflatten(1, (count, size))


def read_drafter(folder: Path) -> Drafter:
    """The drafter in f32 of a folder with config.json and model.safetensors."""
    drafter = Drafter(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    drafter.load_state_dict(load_file(folder / "model.safetensors"))
    return drafter.float().eval().requires_grad_(False)


def block_mask(
    anchors: Tensor, length: int, size: int, *, causal: bool, window: int | None
) -> Tensor:
    """Who sees whom, (B, 1, A*S, L + A*S).

    A row sees context before its own anchor and rows of its own block; causal rows see no
    later row. A window keeps keys at a distance below it, to both sides where not causal.
    """
    batch, count = anchors.shape
    query = (anchors[..., None] + torch.arange(size)).flatten(1)  # (B, A*S) positions
    owner = torch.arange(count).repeat_interleave(size)  # (A*S,) block number of each row
    place = torch.arange(length).expand(batch, -1)
    key = torch.cat([place, query], dim=1)  # (B, L + A*S)
    before = place[:, None, :] < anchors[:, owner, None]  # (B, A*S, L)
    own = (owner[:, None] == owner[None, :]).expand(batch, -1, -1)
    seen = torch.cat([before, own], dim=2)
    distance = query[:, :, None] - key[:, None, :]
    if causal:
        seen = seen & (distance >= 0)
    if window is not None:
        seen = seen & (distance.abs() < window)
    return seen[:, None]


def noise_ids(tokens: Tensor, anchors: Tensor, size: int, mask_id: int) -> Tensor:
    """Block tokens (B, A, S): the anchor's token, then masks. tokens: (B, N); anchors: (B, A)."""
    ids = torch.full((*anchors.shape, size), mask_id)
    ids[..., 0] = tokens.gather(1, anchors)
    return ids
