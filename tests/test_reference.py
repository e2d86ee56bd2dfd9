"""Our drafts against PyTorch's, from the token ids on, so that taps, masks and positions are covered.

Almost every fault of a DFlash pair is silent, since the target verifies each token; here they are not. The
last test plants the usual ones and sees each found.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_gguf._native import core
from dflash_gguf.pair import check_pair

from .support.planted import CONFIG_FAULTS
from .support.tiny import BLOCK, Tiny

MASKS = [("trained", None), ("bidirectional", False), ("causal", True)]


@dataclass(frozen=True)
class Agreement:
    """Lowest cosine of any row of any block, mean removed, and the share of rows with the same best token."""

    cosine: float
    same_best: float


class Probe:
    """Drafts single blocks of a pair at given anchors."""

    def __init__(self, target: Path, draft: Path, *, causal: bool | None, kv: int) -> None:
        native = core()
        facts = check_pair(target, draft)
        layers = facts.causal if causal is None else [causal] * len(facts.causal)
        model, draft_model = native.Model(str(target)), native.Model(str(draft))
        params = native.ContextParams()
        params.n_ctx, params.n_batch, params.n_ubatch = 512, 512, 512
        params.n_outputs, params.n_rollback = BLOCK, BLOCK - 1
        params.type_kv = kv
        params.n_threads = params.n_threads_batch = 1
        context = native.Context(model, params)
        params.n_outputs, params.n_rollback = params.n_batch, 0
        self.target = native.Target(context, draft_model.taps)
        self.drafter = native.ModelDrafter(draft_model, params, context, facts.mask, layers)
        self.session = native.Session(self.target, self.drafter, BLOCK)

    def read(self, tokens: list[int]) -> int:
        """Give the target all tokens and the drafter their features; returns the sequence."""
        # one token wanted: the answer ends with the prefill, before any round
        number: int = self.session.add(tokens, max_tokens=1, block=BLOCK, stops=set())
        while not self.session.step():
            pass
        return number

    def logits(self, tokens: list[int], anchor: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Draft logits of rows 1..15 after the token at `anchor`, [15, n_vocab]."""
        number = self.read(tokens[:anchor])
        rows = self.drafter.block_logits(number, anchor, tokens[anchor], BLOCK - 1)
        self.session.remove(number)
        return np.asarray(rows)[1:]


def compare(tiny: Tiny, probe: Probe, mask: str) -> Agreement:
    """Draft the reference's 64 blocks and compare."""
    reference = tiny.reference
    cosines, same = [], []
    blocks = zip(
        reference["block_text"], reference["block_anchor"], reference[f"logits_{mask}"], strict=True
    )
    for text, anchor, logits in blocks:
        rows = probe.logits(tiny.text(int(text)), int(anchor)).astype(np.float64)
        rows -= rows.mean(axis=1, keepdims=True)
        wanted = logits.astype(np.float64)
        lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(wanted, axis=1)
        cosines += ((rows * wanted).sum(axis=1) / lengths).tolist()
        same += (rows.argmax(axis=1) == wanted.argmax(axis=1)).tolist()
    return Agreement(min(cosines), sum(same) / len(same))


@pytest.mark.parametrize(("mask", "causal"), MASKS)
def test_drafts_equal_pytorchs_in_f32(tiny: Tiny, mask: str, causal: bool | None) -> None:  # P8
    found = compare(tiny, Probe(tiny.target_f32, tiny.draft("f32"), causal=causal, kv=0), mask)
    print(mask, found)
    assert found.cosine > 0.9999
    assert found.same_best >= 0.99


@pytest.mark.parametrize(("mask", "causal"), MASKS)
def test_drafts_equal_pytorchs_in_bf16(tiny: Tiny, mask: str, causal: bool | None) -> None:
    found = compare(tiny, Probe(tiny.target, tiny.draft("bf16"), causal=causal, kv=1), mask)
    print(mask, found)
    assert found.cosine > 0.999
    assert found.same_best >= 0.97


def test_tapped_features_equal_pytorchs(tiny: Tiny) -> None:
    reference = tiny.reference
    probe = Probe(tiny.target_f32, tiny.draft("f32"), causal=False, kv=0)
    starts = reference["tap_start"]
    for number, text in enumerate(reference["tap_text"]):
        wanted = reference["taps"][starts[number] : starts[number + 1]].astype(np.float32)
        sequence = probe.read(tiny.text(int(text))[: len(wanted)])
        n_taps = 3
        found = np.concatenate(
            [probe.target.features(tap, len(wanted)) for tap in range(n_taps)], axis=1
        )
        probe.session.remove(sequence)
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
        assert ((found * wanted).sum(axis=1) / lengths).min() > 0.9999


@pytest.mark.parametrize("fault", CONFIG_FAULTS)
def test_planted_faults_are_seen(tiny: Tiny, fault: str) -> None:  # P8
    draft = CONFIG_FAULTS[fault](tiny)
    found = compare(tiny, Probe(tiny.target_f32, draft, causal=False, kv=0), "bidirectional")
    print(found)
    assert found.cosine < 0.9999
    assert found.same_best < 0.99
