"""Sampling: the right distribution, and one text for a seed whatever is drafted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dflash_gguf
from dflash_gguf import Sampling, UsageError
from dflash_gguf._native import core

from .support.random_pairs import Pair

SAMPLES = 20_000
CHI_SQUARE = {7: 24.32, 11: 31.26, 15: 37.70}  # alpha 0.001 by degrees of freedom
LOGITS = np.array([2.0, 1.5, 1.5, 0.5, 0.0, -0.5, -1.0, -3.0], np.float32)
FLOATS = st.floats(-20, 20, width=32)
APART = st.integers(-2_000, 2_000).map(lambda hundredths: hundredths / 100)  # no near ties


def softmax(logits: Any) -> Any:
    weights = np.exp(np.asarray(logits, np.float64) - np.max(logits))
    return weights / weights.sum()


def choose(logits: Any, position: int = 0, **options: Any) -> int:
    text, after = options.pop("text", []), options.pop("after", [])
    native = Sampling(**{"seed": 1, **options}).native()
    return core().choose(native, np.asarray(logits, np.float32), position, text, after)


def kept(logits: Any, *, top_k: int, typical: float, top_p: float, min_p: float) -> set[int]:
    """The filters written down plainly, in llama.cpp's order."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    order = order[:top_k] if top_k else order
    p = dict(zip(order, softmax([logits[i] for i in order]), strict=True))
    if typical < 1:
        entropy = -sum(v * math.log(v) for v in p.values() if v > 0)
        ranked = sorted(order, key=lambda i: abs(-math.log(max(p[i], 1e-300)) - entropy))
        total, chosen = 0.0, []
        for i in ranked:
            chosen.append(i)
            total += p[i]
            if total > typical:
                break
        order = [i for i in order if i in chosen]
    if top_p < 1:
        p = dict(zip(order, softmax([logits[i] for i in order]), strict=True))
        sums = np.cumsum([p[i] for i in order])
        order = order[: int(np.searchsorted(sums, top_p)) + 1]
    if min_p > 0:
        order = [i for i in order if logits[i] >= logits[order[0]] + np.log(np.float32(min_p))]
    return set(order)


def chi_square(counts: Any, p: Any) -> float:
    return float(((counts - SAMPLES * p) ** 2 / (SAMPLES * p)).sum())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("by", ["position", "seed"])
def test_samples_have_the_targets_distribution(temperature: float, by: str) -> None:
    native = Sampling(temperature=temperature, seed=11).native()
    counts = np.zeros(len(LOGITS))
    for i in range(SAMPLES):
        if by == "seed":
            native.seed = i
        counts[core().choose(native, LOGITS, i if by == "position" else 5)] += 1
    p = softmax(LOGITS / temperature)
    assert chi_square(counts, p) < CHI_SQUARE[7]
    assert chi_square(counts, softmax(LOGITS / temperature * 1.1)) > CHI_SQUARE[7]  # it would show


def test_neighbouring_positions_are_independent() -> None:
    logits = np.log([0.5, 0.3, 0.15, 0.05]).astype(np.float32)
    native = Sampling(temperature=1, seed=3).native()
    drawn = [core().choose(native, logits, i) for i in range(SAMPLES + 1)]
    counts = np.zeros((4, 4))
    for pair in itertools.pairwise(drawn):
        counts[pair] += 1
    p = softmax(logits)
    assert chi_square(counts, np.outer(p, p)) < CHI_SQUARE[15]


def test_noise_is_gumbels() -> None:
    noise = np.array([core().gumbel(5, i, i % 7) for i in range(SAMPLES)])
    assert abs(noise.mean() - np.euler_gamma) < 4 * np.pi / math.sqrt(6 * SAMPLES)
    ranks = np.exp(-np.exp(-noise))  # uniform
    counts = np.histogram(ranks, bins=12, range=(0, 1))[0]
    assert chi_square(counts, np.full(12, 1 / 12)) < CHI_SQUARE[11]


@given(st.lists(FLOATS, min_size=1, max_size=200), st.floats(0.05, 3), st.integers(0, 1 << 40))
def test_the_choice_is_the_argmax_of_logit_and_noise(
    logits: list[float], temperature: float, seed: int
) -> None:
    """Tokens that are ruled out by a comparison never win."""
    temperature = float(np.float32(temperature))
    scores = [x / temperature + core().gumbel(seed, 9, i) for i, x in enumerate(logits)]
    assert choose(logits, 9, temperature=temperature, seed=seed) == int(np.argmax(scores))


@settings(max_examples=200)
@given(
    st.lists(APART, min_size=1, max_size=40, unique=True),
    st.integers(0, 12),
    st.sampled_from([1.0, 0.9, 0.4]),
    st.sampled_from([1.0, 0.95, 0.5, 0.0]),
    st.sampled_from([0.0, 0.05, 0.5]),
    st.integers(0, 1000),
)
def test_filters_keep_what_llama_cpps_would(
    logits: list[float], top_k: int, typical: float, top_p: float, min_p: float, seed: int
) -> None:
    filters = {"top_k": top_k, "typical": typical, "top_p": top_p, "min_p": min_p}
    allowed = kept(logits, **filters)  # type: ignore[arg-type]
    scores = {i: logits[i] + core().gumbel(seed, 2, i) for i in allowed}
    found = choose(logits, 2, temperature=1, seed=seed, **filters)
    assert found == max(scores, key=lambda i: scores[i])


def test_a_nucleus_of_a_large_vocabulary_is_found_without_sorting_it() -> None:
    logits = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)  # a wide one
    filters = {"top_k": 0, "typical": 1.0, "top_p": 0.9, "min_p": 0.0}
    allowed = kept(logits, **filters)  # type: ignore[arg-type]
    assert len(allowed) > 10_000
    assert {choose(logits, i, temperature=1, **filters) for i in range(300)} <= allowed


