"""Batched greedy generation with the target, keeping the tapped hidden states on the way.

Texts of a batch have their own lengths: prompts are padded on the right, each text writes its
next token at its own position, and finished texts leave the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .fast import Memory, Pass, angles, forward
from .shape import TAPS


@dataclass(frozen=True)
class Text:
    """One finished text."""

    ids: Tensor  # (N,) prompt and reply, ending with the end token unless cut off
    prompt: int  # tokens of the prompt
    taps: Tensor  # (N - 1, T*D) tapped states of all tokens but the last


@torch.no_grad()
def generate(model: Any, prompts: Sequence[list[int]], end_id: int, limit: int) -> list[Text]:
    """Greedy replies of at most `limit` tokens."""
    lengths = torch.tensor([len(p) for p in prompts])
    width = int(lengths.max())
    room = width + limit + 1
    ids = torch.zeros(len(prompts), room, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt)
    dtype = model.lm_head.weight.dtype
    taps = torch.zeros(len(prompts), room, len(TAPS) * model.config.hidden_size, dtype=dtype)

    run = Pass(*angles(model.config, torch.arange(width)[None], dtype), lengths, room)
    run.memory = [Memory() for _ in model.model.layers]
    hidden, outputs = forward(model, ids[:, :width], run)
    taps[:, :width] = torch.cat([outputs[t] for t in TAPS], dim=-1)
    last = hidden[torch.arange(len(prompts)), lengths - 1]

    alive = torch.arange(len(prompts))  # rows of `ids` that are still in the batch
    place = lengths.clone()  # where the next token of each row in the batch goes
    ends = lengths + limit
    done = torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(limit):
        token = model.lm_head(last).argmax(-1)
        ids[alive, place] = token
        done |= token == end_id
        ends[alive[done]] = ends[alive[done]].minimum(place[done] + 1)
        if done.all():
            break
        if done.float().mean() > 0.1:  # too many rows work for nothing
            rows = (~done).nonzero()[:, 0]
            alive, place, token, done = alive[rows], place[rows], token[rows], done[rows]
            run.memory = [memory.keep(rows) for memory in run.memory]
        run.cos, run.sin = angles(model.config, place[:, None], dtype)
        run.lengths = place
        hidden, outputs = forward(model, token[:, None], run)
        taps[alive, place] = torch.cat([outputs[t][:, 0] for t in TAPS], dim=-1)
        last = hidden[:, 0]
        place = place + 1
    return [
        Text(ids[i, : int(n)].clone(), len(prompts[i]), taps[i, : int(n) - 1].clone())
        for i, n in enumerate(ends)
    ]
