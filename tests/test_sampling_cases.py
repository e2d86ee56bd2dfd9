"""Reported faults of sampling (cases S2, S4, S5, S7): the text is plain decoding's, whatever is drafted."""

from __future__ import annotations

import math
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import Engine, Sampling
from dflash_gguf._native import core

from .support.random_pairs import VOCAB, Pair
from .support.sessions import ENDLESS, finish, open_session
from .support.tiny import Tiny

PROMPT = [72, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100]
QUICK: dict[str, Any] = {"threads": 1, "context": 1024, "kv_type": "f32"}
BLOCKS: tuple[int | str, ...] = (4, 8, 16, "auto")


@pytest.fixture(scope="module")
def f32(tiny: Tiny) -> Pair:
    """The trained pair in f32."""
    return Pair(tiny.target_f32, tiny.draft("f32"))


def texts(engine: Engine, prompt: Any, blocks: Any, **options: Any) -> list[dflash_gguf.Sequence]:
    return [engine.generate(prompt, block=block, **options) for block in blocks]


PENALTIES = Sampling(repeat_penalty=1.1, presence_penalty=1.5, seed=1)


def test_penalties_go_on_inside_blocks(f32: Pair, tiny: Tiny) -> None:  # S2
    options: dict[str, Any] = {"max_tokens": 300, "ignore_end": True, "sampling": PENALTIES}
    prompts = [tiny.prompts[number]["messages"] for number in (20, 60)]
    with dflash_gguf.load(f32.target, **QUICK) as alone:
        expected = [alone.generate(prompt, **options).tokens for prompt in prompts]
        free = alone.generate(prompts[0], max_tokens=300, ignore_end=True)
    assert free.tokens != expected[0], "penalties that change nothing test nothing"
    with dflash_gguf.load(f32.target, f32.draft, **QUICK) as engine:
        for prompt, own in zip(prompts, expected, strict=True):
            assert len(own) == 300
            answers = texts(engine, prompt, BLOCKS, **options)
            assert [answer.tokens for answer in answers] == [own] * len(BLOCKS)
            assert all(a.stats is not None and a.stats.drafted for a in answers[:3])


@pytest.mark.parametrize("accepted", [[7], [0], [3, 7, 0, 1]])
def test_penalties_count_every_accepted_token(pair: Pair, accepted: list[int]) -> None:  # S2
    session = open_session(pair.target, block=1)
    native = PENALTIES.native()
    number = session.add(PROMPT, max_tokens=300, block=1, stops=ENDLESS, sampling=native)
    expected = finish(session, [number])[number]
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(pair.target, block=8, drafter=drafter)
    number = session.add(PROMPT, max_tokens=300, block=8, stops=ENDLESS, sampling=native)
    drafter.script(number, PROMPT + expected, accepted)
    assert finish(session, [number])[number] == expected
    counters = session.counters(number)
    assert counters.emitted == 300 == 1 + counters.rounds + counters.accepted
    if accepted == [7]:
        assert counters.rounds == -(-299 // 8), "all that was right must be accepted"


def test_every_block_gives_one_text_and_tells_its_figures(f32: Pair, tiny: Tiny) -> None:  # S4
    prompt = tiny.prompts[8]["messages"]
    with dflash_gguf.load(f32.target, f32.draft, **QUICK) as engine:
        answers = texts(engine, prompt, BLOCKS, max_tokens=200)
        plain = engine.generate(prompt, max_tokens=200, block=1)
    assert len(plain.tokens) > 40
    for block, answer in zip(BLOCKS, answers, strict=True):
        assert (answer.tokens, answer.finish_reason) == (plain.tokens, plain.finish_reason)
        assert answer.stats is not None
        if block != "auto":
            assert answer.stats.accept_length is not None
            assert 1 < answer.stats.accept_length <= block  # type: ignore[operator]
            told = f"accept {answer.stats.accept_length:.1f}/{block} "
            assert told in answer.stats.line()
        assert f"{len(plain.tokens)} tok · {answer.stats.tokens_per_second:,.1f} tok/s" in (
            answer.stats.line()
        )


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("kind", ["dense", "hybrid", "trained"])
def test_a_seeds_text_comes_back(  # S5
    request: pytest.FixtureRequest, tiny: Tiny, kind: str, temperature: float
) -> None:
    pair: Pair = request.getfixturevalue("f32" if kind == "trained" else kind)
    prompt: Any = tiny.prompts[3]["messages"] if kind == "trained" else PROMPT * 5
    sampling = Sampling(temperature=temperature, seed=42)
    options: dict[str, Any] = {"max_tokens": 120, "ignore_end": True, "sampling": sampling}
    found = []
    for draft in (None, pair.draft):
        with dflash_gguf.load(pair.target, draft, **QUICK) as engine:
            found += [engine.generate(prompt, **options) for _ in range(2)]
            engine.generate(PROMPT[::-1] * 9, max_tokens=30, ignore_end=True)
            found.append(engine.generate(prompt, **options))
            widths = (8, 4) if draft else ()
            found += texts(engine, prompt, widths, **options)
    assert len({tuple(answer.tokens) for answer in found}) == 1
    assert len(found[0].tokens) == 120
    assert len(set(found[0].tokens)) > 5


@pytest.mark.parametrize("draft_sampling", ["gumbel", "rejection"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_banned_token_is_drafted_and_never_written(  # S7
    pair: Pair, temperature: float, draft_sampling: str
) -> None:
    def answer(sampling: Sampling, block: int, drafts: list[int]) -> tuple[list[int], int]:
        drafter = core().ScriptedDrafter(VOCAB)
        session = open_session(pair.target, block=block, drafter=drafter)
        number = session.add(
            PROMPT, max_tokens=200, block=block, stops=ENDLESS, sampling=sampling.native()
        )
        drafter.script(number, PROMPT + drafts, [block])
        tokens = finish(session, [number])[number]
        return tokens, session.counters(number).drafted

    settings: dict[str, Any] = {"temperature": temperature, "seed": 3}
    free, _ = answer(Sampling(**settings), 1, [])
    often = max(set(free), key=free.count)
    banned = Sampling(**settings, logit_bias={often: -math.inf}, draft_sampling=draft_sampling)
    for drafts in ([often] * 250, free):  # nothing but the banned token, and what would be written
        tokens, drafted = answer(banned, 8, drafts)
        assert drafted > 200
        assert often not in tokens
        if draft_sampling == "gumbel":
            assert tokens == answer(banned, 1, [])[0]
    wanted = Sampling(**settings, logit_bias={7: 100.0}, draft_sampling=draft_sampling)
    assert set(answer(wanted, 8, free)[0]) == {7}


def test_the_trained_drafter_drafts_what_is_banned(f32: Pair, tiny: Tiny) -> None:  # S7
    prompt = tiny.prompts[8]["messages"]
    with dflash_gguf.load(f32.target, f32.draft, **QUICK) as engine:
        free = engine.generate(prompt, max_tokens=80, block=16)
        often = max(set(free.tokens[:-1]), key=free.tokens.count)
        banned = Sampling(logit_bias={often: -math.inf}, seed=1)
        own, *drafted = texts(engine, prompt, (1, *BLOCKS), max_tokens=80, sampling=banned)
    assert often in free.tokens
    assert often not in own.tokens
    assert [answer.tokens for answer in drafted] == [own.tokens] * len(BLOCKS)