def penalised(logits: Any, recent: list[int], repeat: float, each: float, once: float) -> Any:
    out = np.array(logits, np.float64)
    for token in set(recent):
        out[token] = out[token] * repeat if out[token] <= 0 else out[token] / repeat
        out[token] -= each * recent.count(token) + once
    return out


@pytest.mark.parametrize("last_n", [0, 3, 64, -1])
def test_penalties_and_biases_see_the_drafted_tokens_too(last_n: int) -> None:
    text, after = [0, 0, 1, 5, 1], [2, 0]
    whole = text + after
    recent = whole if last_n < 0 else whole[len(whole) - min(last_n, len(whole)) :]
    options = {
        "repeat_penalty": 1.4,
        "frequency_penalty": 0.3,
        "presence_penalty": 0.2,
        "repeat_last_n": last_n,
        "logit_bias": {3: 1.25, 4: -math.inf},
    }
    wanted = penalised(LOGITS, recent, 1.4, 0.3, 0.2)
    wanted[3] += 1.25
    wanted[4] = -np.inf
    assert choose(LOGITS, text=text, after=after, **options) == int(wanted.argmax())
    for position in range(200):
        scores = wanted + [core().gumbel(8, position, i) for i in range(len(LOGITS))]
        found = choose(LOGITS, position, temperature=1, seed=8, text=text, after=after, **options)
        assert found == int(scores.argmax())


def test_values_that_are_no_numbers_are_never_chosen() -> None:
    nan = float("nan")
    for options in ({}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 2}):
        assert choose([nan, 1.0, nan], **options) == 1
        assert choose([nan, nan], **options) == -1
    assert choose([-np.inf, 0.0, -np.inf], temperature=5.0) == 1


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"temperature": -1}, "temperature is -1; expected a number from 0 to 100"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": 10**400}, "temperature is 1000"),
        ({"top_k": True}, "top_k is True"),
        ({"top_k": 1.5}, "top_k is 1.5; expected a whole number"),
        ({"top_p": 1.01}, "top_p is 1.01; expected a number from 0 to 1"),
        ({"min_p": "x"}, "min_p is 'x'"),
        ({"repeat_penalty": 0}, "repeat_penalty is 0; expected a number from 0.01"),
        ({"repeat_last_n": -2}, "repeat_last_n is -2"),
        ({"seed": -1}, "seed is -1"),
        ({"draft_sampling": "both"}, "draft_sampling is 'both'; expected gumbel or rejection"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"logit_bias": {1: math.inf}}, "logit_bias has 1: inf"),
        ({"logit_bias": {1: 10**400}}, "logit_bias has 1: 1000"),
        ({"logit_bias": {"a": 1.0}}, "logit_bias has 'a': 1.0"),
        ({"logit_bias": {2**31: 1.0}}, "logit_bias has 2147483648: 1.0"),
        ({"logit_bias": None}, "logit_bias is None; expected a mapping"),
        ({"logit_bias": [7]}, r"logit_bias is \[7\]; expected a mapping"),
    ],
)
def test_settings_out_of_range_are_named(setting: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected.replace("*", r"\*")):
        Sampling(**setting)


def test_a_bias_stays_as_it_was_checked() -> None:
    given = {1: 2.0}
    sampling = Sampling(logit_bias=given)
    given[1] = math.nan
    assert sampling.native().bias == [(1, 2.0)]


def test_a_seed_is_drawn_where_none_is_given() -> None:
    assert Sampling().seed != Sampling().seed
    assert Sampling(seed=2**64 - 1).native().seed == 2**64 - 1


SETTINGS: list[Mapping[str, Any]] = [
    {"temperature": 0.8, "seed": 42},
    {"temperature": 1.5, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "seed": 7},
    {"temperature": 1.0, "typical": 0.8, "seed": 9},
    {"repeat_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.1, "seed": 1},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_seed_gives_one_text_whatever_is_drafted(pair: Pair, settings: Mapping[str, Any]) -> None:
    sampling, texts = Sampling(**settings), set()
    prompt = [5, 80, 200, 31, 7]
    options: dict[str, Any] = {"max_tokens": 60, "sampling": sampling, "ignore_end": True}
    with dflash_gguf.load(pair.target, kv_type="f32") as engine:
        texts.add(tuple(engine.generate(prompt, **options).tokens))
    with dflash_gguf.load(pair.target, pair.draft, kv_type="f32", sequences=3) as engine:
        for block in (2, 4, 8):
            texts.add(tuple(engine.generate(prompt, block=block, **options).tokens))
        others = [
            engine.start([3, 4], max_tokens=40, sampling=Sampling(temperature=2.0, seed=s))
            for s in (1, 2)
        ]
        texts.add(tuple(engine.generate(prompt, **options).tokens))  # among others
        assert all(other.finish_reason for other in others)
    assert len(texts) == 1
    (text,) = texts
    assert len(set(text)) > 5


def test_other_seeds_give_other_texts(pair: Pair) -> None:
    with dflash_gguf.load(pair.target) as engine:
        texts = {
            tuple(
                engine.generate(
                    [1, 2, 3],
                    max_tokens=20,
                    sampling=Sampling(temperature=1, seed=seed),
                    ignore_end=True,
                ).tokens
            )
            for seed in range(5)
        }
    assert len(texts) == 5


def test_a_bias_outside_the_vocabulary_is_refused(pair: Pair) -> None:
    with (
        dflash_gguf.load(pair.target) as engine,
        pytest.raises(UsageError, match="the bias of token 99999 is outside the vocabulary of 262"),
    ):
        engine.start([1], sampling=Sampling(logit_bias={99999: 1.0}))
