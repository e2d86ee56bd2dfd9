"""How many draft tokens the target accepts: per anchor, and over a whole text.

The rule: a round accepts the longest prefix of its drafts that equals the target's greedy
text, counted up to and including the end token; its accept length is 1 + accepted.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .drafter import Drafter, noise_ids

PER_PASS = 48  # anchors of one forward pass


@torch.no_grad()
def draft_logits(
    drafter: Drafter,
    tables: tuple[Tensor, Tensor],
    ids: Tensor,
    taps: Tensor,
    anchors: Tensor,
    masking: str,
    size: int | None = None,
) -> Tensor:
    """Logits (A, S - 1, V) of the draft positions of each anchor.

    tables: (V, D) embeddings and head of the target; ids: (N,) of one text; taps: (N - 1, T*D) in
    f32; anchors: (A,) positions in the text; size: S, if not the trained one.
    """
    embed, head = tables
    mask_id = drafter.config["dflash_config"]["mask_token_id"]
    rows = []
    for part in anchors.split(PER_PASS):
        noise = noise_ids(ids[None], part[None], size or drafter.config["block_size"], mask_id)
        embedded = F.embedding(noise, embed)
        hidden = drafter(taps[None, : int(part.max())], embedded, part[None], masking)
        rows.append(hidden[0, :, 1:] @ head.T)
    return torch.cat(rows)


def accepted_counts(drafts: Tensor, ids: Tensor, anchors: Tensor) -> Tensor:
    """Accepted drafts (A,) of each anchor; drafts: (A, S - 1), ids: (N,) ending with the end."""
    place = anchors[:, None] + torch.arange(1, drafts.shape[1] + 1)
    inside = place < len(ids)
    right = (drafts == ids[place.clamp(max=len(ids) - 1)]) & inside
    return right.long().cumprod(-1).sum(-1)


def rounds(counts: Sequence[int]) -> list[int]:
    """Accepted drafts of each round; counts[i] belongs to the anchor at reply token i."""
    accepted, place = [], 0
    while place < len(counts):
        accepted.append(int(counts[place]))
        place += accepted[-1] + 1
    return accepted
