"""Drafts from every place of texts that are known, by the engine and by PyTorch, and how far the two agree.

An anchor is a token of a reply, and what is drafted follows it. Both begin with the token ids of the text up to
the anchor, so that target, taps, context rows, masks and positions are all in it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize

import dflash_gguf

from .tiny import BLOCK, ROOT

sys.path.append(str(ROOT.parent))  # models, for the package that made the pair

from make_tiny.accept import draft_logits
from make_tiny.drafter import Drafter, read_drafter

Drafts = np.ndarray[Any, np.dtype[np.int64]]
Tables = tuple[torch.Tensor, torch.Tensor]

NONE = -1  # where a text has ended
MISSING = -2  # where nothing was drafted


@dataclass(frozen=True)
class Text:
    """Prompt and reply, and the anchors of the reply: all its tokens but the last, or some of them."""

    ids: list[int]
    anchors: list[int]

    @classmethod
    def of(cls, ids: list[int], prompt: int, every: int = 1, first: int = 0) -> Text:
        """Take every so many-th token of the reply for an anchor."""
        return cls(ids, list(range(prompt + first % every, len(ids) - 1, every)))

    def wanted(self, count: int = BLOCK - 1) -> Drafts:
        """Return what follows each anchor, [anchors, count]."""
        padded = [*self.ids, *[NONE] * count]
        return np.array([padded[a + 1 : a + 1 + count] for a in self.anchors])


@dataclass(frozen=True)
class Agreement:
    """How far two sides' drafts agree; mean numbers of accepted drafts by anchor.

    Attributes:
        same_prefix: share of anchors whose drafts are equal up to the first that the text contradicts, that one
            included; after it nothing counts.
        same_accepted: share with as many accepted drafts.
        same_block: share whose drafts are all equal.
    """

    anchors: int
    same_prefix: float
    same_accepted: float
    same_block: float
    accepted: float
    reference: float

    @property
    def ratio(self) -> float:
        """Mean accepted over the reference's."""
        return self.accepted / self.reference

    @property
    def holds(self) -> bool:
        """Whether the two count as the same: equal prefixes in 98 %, means within 1 %."""
        return self.same_prefix >= 0.98 and abs(self.ratio - 1) <= 0.01


def accepted(drafts: Drafts, wanted: Drafts) -> Drafts:
    """Count the drafts of each anchor before the first that the text contradicts."""
    counts: Drafts = np.cumprod(drafts == wanted, axis=1).sum(axis=1)
    return counts


def agreement(ours: Drafts, reference: Drafts, wanted: Drafts) -> Agreement:
    """Compare drafts of the same anchors, all [anchors, count]."""
    found, expected = accepted(ours, wanted), accepted(reference, wanted)
    counted = np.arange(wanted.shape[1]) <= expected[:, None]
    counted &= wanted != NONE
    return Agreement(
        anchors=len(wanted),
        same_prefix=float(((ours == reference) | ~counted).all(axis=1).mean()),
        same_accepted=float((found == expected).mean()),
        same_block=float((ours == reference).all(axis=1).mean()),
        accepted=float(found.mean()),
        reference=float(expected.mean()),
    )


def engine_drafts(
    engine: dflash_gguf.Engine, text: Text, count: int = BLOCK - 1, *, missing: int = 0
) -> Drafts:
    """Draft behind each anchor with the engine's drafter, [anchors, count].

    The engine is one of a fixed block that keeps prefixes: each anchor's context is the one before, read on. Leave
    out the `missing` newest tokens of it, which is a fault.
    """
    parts: Any = engine._parts
    drafts = np.full((len(text.anchors), count), MISSING)
    for row, anchor in enumerate(text.anchors):
        # one token wanted: the answer ends with the prompt, before any round
        options: dict[str, Any] = {"max_tokens": 1, "block": count + 1, "stops": set()}
        number = parts.session.add(text.ids[: anchor - missing], **options)
        while not parts.session.step():
            pass
        (tokens,) = parts.drafter.draft([(number, anchor, text.ids[anchor], count)])
        drafts[row, : len(tokens)] = tokens
        parts.session.remove(number)
    return drafts


def engine_features(engine: dflash_gguf.Engine, ids: Sequence[int], taps: int) -> torch.Tensor:
    """Return what the target hands to a drafter for `ids`, [tokens, taps * hidden]; the engine keeps no prefixes."""
    parts: Any = engine._parts
    number = parts.session.add(list(ids), max_tokens=1, block=BLOCK, stops=set())
    pieces, rows = [], parts.session.prefill_rows
    for start in range(0, len(ids), rows):
        parts.session.step()
        count = min(rows, len(ids) - start)
        tapped = [parts.target.features(tap, count) for tap in range(taps)]
        pieces.append(np.concatenate(tapped, axis=1))
    parts.session.remove(number)
    return torch.from_numpy(np.concatenate(pieces))


def torch_drafts(
    drafter: Drafter,
    tables: Tables,
    text: Text,
    features: torch.Tensor,
    masking: str,
    size: int = BLOCK,
) -> Drafts:
    """Draft behind each anchor with PyTorch, [anchors, size - 1], from features of all tokens but the last."""
    logits = draft_logits(
        drafter,
        tables,
        torch.tensor(text.ids),
        features,
        torch.tensor(text.anchors),
        masking,
        size,
    )
    drafts: Drafts = logits.argmax(-1).numpy()
    return drafts


@cache
def target_tables(target: Path) -> Tables:
    """Return a target's embeddings and head, [tokens, hidden] in f32."""
    tensors = {tensor.name: tensor for tensor in GGUFReader(target).tensors}
    embed, head = (
        torch.from_numpy(dequantize(tensors[name].data, tensors[name].tensor_type).copy())
        for name in ("token_embd.weight", "output.weight")
    )
    return embed, head


def tiny_drafter() -> Drafter:
    """Return the drafter of models/tiny in PyTorch, in f32."""
    return read_drafter(ROOT / "draft")
