"""The target's forward pass for training and generation, over a transformers model's weights.

transformers' own code is the reference; on a CPU without its kernels it spends most of its
time in casts and elementwise passes. This one keeps activations in the weights' dtype
(bf16), uses shorter chunks, and has a one-token step with fixed buffers. `deviation` says how
far it is from transformers.

Shapes: B texts, N tokens, H heads, C chunk, K head size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 32
NOTHING = torch.empty(0)  # what is not known yet


@dataclass
class Memory:
    """What one layer carries from token to token; rows are texts."""

    tail: Tensor = NOTHING  # (B, channels, kernel - 1) last inputs of the convolution
    state: Tensor = NOTHING  # (B, H, K, K) delta net state, f32
    keys: Tensor = NOTHING  # (B, H, room, K)
    values: Tensor = NOTHING

    def keep(self, rows: Tensor) -> Memory:
        """The memory of some of the texts."""
        return Memory(*(x[rows] if len(x) else x for x in vars(self).values()))


@dataclass
class Pass:
    """Positions and what to keep during one forward pass."""

    cos: Tensor  # (B or 1, 1, N, rotated / 2)
    sin: Tensor
    lengths: Tensor = NOTHING  # (B,) true lengths when a memory is wanted
    room: int = 0
    memory: list[Memory] = field(default_factory=list)


def norm(x: Tensor, module: Any) -> Tensor:
    """RMS norm with transformers' zero-centred weight."""
    return F.rms_norm(x, (x.shape[-1],), 1 + module.weight, module.eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the first part of each head. x: (B, H, N, K)."""
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)


def angles(config: Any, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines, (B, 1, N, rotated / 2), of positions (B, N)."""
    rope = config.rope_parameters
    size = int(config.head_dim * rope["partial_rotary_factor"])
    steps = rope["rope_theta"] ** -(torch.arange(0, size, 2, dtype=torch.float32) / size)
    a = positions[:, None, :, None].float() * steps
    return a.cos().to(dtype), a.sin().to(dtype)


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """The gated delta rule over whole texts, a triangular solve per chunk.

    q, k, v: (B, H, N, K) with unit q and k; decay (log) and beta: (B, H, N); all f32, N a
    multiple of CHUNK. Returns outputs (B, H, N, K) and the last state (B, H, K, K).
    """
    b, h, n, size = q.shape
    q, k, v = (x.reshape(b, h, n // CHUNK, CHUNK, size) for x in (q * size**-0.5, k, v))
    decay, beta = (x.reshape(b, h, n // CHUNK, CHUNK, 1) for x in (decay, beta))
    total = decay.cumsum(3)
    grown = total.exp()
    upper = torch.ones(CHUNK, CHUNK, dtype=torch.bool).triu(1)
    between = (total - total.transpose(3, 4)).masked_fill(upper, -torch.inf).exp()
    weighted = k * beta
    system = (weighted @ k.transpose(3, 4)) * between
    right = torch.cat([v * beta, weighted * grown], dim=4)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    fresh, old = solved.split(size, dim=4)
    inner = (q @ k.transpose(3, 4)) * between
    q, k = q * grown, k * (total[..., -1:, :] - total).exp()
    last = grown[..., -1:, :]
    state = q.new_zeros(b, h, size, size)
    outputs = []
    for i in range(n // CHUNK):
        change = fresh[:, :, i] - old[:, :, i] @ state
        outputs.append(q[:, :, i] @ state + inner[:, :, i] @ change)
        state = state * last[:, :, i] + k[:, :, i].transpose(2, 3) @ change
    return torch.cat(outputs, dim=2), state


def delta_net(module: Any, x: Tensor, run: Pass, memory: Memory | None) -> Tensor:
    """A gated delta net layer on x (B, N, D); N = 1 with a memory is one step."""
    b, n, _ = x.shape
    kernel = module.conv_kernel_size
    mixed = module.in_proj_qkv(x).transpose(1, 2)  # (B, channels, N)
    last = memory if n == 1 else None  # of the text so far, when this is a step of it
    before = last.tail if last is not None else mixed.new_zeros(b, mixed.shape[1], kernel - 1)
    padded = torch.cat([before, mixed], dim=2)
    beta = module.in_proj_b(x).float().sigmoid().transpose(1, 2)
    decay = F.softplus(module.in_proj_a(x).float() + module.dt_bias.float())
    decay = (-module.A_log.float().exp() * decay).transpose(1, 2)
    if last is not None:
        last.tail = padded[:, :, 1:]
    elif memory is not None:  # keep only what lies before each text's end
        ends = run.lengths[:, None] + torch.arange(kernel - 1)
        memory.tail = padded.gather(2, ends[:, None].expand(-1, mixed.shape[1], -1))
        inside = (torch.arange(n) < run.lengths[:, None])[:, None]
        beta, decay = beta * inside, decay * inside
    mixed = F.silu(F.conv1d(padded, module.conv1d.weight, groups=mixed.shape[1]))
    sizes = [module.key_dim, module.key_dim, module.value_dim]
    q, k, v = (
        y.unflatten(1, (-1, module.head_k_dim)).transpose(2, 3).float()
        for y in mixed.split(sizes, dim=1)
    )
    q, k = (y * torch.rsqrt(y.square().sum(-1, keepdim=True) + 1e-6) for y in (q, k))
    share = v.shape[1] // k.shape[1]
    if share > 1:
        q, k = q.repeat_interleave(share, 1), k.repeat_interleave(share, 1)
    if last is not None:
        y, last.state = delta_step(q, k, v, decay, beta, last.state)
    else:
        pad = -n % CHUNK
        q, k, v = (F.pad(y, (0, 0, 0, pad)) for y in (q, k, v))
        y, state = delta_rule(q, k, v, F.pad(decay, (0, pad)), F.pad(beta, (0, pad)))
        y = y[:, :, :n]
        if memory is not None:
            memory.state = state
    y = F.rms_norm(y.transpose(1, 2).to(x.dtype), (module.head_v_dim,), module.norm.weight, 1e-6)
    gate = F.silu(module.in_proj_z(x)).unflatten(2, (-1, module.head_v_dim))
    return module.out_proj((y * gate).flatten(2))


def delta_step(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """One token of the delta rule, in place; vectors (B, H, 1, K), state (B, H, K, K)."""
    state = state.mul_(decay[..., None].exp())
    change = (v - k @ state) * beta[..., None]
    outer = k.transpose(2, 3).flatten(0, 1), change.flatten(0, 1)
    state.flatten(0, 1).baddbmm_(*outer)
    return (q * k.shape[-1] ** -0.5) @ state, state


def attention(module: Any, x: Tensor, run: Pass, memory: Memory | None) -> Tensor:
    """A gated full attention layer on x (B, N, D)."""
    size = module.head_dim
    q, gate = module.q_proj(x).unflatten(2, (-1, 2 * size)).chunk(2, dim=-1)
    k, v = (p(x).unflatten(2, (-1, size)) for p in (module.k_proj, module.v_proj))
    q = rotate(norm(q, module.q_norm).transpose(1, 2), run.cos, run.sin)
    k = rotate(norm(k, module.k_norm).transpose(1, 2), run.cos, run.sin)
    v = v.transpose(1, 2)
    share = module.num_key_value_groups
    if memory is not None and x.shape[1] == 1:
        row = torch.arange(len(x))
        memory.keys[row, :, run.lengths] = k[:, :, 0]
        memory.values[row, :, run.lengths] = v[:, :, 0]
        width = int(run.lengths.max()) + 1
        seen = (torch.arange(width) <= run.lengths[:, None])[:, None, None]
        k, v = memory.keys[:, :, :width], memory.values[:, :, :width]
        grouped = q.unflatten(1, (-1, share))[:, :, :, 0]  # (B, kv heads, share, K)
        y = F.scaled_dot_product_attention(grouped, k, v, attn_mask=seen)
        y = y.flatten(1, 2)[:, :, None]
    else:
        if memory is not None:
            room = (0, 0, 0, run.room - k.shape[2])
            memory.keys, memory.values = F.pad(k, room), F.pad(v, room)
        k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    y = y.transpose(1, 2) * gate.sigmoid()
    return module.o_proj(y.flatten(2))


def forward(model: Any, ids: Tensor, run: Pass | None = None) -> tuple[Tensor, list[Tensor]]:
    """Final hidden states (B, N, D) and each layer's output, for ids (B, N)."""
    x = model.model.embed_tokens(ids)
    if run is None:
        run = Pass(*angles(model.config, torch.arange(ids.shape[1])[None], x.dtype))
    outputs = []
    for i, layer in enumerate(model.model.layers):
        memory = run.memory[i] if run.memory else None
        y = norm(x, layer.input_layernorm)
        if layer.block_type == "linear_attention":
            x = x + delta_net(layer.linear_attn, y, run, memory)
        else:
            x = x + attention(layer.self_attn, y, run, memory)
        y = norm(x, layer.post_attention_layernorm)
        mlp = layer.mlp
        x = x + mlp.down_proj(F.silu(mlp.gate_proj(y)) * mlp.up_proj(y))
        outputs.append(x)
    return norm(x, model.model.norm), outputs


@torch.no_grad()
def deviation(model: Any, ids: Tensor) -> float:
    """Largest difference of hidden states from transformers' forward, in f32."""
    theirs = model.model(ids, use_cache=False).last_hidden_state
    return float((forward(model, ids)[0] - theirs).abs().max())
