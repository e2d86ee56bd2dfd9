"""Reported faults of long and batched answers (cases R1, R3, R8), with real drafters and scripted ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import UsageError
from dflash_gguf._native import core

from .support.random_pairs import VOCAB, Pair
from .support.requantised import requantised
from .support.sessions import ENDLESS, finish, open_session, plain
from .support.tiny import BLOCK, Tiny

PROMPT = [72, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100]
QUICK: dict[str, Any] = {"threads": 1, "context": 1024, "kv_type": "f32"}
LONG = 512
GAP = 0.1  # logits: a larger gap between the two best tokens is decided alike by every kernel


@pytest.fixture(scope="module")
def f32(tiny: Tiny) -> Pair:
    """The trained pair in f32."""
    return Pair(tiny.target_f32, tiny.draft("f32"))


@pytest.mark.parametrize("kind", ["dense", "hybrid", "trained"])
def test_long_text_is_plain_for_every_number_accepted(  # R1
    request: pytest.FixtureRequest, kind: str
) -> None:
    pair: Pair = request.getfixturevalue("f32" if kind == "trained" else kind)
    sizes: dict[str, Any] = {"n_ctx": 768}
    block, vocab = (BLOCK, 1280) if kind == "trained" else (8, VOCAB)
    expected = plain(pair.target, PROMPT, LONG, **sizes)
    for count in range(block):
        drafter = core().ScriptedDrafter(vocab)
        session = open_session(pair.target, block=block, drafter=drafter, **sizes)
        number = session.add(PROMPT, max_tokens=LONG, block=block, stops=ENDLESS)
        drafter.script(number, PROMPT + expected, [count])
        assert finish(session, [number])[number] == expected
        assert session.counters(number).rounds == -(-(LONG - 1) // (count + 1))


@pytest.mark.parametrize("kind", ["dense", "hybrid", "trained"])
def test_long_text_is_plain_with_the_pairs_own_drafter(  # R1, R3
    request: pytest.FixtureRequest, tiny: Tiny, kind: str
) -> None:
    """A random drafter is hardly ever right: what it leaves behind would show in a thousand tokens."""
    pair: Pair = request.getfixturevalue("f32" if kind == "trained" else kind)
    options: dict[str, Any] = {"max_tokens": LONG if kind == "trained" else 980}
    options["ignore_end"] = True
    prompt: Any = tiny.prompts[40]["messages"] if kind == "trained" else PROMPT
    with dflash_gguf.load(pair.target, **QUICK) as engine:
        expected = engine.generate(prompt, **options).tokens
    with dflash_gguf.load(pair.target, pair.draft, **QUICK) as engine:
        widest = BLOCK if kind == "trained" else 8
        for block in (widest, "auto"):
            answer = engine.generate(prompt, block=block, **options)
            assert answer.tokens == expected
            if block == widest:
                assert answer.stats is not None
                rate = answer.stats.acceptance_rate
                assert rate is not None
                assert rate > 0.1 if kind == "trained" else rate < 0.1


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_K"])
def test_quantised_targets_differ_only_at_near_ties(  # R1
    tiny: Tiny, tmp_path: Path, kind: str
) -> None:
    target = requantised(tiny.target, tmp_path / "t.gguf", kind)
    gaps = []
    with (
        dflash_gguf.load(target, threads=1, context=1024) as alone,
        dflash_gguf.load(target, tiny.draft("q5_k_m"), threads=1, context=1024) as engine,
    ):
        for prompt in tiny.prompts[::16]:
            own = alone.generate(prompt["messages"], max_tokens=256, logprobs=2)
            for block in (4, BLOCK):
                drafted = engine.generate(prompt["messages"], max_tokens=256, block=block)
                pairs = zip(own.tokens, drafted.tokens, strict=False)
                at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
                if at is None:
                    assert drafted.tokens == own.tokens
                    continue
                (_, best), (_, second) = own.logprobs[at].top
                gaps.append(best - second)
                print(f"{prompt['id']}, block {block}: differs at {at}, top-2 gap {gaps[-1]:.4f}")
    print(f"{kind}: {len(gaps)} of 12 texts differ")
    assert max(gaps, default=0) <= GAP


BATCHES = [(2048, 512), (64, 32), (33, 17), (1000, 1000)]


@pytest.mark.parametrize("kind", ["dense", "hybrid", "trained"])
def test_batches_of_any_size_change_nothing(  # R8
    request: pytest.FixtureRequest, tiny: Tiny, kind: str
) -> None:
    pair: Pair = request.getfixturevalue("f32" if kind == "trained" else kind)
    prompt = [(7 * i) % 256 for i in range(1000)]
    if kind == "trained":
        long = [token for number in range(20) for token in tiny.text(number)]
        prompt = long[:1000]
    assert len(prompt) == 1000
    found = []
    for batch, ubatch in BATCHES:
        options = {**QUICK, "context": 1280, "flash_attn": False, "batch": batch, "ubatch": ubatch}
        block = BLOCK if kind == "trained" else 8
        with dflash_gguf.load(pair.target, pair.draft, block=block, **options) as engine:
            answer = engine.generate(prompt, max_tokens=100, ignore_end=True)
        assert answer.stats is not None
        assert answer.stats.injected == 1000 + answer.stats.emitted - 1
        found.append((answer.tokens, answer.stats.accepted_at, answer.stats.rounds))
    assert found == found[:1] * len(BATCHES)
    assert kind != "trained" or sum(found[0][1]) > 20, "nothing accepted tests nothing"


def test_a_small_ubatch_is_refused(hybrid: Pair) -> None:  # R8
    options: dict[str, Any] = {"threads": 1, "context": 256, "batch": 64}
    with pytest.raises(UsageError, match="ubatch is 8; expected at least 9 for 1 sequences"):
        dflash_gguf.load(hybrid.target, hybrid.draft, ubatch=8, **options)
    with dflash_gguf.load(hybrid.target, hybrid.draft, ubatch=9, **options) as engine:
        assert len(engine.generate(PROMPT, max_tokens=20, ignore_end=True, block=8).tokens) == 20
