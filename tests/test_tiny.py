"""The promise on the trained pair: the text with the drafter is the text without."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dflash_gguf
from dflash_gguf._native import core

from .support.tiny import BLOCK, Tiny

N = 256


@cache
def plain_answers(target: Path) -> list[dflash_gguf.Sequence]:
    """Answers of the target alone to the held-out prompts."""
    tiny = Tiny(Path())
    with dflash_gguf.load(target, threads=1, context=2048) as engine:
        return [engine.generate(p["messages"], max_tokens=N) for p in tiny.prompts]


@pytest.mark.parametrize("outtype", ["bf16", "q5_k_m"])
@pytest.mark.parametrize("block", [4, 8, 16])
def test_greedy_text_is_the_targets_own_in_f32(tiny: Tiny, block: int, outtype: str) -> None:
    with dflash_gguf.load(tiny.target_f32, tiny.draft(outtype), threads=1, context=2048) as engine:
        for prompt, alone in zip(tiny.prompts, plain_answers(tiny.target_f32), strict=True):
            drafted = engine.generate(prompt["messages"], max_tokens=N, block=block)
            assert drafted.tokens == alone.tokens, prompt["id"]
            assert drafted.finish_reason == alone.finish_reason
            assert drafted.stats is not None
            assert drafted.stats.emitted == 1 + drafted.stats.rounds + drafted.stats.accepted


def test_greedy_text_of_a_bf16_target_differs_only_at_near_ties(tiny: Tiny) -> None:
    """One row and many rows take different kernels in bf16: only a real gap makes a difference a fault."""
    draft = tiny.draft("bf16")
    differences = 0
    with dflash_gguf.load(tiny.target, draft, threads=1, context=2048) as engine:
        for prompt, alone in zip(tiny.prompts, plain_answers(tiny.target), strict=True):
            drafted = engine.generate(prompt["messages"], max_tokens=N, block=BLOCK)
            at = first_difference(alone.tokens, drafted.tokens)
            if at is None:
                continue
            differences += 1
            gap, noise = gap_and_noise(tiny.target, [*alone.prompt, *alone.tokens[:at]])
            print(f"{prompt['id']}: differs at {at}, top-2 gap {gap:.4f}, kernel noise {noise:.4f}")
            assert gap <= 2 * noise
    print(f"{differences} of {len(tiny.prompts)} texts differ")


def first_difference(a: list[int], b: list[int]) -> int | None:
    """Index of the first token that differs, None if all are equal."""
    if a == b:
        return None
    pairs = enumerate(zip(a, b, strict=False))
    return next((i for i, (x, y) in pairs if x != y), min(len(a), len(b)))


def gap_and_noise(target: Path, tokens: list[int]) -> tuple[float, float]:
    """Gap of the two best logits after `tokens`, decoded one by one, and the largest difference of any
    logit between decoding one row and 16 rows at a time."""
    one, many = (rows_of(target, tokens, width) for width in (1, BLOCK))
    best = np.sort(one[-1])[-2:]
    return float(best[1] - best[0]), float(np.abs(one - many).max())


def rows_of(target: Path, tokens: list[int], width: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Logits after each token, decoded `width` rows at a time."""
    native = core()
    params = native.ContextParams()
    params.n_ctx, params.n_outputs = 2048, BLOCK
    params.n_threads = params.n_threads_batch = 1
    context = native.Context(native.Model(str(target)), params)
    rows = [
        context.evaluate(tokens[start : start + width], start)
        for start in range(0, len(tokens), width)
    ]
    return np.concatenate(rows)


def test_the_drafter_helps_as_its_report_says(tiny: Tiny) -> None:
    """Accept length at block 16, mean over the prompts: as trained about what PyTorch measured."""
    with dflash_gguf.load(tiny.target, tiny.draft("bf16"), threads=1, context=2048) as engine:
        lengths = []
        for prompt in tiny.prompts:
            stats = engine.generate(prompt["messages"], max_tokens=400, block=BLOCK).stats
            assert stats is not None
            if stats.accept_length is not None:
                lengths.append(stats.accept_length)
    print(f"mean accept length {np.mean(lengths):.3f}")
    assert np.mean(lengths) >= 5.0
