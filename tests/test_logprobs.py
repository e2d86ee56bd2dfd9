"""Log-probabilities: the target's own for every token, drafted ones included."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import dflash_gguf
from dflash_gguf import Sampling, Sequence, UsageError
from dflash_gguf._native import core

from .support.random_pairs import VOCAB, Pair
from .support.tiny import Tiny

PROMPT = [5, 80, 200, 31, 7]
SETTINGS: list[Mapping[str, Any]] = [
    {},
    {"temperature": 0.8, "seed": 42},
    {"temperature": 1.2, "top_k": 5, "repeat_penalty": 1.3, "logit_bias": {9: 4.0}, "seed": 1},
    {"temperature": 0.8, "draft_sampling": "rejection", "seed": 4},
]


def log_softmax(logits: Any) -> Any:
    wide = np.asarray(logits, np.float64)
    return wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())


def check(answer: Sequence, rows: Any, count: int) -> None:
    """Compare with the target's logits, computed in one wide batch: its kernels differ in the third digit."""
    assert len(answer.logprobs) == len(answer.tokens)
    for token, entry, logits in zip(answer.tokens, answer.logprobs, rows, strict=True):
        wanted = log_softmax(logits)
        assert entry.token == token
        assert entry.logprob == pytest.approx(wanted[token], abs=0.02)
        best = np.sort(wanted)[::-1][:count]
        assert [value for _, value in entry.top] == pytest.approx(best, abs=0.02)
        assert all(value == pytest.approx(wanted[t], abs=0.02) for t, value in entry.top)
        assert len({t for t, _ in entry.top}) == count


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_token_has_the_targets_own(pair: Pair, settings: Mapping[str, Any]) -> None:
    sampling = Sampling(**settings)
    options: dict[str, Any] = {"sampling": sampling, "max_tokens": 40, "ignore_end": True}
    with dflash_gguf.load(pair.target, pair.draft, kv_type="f32") as engine:
        answers = [engine.generate(PROMPT, logprobs=4, block=b, **options) for b in (8, 3, 1)]
        assert engine.generate(PROMPT, **options).logprobs == []
    model = core().Model(str(pair.target))
    params = core().ContextParams()
    params.n_ctx = params.n_batch = params.n_ubatch = params.n_outputs = 64
    params.type_kv = 0
    for answer in answers:
        context = core().Context(model, params)
        rows = context.evaluate(PROMPT + answer.tokens[:-1], 0)[len(PROMPT) - 1 :]
        check(answer, rows, 4)


def test_drafted_tokens_of_the_trained_pair_too(tiny: Tiny) -> None:
    prompt = tiny.prompts[0]["messages"]
    pair = tiny.target_f32, tiny.draft("f32")
    with dflash_gguf.load(*pair, kv_type="f32", block=8) as engine:
        drafted = engine.generate(prompt, logprobs=3)
        plain = engine.generate(prompt, logprobs=3, block=1)
    assert drafted.stats is not None
    assert drafted.stats.accepted > 20
    assert drafted.tokens == plain.tokens
    for one, other in zip(drafted.logprobs, plain.logprobs, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-3)
        assert [token for token, _ in one.top] == [token for token, _ in other.top]
        assert one.token == one.top[0][0]  # greedy
        assert one.logprob == one.top[0][1]


def test_chunks_carry_them_and_bans_do_not_change_them(dense: Pair) -> None:
    with dflash_gguf.load(dense.target, dense.draft, kv_type="f32") as engine:
        free = engine.generate(PROMPT, logprobs=1, max_tokens=1)
        banned = Sampling(logit_bias={free.tokens[0]: -math.inf})
        options: dict[str, Any] = {"sampling": banned, "max_tokens": 12, "ignore_end": True}
        chunks = list(engine.stream(PROMPT, logprobs=0, **options))
    assert all(len(chunk.logprobs) == len(chunk.tokens) for chunk in chunks)
    first = chunks[0].logprobs[0]
    assert first.top == ()
    assert (
        first.logprob < free.logprobs[0].logprob
    )  # of the model itself, in which it is not the best
    assert math.exp(free.logprobs[0].logprob) + math.exp(first.logprob) <= 1


@pytest.mark.parametrize("count", [-1, VOCAB + 1, True, 1.5])
def test_a_count_out_of_range_is_refused(dense: Pair, count: Any) -> None:
    with (
        dflash_gguf.load(dense.target) as engine,
        pytest.raises(UsageError, match=f"logprobs is {count}; expected a"),
    ):
        engine.start(PROMPT, logprobs=count)


def test_all_of_a_vocabulary(dense: Pair) -> None:
    with dflash_gguf.load(dense.target) as engine:
        answer = engine.generate(PROMPT, logprobs=VOCAB, max_tokens=2, ignore_end=True)
    for entry in answer.logprobs:
        values = [value for _, value in entry.top]
        assert len(values) == VOCAB
        assert sum(map(math.exp, values)) == pytest.approx(1, abs=1e-5)
        assert values == sorted(values, reverse=True)
