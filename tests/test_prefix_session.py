"""Prefix reuse below the Engine: whatever comes, goes and is kept, every text is the target's own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dflash_gguf._native import core

from .support.random_pairs import VOCAB, Pair
from .support.sessions import ENDLESS, finish, open_session, plain

LONG = 20  # tokens of an answer


def ids(seed: int, count: int) -> list[int]:
    """Return random token ids."""
    numbers = random.Random(seed)
    return [numbers.randrange(256) for _ in range(count)]


class Texts:
    """Prompts that begin alike in many ways, and what the target alone says to each."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._answers: dict[tuple[int, ...], list[int]] = {}
        trunk = ids(1, 120)
        branch = trunk[:70] + ids(2, 50)
        self.prompts = [t[:n] for t in (trunk, branch, ids(3, 40)) for n in (3, 40, 69, 71, 120)]
        self.prompts += [p + self.answer(p)[:12] + ids(4, 6) for p in self.prompts[::2]]

    def answer(self, prompt: list[int]) -> list[int]:
        key = tuple(prompt)
        if key not in self._answers:
            self._answers[key] = plain(self._target, prompt, LONG, exact=True)
        return self._answers[key]


@pytest.fixture(scope="module")
def texts(pair: Pair) -> Texts:
    return Texts(pair.target)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 99), st.integers(1, LONG)),
        st.tuples(st.just("step"), st.integers(1, 6), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 9), st.just(0)),
    ),
    min_size=4,
    max_size=24,
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    OPERATIONS,
    st.sampled_from([1, 3]),
    st.sampled_from([10**4, 10**6, 10**9]),
    st.booleans(),
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
)
def test_requests_that_come_and_go_all_get_the_targets_text(
    pair: Pair,
    texts: Texts,
    operations: list[tuple[str, int, int]],
    sequences: int,
    memory: int,
    replay: bool,
    accepted: list[int],
) -> None:
    drafter = core().ScriptedDrafter(VOCAB)  # throws if rows are injected twice or not at all
    session = open_session(
        pair.target,
        block=5,
        sequences=sequences,
        drafter=drafter,
        n_ctx=256,
        n_batch=48,
        replay=replay,
        prefix_memory=memory,
        exact=True,
    )
    running: dict[int, list[int]] = {}  # what is to come of each
    said: dict[int, list[int]] = {}

    def step() -> None:
        for output in session.step():
            said[output.id] += output.tokens
            expected = running[output.id]
            assert said[output.id] == expected[: len(said[output.id])]
            if output.finish != core().Finish.none:
                assert said[output.id] == expected
                session.remove(output.id)
                del running[output.id]

    for kind, which, tokens in operations:
        if kind == "start" and len(running) < sequences:
            prompt = texts.prompts[which % len(texts.prompts)]
            number = session.add(prompt, max_tokens=tokens, block=5, stops=ENDLESS)
            running[number] = texts.answer(prompt)[:tokens]
            said[number] = []
            drafter.script(number, prompt + texts.answer(prompt), accepted)
        elif kind == "step":
            for _ in range(which):
                step()
        elif kind == "cancel" and running:
            number = sorted(running)[which % len(running)]
            session.remove(number)
            del running[number]
        assert session.kept_bytes <= memory
    while running:
        step()
    assert session.draft_failure == ""


def test_a_target_without_snapshots_reuses_too(hybrid: Pair) -> None:
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(
        hybrid.target, block=5, drafter=drafter, replay=True, prefix_memory=10**9, exact=True
    )
    prompt = ids(5, 90)
    for turn in range(3):
        expected = plain(hybrid.target, prompt, LONG, exact=True)
        number = session.add(prompt, max_tokens=LONG, block=5, stops=ENDLESS)
        drafter.script(number, prompt + expected, [3, 0, 4])
        assert finish(session, [number])[number] == expected
        # all but the last token of the text before, which was never read, and the six new ones
        assert session.counters(number).reused_tokens == (len(prompt) - 7 if turn else 0)
        session.remove(number)
        prompt = prompt + expected + ids(turn, 6)


def test_the_border_is_where_a_state_is_kept(hybrid: Pair) -> None:
    prompt = ids(6, 150)
    for border, saves in ((100, 100), (150, 149), (-1, 149), (20, 0), (0, 0)):
        session = open_session(hybrid.target, block=1, prefix_memory=10**9)
        for turn in range(2):
            number = session.add(prompt, max_tokens=2, block=1, stops=ENDLESS, border=border)
            finish(session, [number])
            assert session.counters(number).reused_tokens == (saves if turn else 0), border
            session.remove(number)
    with pytest.raises(ValueError, match="border 151 is outside the prompt's 150 tokens"):
        session.add(prompt, max_tokens=2, block=1, stops=ENDLESS, border=151)


def test_forgetting_leaves_nothing_but_what_runs(pair: Pair) -> None:
    session = open_session(pair.target, block=1, sequences=3, prefix_memory=10**9, exact=True)
    prompts = [ids(seed, 60) for seed in range(5)]

    def say(prompt: list[int]) -> int:
        number = session.add(prompt, max_tokens=8, block=1, stops=ENDLESS)
        answer: list[int] = []
        while len(answer) < 8:
            answer += [t for output in session.step() if output.id == number for t in output.tokens]
        assert answer == plain(pair.target, prompt, 8, exact=True)
        saved: int = session.counters(number).reused_tokens
        session.remove(number)
        return saved

    for prompt in prompts:
        say(prompt)
    assert say(prompts[0]) == 59
    running = session.add(ids(9, 60), max_tokens=20, block=1, stops=ENDLESS)
    first = [token for output in session.step() for token in output.tokens]
    session.forget_prefixes()
    assert session.kept_bytes == 0
    rest = finish(session, [running])[running]
    assert first + rest == plain(pair.target, ids(9, 60), 20, exact=True)
    assert say(prompts[0]) == 0
