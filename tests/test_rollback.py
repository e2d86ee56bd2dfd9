"""Going back by decoding again: for hybrid targets without snapshots, the same text as plain decoding."""

from __future__ import annotations

import random

import pytest

from dflash_gguf._native import core

from .support.random_pairs import VOCAB, Pair, make_pair
from .support.sessions import ENDLESS, finish, open_session, plain

PROMPT = [72, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100]


@pytest.fixture(scope="module")
def stateless(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A hybrid target of an architecture for which llama.cpp keeps no snapshots, and its drafter."""
    return make_pair(tmp_path_factory.mktemp("next"), hybrid=True, experts=2)


@pytest.fixture(params=["dense", "hybrid", "stateless"])
def any_pair(request: pytest.FixtureRequest) -> Pair:
    made: Pair = request.getfixturevalue(request.param)
    return made


@pytest.mark.parametrize("block", [2, 8, 16])
def test_text_is_plain_for_every_number_accepted(any_pair: Pair, block: int) -> None:  # R1, R2
    expected = plain(any_pair.target, PROMPT, 60)
    for count in range(block):
        drafter = core().ScriptedDrafter(VOCAB)
        session = open_session(any_pair.target, block=block, drafter=drafter, replay=True)
        number = session.add(PROMPT, max_tokens=60, block=block, stops=ENDLESS)
        drafter.script(number, PROMPT + expected, [count])
        assert finish(session, [number])[number] == expected
        counters = session.counters(number)
        assert counters.emitted == 60 == 1 + counters.rounds + counters.accepted


def test_rejected_drafts_leave_no_trace(any_pair: Pair) -> None:  # R3
    expected = plain(any_pair.target, PROMPT, 1000, n_ctx=1024)
    numbers = random.Random(3)
    for counts in ([0], [numbers.randrange(8) for _ in range(97)]):
        drafter = core().ScriptedDrafter(VOCAB)
        session = open_session(any_pair.target, block=8, drafter=drafter, n_ctx=1024, replay=True)
        number = session.add(PROMPT, max_tokens=1000, block=8, stops=ENDLESS)
        drafter.script(number, PROMPT + expected, counts)
        assert finish(session, [number])[number] == expected


def test_rows_are_injected_once_though_decoded_twice(hybrid: Pair) -> None:  # R7
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(hybrid.target, block=8, drafter=drafter, replay=True)
    number = session.add(PROMPT, max_tokens=60, block=8, stops=ENDLESS)
    drafter.script(number, PROMPT + plain(hybrid.target, PROMPT, 60), [5, 0, 7, 2])
    seen = []
    while not seen or seen[-1].finish == core().Finish.none:
        seen += session.step()  # ScriptedDrafter.inject throws on a gap
        counters = session.counters(number)
        if seen[-1].finish == core().Finish.none:
            assert counters.injected == len(PROMPT) + counters.emitted - 1
    assert session.times.rollback > 0


def test_sequences_join_and_leave_as_ever(any_pair: Pair) -> None:  # B7
    prompts = [[(i * 37 + 11 * k) % 256 for k in range(5 + 9 * i)] for i in range(4)]
    alone = [plain(any_pair.target, prompt, 50) for prompt in prompts]
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(any_pair.target, block=8, sequences=3, drafter=drafter, replay=True)
    counts = [[i, 7, 0, 3] for i in range(4)]

    def join(i: int) -> int:
        number: int = session.add(prompts[i], max_tokens=50, block=8 - i, stops=ENDLESS)
        drafter.script(number, prompts[i] + alone[i], counts[i])
        return number

    first, leaver = join(0), join(1)
    tokens = [t for _ in range(5) for out in session.step() if out.id == first for t in out.tokens]
    session.remove(leaver)
    others = [join(2), join(3)]
    rest = finish(session, [first, *others])
    assert others[0] == leaver, "ids are used again"
    assert tokens + rest[first] == alone[0]
    assert [rest[number] for number in others] == alone[2:]


def test_a_failing_drafter_leaves_plain_decoding(hybrid: Pair) -> None:  # B6
    expected = plain(hybrid.target, PROMPT, 60)
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(hybrid.target, block=8, drafter=drafter, replay=True)
    number = session.add(PROMPT, max_tokens=60, block=8, stops=ENDLESS)
    drafter.script(number, PROMPT + expected, [2])
    drafter.fail_at(number, 5)
    assert finish(session, [number])[number] == expected
    assert session.counters(number).drafting_rounds == 5


def test_snapshots_are_refused_where_llama_cpp_keeps_none(stateless: Pair) -> None:
    with pytest.raises(ValueError, match="'qwen3next' keeps 0 states to go back to, a block of 8"):
        open_session(stateless.target, block=8)


def test_the_random_target_says_something(stateless: Pair) -> None:
    tokens = plain(stateless.target, PROMPT, 40)
    assert len(set(tokens)) > 5, "a text that says one token tests nothing"
