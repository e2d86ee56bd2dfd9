"""A pair of any family, its blocks drafted one by one, below the Engine."""

from __future__ import annotations

from typing import Any

import numpy as np
from gguf import GGUFReader

from dflash_gguf._native import core
from dflash_gguf.draft_family import make_drafter
from dflash_gguf.pair import check_pair

from .family_pairs import FamilyPair

Turn = tuple[int, int, int, int]


class FamilyRig:
    """Reads texts and drafts behind them; one thread, f32 caches, attention by softmax.

    `draft` changes parameters of the draft's context.
    """

    def __init__(
        self, made: FamilyPair, *, sequences: int = 1, draft: dict[str, Any] | None = None
    ) -> None:
        native = core()
        facts = check_pair(made.pair.target, made.pair.draft)
        model, draft_model = native.Model(str(made.pair.target)), native.Model(str(made.pair.draft))
        params = native.ContextParams()
        params.n_ctx, params.n_seq = 256, sequences
        params.n_batch = params.n_ubatch = max(128, sequences * facts.block)
        params.n_outputs = sequences * facts.block
        params.n_rollback = facts.block - 1 if model.has_state else 0
        params.type_kv, params.flash_attn = 0, 0
        params.n_threads = params.n_threads_batch = 1
        context = native.Context(model, params)
        params.n_rollback, params.unified, params.n_outputs = 0, True, params.n_batch
        for name, value in (draft or {}).items():
            setattr(params, name, value)
        self.facts = facts
        self.drafter = make_drafter(
            facts.layout, draft_model, params, context, facts.mask, facts.causal
        )
        self.drafter.probe()
        self.target = native.Target(context, draft_model.taps)
        self.session = native.Session(self.target, self.drafter, facts.block)

    def read(self, text: list[int]) -> tuple[int, Any]:
        """Read a text; returns its sequence and what the drafter saw of it, [tokens, taps * hidden]."""
        number: int = self.session.add(text, max_tokens=1, block=2, stops=set())
        while not self.session.step():
            pass
        taps = range(len(self.facts.taps))
        return number, np.concatenate([self.target.features(i, len(text)) for i in taps], axis=1)

    def draft(self, *turns: Turn, sampling: Any = None) -> list[tuple[list[int], list[float]]]:
        """Draft for each (sequence, position, anchor, count): tokens and confidences."""
        return self.drafter.draft_sampled(list(turns), sampling or core().Sampling())


def target_tables(made: FamilyPair) -> tuple[Any, Any]:
    """Return the target's embeddings and head."""
    tensors = {tensor.name: tensor.data for tensor in GGUFReader(made.pair.target).tensors}
    return tensors["token_embd.weight"], tensors["output.weight"]
