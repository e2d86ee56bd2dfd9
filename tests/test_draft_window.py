"""Drafts from the newest rows only: what is injected, what stays, and that the text does not change."""

from __future__ import annotations

from typing import Any

import pytest

import dflash_gguf

from .support.random_pairs import Pair
from .support.tiny import BLOCK, Tiny

QUICK: dict[str, Any] = {"threads": 1, "context": 1024, "kv_type": "f32", "block": 8}
PROMPT = [1 + (7 * i) % 250 for i in range(700)]


def answer(pair: Pair, **options: Any) -> dflash_gguf.Sequence:
    with dflash_gguf.load(pair.target, pair.draft, **QUICK | options) as engine:
        return engine.generate(PROMPT, max_tokens=120, ignore_end=True)


@pytest.mark.parametrize("window", [1, 5, 100, 256, 300])
def test_only_the_newest_rows_are_injected(pair: Pair, window: int) -> None:
    whole, part = answer(pair), answer(pair, draft_window=window)
    assert part.tokens == whole.tokens
    assert whole.stats is not None
    assert part.stats is not None
    written = whole.stats.injected - len(PROMPT)
    assert 100 < written < 120 + 8
    if window >= 8:
        assert part.stats.injected == window + written
    else:  # a round may write more than the window holds
        assert part.stats.injected < window + written + 1


def test_a_wide_window_is_none(pair: Pair) -> None:
    whole, wide = answer(pair), answer(pair, draft_window=5000)
    assert whole.stats is not None
    assert wide.stats is not None
    assert wide.stats.accepted_at == whole.stats.accepted_at
    assert wide.stats.injected == whole.stats.injected


def test_a_small_draft_context_keeps_what_it_can(pair: Pair) -> None:
    small = answer(pair, draft_context=200)
    assert small.tokens == answer(pair).tokens
    assert small.stats is not None
    assert small.stats.injected < len(PROMPT)
    # 192 rows and a block fill the cache to its last cell in every round
    assert (
        small.stats.drafting_rounds >= small.stats.rounds - 1 > 0
    )  # for the last token none is drafted


def test_many_sequences_in_a_small_draft_context(pair: Pair) -> None:
    options = QUICK | {"sequences": 5, "draft_context": 40, "draft_batch": 40}
    with dflash_gguf.load(pair.target, pair.draft, **options) as engine:
        prompts = [PROMPT[i : i + 90 * i + 20] for i in range(5)]
        answers = [engine.start(prompt, max_tokens=60, ignore_end=True) for prompt in prompts]
        while engine.busy:
            engine.step()
        assert not engine.warnings
    for prompt, found in zip(prompts, answers, strict=True):
        with dflash_gguf.load(pair.target, **QUICK | {"block": 1}) as engine:
            assert engine.generate(prompt, max_tokens=60, ignore_end=True).tokens == found.tokens


def test_rows_out_of_the_window_have_no_say(dense: Pair) -> None:
    # drafts are the same whether the older rows were never injected or were injected and forgotten
    found = []
    for batch in (700, 64):
        with dflash_gguf.load(
            dense.target, dense.draft, draft_window=50, batch=batch, flash_attn=False, **QUICK
        ) as engine:
            stats = engine.generate(PROMPT, max_tokens=60, ignore_end=True).stats
            assert stats is not None
            found.append((stats.accepted_at, stats.injected))
    assert found[0] == found[1]


def test_drafts_are_right_with_a_window_too(tiny: Tiny) -> None:
    options: dict[str, Any] = {"threads": 1, "context": 1024, "kv_type": "f32", "block": BLOCK}
    draft = tiny.draft("f32")
    lengths = []
    for window in (None, 40):
        with dflash_gguf.load(tiny.target_f32, draft, draft_window=window, **options) as engine:
            stats = engine.generate(tiny.text(0)[:90], max_tokens=40).stats
            assert stats is not None
            assert stats.accept_length is not None
            lengths.append(stats.accept_length)
    assert lengths[1] > 1.2, lengths


def test_a_mask_shows_with_values_of_every_type(tiny: Tiny) -> None:
    draft = tiny.draft("f32")
    for kind, flash in (("bf16", None), ("bf16", False), ("f32", False), ("q8_0", True)):
        with dflash_gguf.load(
            tiny.target, draft, threads=1, context=256, draft_kv_type=kind, flash_attn=flash
        ) as engine:
            assert engine.generate(tiny.text(0)[:40], max_tokens=20).tokens
