"""Prefix reuse: what is kept saves reading, and changes nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dflash_gguf
from dflash_gguf import Engine, Sampling, Sequence
from dflash_gguf._native import core

from .support.random_pairs import Pair
from .support.tiny import Tiny

# one block width, so that drafts can be compared, and no flash attention, whose half precision makes logits depend
# on how a text is cut into batches (by 0.01, else by 0.00001)
QUICK: dict[str, Any] = {
    "threads": 1,
    "context": 512,
    "kv_type": "f32",
    "block": 8,
    "flash_attn": False,
}
ENDLESS: dict[str, Any] = {"max_tokens": 24, "ignore_end": True}

Loader = Callable[..., Engine]


@pytest.fixture
def load(pair: Pair) -> Iterator[Loader]:
    """Open engines on a pair; all are closed at the end."""
    opened: list[Engine] = []

    def opener(**options: Any) -> Engine:
        opened.append(dflash_gguf.load(pair.target, pair.draft, **{**QUICK, **options}))
        return opened[-1]

    yield opener
    for engine in opened:
        engine.close()


def ids(seed: int, count: int) -> list[int]:
    """Return random token ids."""
    numbers = random.Random(seed)
    return [numbers.randrange(256) for _ in range(count)]


def reused(answer: Sequence) -> int:
    assert answer.stats is not None
    return answer.stats.reused_tokens


def assert_like_fresh(answer: Sequence, fresh: Engine, **options: Any) -> None:
    """The text, and how many drafts were accepted at each place, are those of an engine that kept nothing."""
    again = fresh.generate(list(answer.prompt), **{**ENDLESS, **options})
    assert again.stats is not None
    assert answer.stats is not None
    assert again.stats.reused_tokens == 0
    assert answer.tokens == again.tokens
    assert answer.stats.accepted_at == again.stats.accepted_at
    assert answer.stats.rounds == again.stats.rounds
    read = answer.stats.prompt_tokens - answer.stats.reused_tokens
    assert answer.stats.injected == read + answer.stats.emitted - 1


def test_the_second_turn_reads_only_what_follows_the_first(
    load: Loader, pair: Pair
) -> None:  # R6, V9
    engine, fresh = load(), load(prefix_memory=0)
    hybrid = "hybrid" in str(pair.target)
    messages = [
        {"role": "system", "content": "Answer in one short sentence."},
        {"role": "user", "content": "Why is the sky blue in the daytime?"},
    ]
    first = engine.generate(messages, **ENDLESS)
    assert reused(first) == 0
    assert_like_fresh(first, fresh)
    messages += [
        {"role": "assistant", "content": "Because air scatters blue light."},
        {"role": "user", "content": "And at sunset?"},
    ]
    second = engine.generate(messages, **ENDLESS)
    # the template opens <think> for the answer to come, and leaves it out of past ones
    shared = len(engine.encode(messages[:2])) - len("<think>") + len("<think>") - 2
    opened = len("\n") + 1  # <think> is one token
    border = len(engine.encode(messages[:2])) - opened
    assert shared == border
    if hybrid:  # its state was kept where the messages ended
        border -= 1 + len("assistant\n")
    assert reused(second) == border
    assert_like_fresh(second, fresh)


def test_a_prompt_that_goes_on_from_the_answer_reads_only_what_is_new(load: Loader) -> None:
    engine, fresh = load(), load(prefix_memory=0)
    first = engine.generate(ids(1, 50), **ENDLESS)
    text = [*first.prompt, *first.tokens]
    second = engine.generate([*text, *ids(2, 9)], **ENDLESS)
    assert reused(second) == len(text) - 1  # the last token was never read
    assert_like_fresh(second, fresh)


@pytest.mark.parametrize("length", [1, 2, 33, 300])
def test_the_same_prompt_twice(load: Loader, length: int) -> None:
    engine, fresh = load(), load(prefix_memory=0)
    first, second = (engine.generate(ids(3, length), **ENDLESS) for _ in range(2))
    least = 33  # shorter ones are read again as quickly, where a state must be kept for it
    assert reused(second) == length - 1 or length < least
    assert first.tokens == second.tokens
    assert_like_fresh(second, fresh)


def test_a_prompt_that_is_the_beginning_of_a_kept_one(load: Loader, pair: Pair) -> None:
    engine, fresh = load(), load(prefix_memory=0)
    engine.generate(ids(4, 120), **ENDLESS)
    shorter = engine.generate(ids(4, 80), **ENDLESS)
    # a recurrent state of the middle was not kept
    assert reused(shorter) == (0 if "hybrid" in str(pair.target) else 79)
    assert_like_fresh(shorter, fresh)


def test_a_prompt_that_parts_in_the_middle(load: Loader, pair: Pair) -> None:
    engine, fresh = load(), load(prefix_memory=0)
    common = ids(5, 100)
    engine.generate(common, **ENDLESS)
    engine.generate(common + ids(6, 60), **ENDLESS)
    other = engine.generate(common + ids(7, 60), **ENDLESS)
    assert reused(other) == (99 if "hybrid" in str(pair.target) else 100)
    assert_like_fresh(other, fresh)


def test_answers_at_once_share_what_the_first_has_read(load: Loader) -> None:
    engine, fresh = load(sequences=4), load(prefix_memory=0)
    common = ids(8, 150)
    prompts = [common, common, common + ids(9, 40), common + ids(10, 5)]
    for turn in range(3):
        answers = [engine.start(prompt, **ENDLESS) for prompt in prompts]
        while engine.busy:
            engine.step()
        for answer in answers:
            assert_like_fresh(answer, fresh)
        known = [reused(answer) for answer in answers]
        assert known[0] == (0 if turn == 0 else len(prompts[0]) - 8), known
        assert min(known[1:]) >= 149, known
        prompts = [[*answer.prompt, *answer.tokens, *ids(turn, 7)] for answer in answers]


def test_conversations_that_take_turns_in_one_sequence_are_all_kept(load: Loader) -> None:
    engine, fresh = load(), load(prefix_memory=0)
    texts = [ids(20 + i, 60) for i in range(4)]
    for turn in range(3):
        for i, text in enumerate(texts):
            answer = engine.generate(text, **ENDLESS)
            assert reused(answer) >= (len(text) - 8 - 1 if turn else 0)
            assert_like_fresh(answer, fresh)
            texts[i] = [*answer.prompt, *answer.tokens, *ids(30 + i, 7)]
    assert engine.kept_bytes > 0


def test_the_budget_holds_and_the_oldest_goes_first(load: Loader) -> None:
    probe = load()
    for seed in range(2):
        probe.generate(ids(seed, 100), **ENDLESS)
    one = probe.kept_bytes  # what the first text takes outside the sequence's caches, at least
    engine = load(prefix_memory=3 * one)
    for seed in range(8):
        engine.generate(ids(seed, 100), **ENDLESS)
        assert engine.kept_bytes <= 3 * one
    assert reused(engine.generate(ids(6, 100), **ENDLESS)) == 99
    assert reused(engine.generate(ids(0, 100), **ENDLESS)) == 0
    off = load(prefix_memory=0)
    off.generate(ids(0, 100), **ENDLESS)
    assert reused(off.generate(ids(0, 100), **ENDLESS)) == 0
    assert off.kept_bytes == 0


def test_what_a_cancelled_request_has_read_is_kept(load: Loader) -> None:
    engine, fresh = load(), load(prefix_memory=0)
    long = ids(11, 400)  # more than one chunk
    started = engine.start(long, **ENDLESS)
    engine.step()
    engine.cancel(started)
    assert started.tokens == []
    again = engine.generate(long, **ENDLESS)
    assert reused(again) == 256
    assert_like_fresh(again, fresh)
    started = engine.start(ids(12, 60), **ENDLESS)
    for _ in range(4):
        engine.step()
    engine.cancel(started)
    text = [*started.prompt, *started.tokens]
    again = engine.generate([*text, *ids(13, 5)], **ENDLESS)
    assert reused(again) == len(text) - 1
    assert_like_fresh(again, fresh)
    engine.cancel(engine.start(ids(14, 60), **ENDLESS))  # before anything of it was read
    assert_like_fresh(engine.generate(ids(12, 60), **ENDLESS), fresh)


def test_a_seeds_text_is_the_same_with_and_without_reuse(load: Loader) -> None:
    engine, fresh = load(), load(prefix_memory=0)
    sampling = Sampling(temperature=0.8, seed=42)
    text = ids(15, 70)
    for turn in range(4):
        answer = engine.generate(text, sampling=sampling, **ENDLESS)
        assert (reused(answer) > 0) == (turn > 0)
        assert_like_fresh(answer, fresh, sampling=sampling)
        text = [*answer.prompt, *answer.tokens, *ids(turn, 11)]


def test_twenty_turns_in_a_small_context(load: Loader) -> None:  # B4
    engine, fresh = load(), load(prefix_memory=0)
    turns: list[dict[str, str]] = []
    saved = 0
    for turn in range(20):
        turns.append({"role": "user", "content": f"Question {turn}: " + "why? " * (turn % 7)})
        while len(engine.encode(turns)) + ENDLESS["max_tokens"] > engine.n_ctx:
            del turns[:2]
        answer = engine.generate(turns, **{**ENDLESS, "max_tokens": 8})
        saved += reused(answer)
        assert_like_fresh(answer, fresh, max_tokens=8)
        turns.append({"role": "assistant", "content": f"Answer {turn}. " + "So. " * (turn % 5)})
    assert saved > 1000


def test_the_trained_drafter_accepts_as_if_fresh(tiny: Tiny) -> None:  # R6
    options = {"threads": 1, "context": 1024, "kv_type": "f32", "block": 16}
    draft = tiny.draft("f32")
    saved = 0
    with (
        dflash_gguf.load(tiny.target_f32, draft, **options) as engine,
        dflash_gguf.load(tiny.target_f32, draft, prefix_memory=0, **options) as fresh,
    ):
        for prompt in tiny.prompts[::24]:
            messages = list(prompt["messages"])
            for _ in range(2):
                answer = engine.generate(messages, max_tokens=80)
                assert_like_fresh(answer, fresh, max_tokens=80, ignore_end=False)
                saved += reused(answer)
                messages += [
                    {"role": "assistant", "content": answer.text},
                    {"role": "user", "content": "And once more?"},
                ]
    assert saved > 0


TOKENS = st.lists(st.integers(0, 2), max_size=12)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(TOKENS, TOKENS, st.sets(st.integers(1, 12)), st.integers(0, 12), st.integers(0, 12))
def test_what_can_be_reused_is_the_longest_state_that_is_a_prefix(
    prompt: list[int], tokens: list[int], points: set[int], least: int, limit: int
) -> None:
    least = min(least, len(tokens))
    points = {count for count in points if count <= len(tokens)}
    states = set(range(least, len(tokens) + 1)) | points | {0}
    usable = [n for n in states if n <= limit and n < len(prompt) and prompt[:n] == tokens[:n]]
    found = core().reusable_prefix(prompt, tokens, sorted(points), least, limit)
    assert found == max(usable, default=0)


def test_what_a_drafter_has_not_been_given_is_not_taken_over(load: Loader) -> None:
    engine, fresh = load(), load(prefix_memory=0)
    first = engine.generate(ids(17, 80), block=1, **ENDLESS)
    text = [*first.prompt, *first.tokens, 5]
    plain = engine.generate(text, block=1, **ENDLESS)
    assert reused(plain) == len(text) - 2
    drafting = engine.generate(text, block=8, **ENDLESS)
    assert reused(drafting) == 0  # its features are gone
    assert_like_fresh(drafting, fresh, block=8)


def test_features_that_wait_go_on_to_the_next_turn(load: Loader) -> None:
    engine, fresh = load(block="auto"), load(prefix_memory=0)
    first = engine.generate(ids(18, 80), block="auto", **ENDLESS)
    text = [*first.prompt, *first.tokens, 5]
    second = engine.generate(text, block=8, **ENDLESS)
    assert reused(second) == len(text) - 2
    again = fresh.generate(text, block=8, **ENDLESS)
    assert again.tokens == second.tokens
    assert again.stats is not None
    assert second.stats is not None
    assert again.stats.accepted_at == second.stats.accepted_at
    assert first.stats is not None
    # every row was given to the drafter once, in whichever of the two
    assert first.stats.injected + second.stats.injected == len(text) + len(second.tokens) - 1


def test_what_was_reused_is_said(load: Loader) -> None:
    engine = load()
    first = engine.generate(ids(16, 50), **ENDLESS)
    assert first.stats is not None
    assert "reused" not in first.stats.line()
    second = engine.generate(ids(16, 50), **ENDLESS)
    assert second.stats is not None
    assert "· reused 49 of 50 ·" in second.stats.line()
