"""Requests that end in the middle of a decode: whatever was lost with it, the next text is the target's own."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import Worker
from dflash_gguf._native import core

from .support.random_pairs import VOCAB, Pair
from .support.sessions import ENDLESS, finish, open_session, plain

PROMPT = [(7 * i + i // 5) % 256 for i in range(90)]
# nodes after which a decode is given up; a graph of the dense target has some 140
FIRST = [1, 9, 60, 200]
BLOCK, PIECE = 6, 32


def opened(pair: Pair, *, memory: int, replay: bool = False, sequences: int = 1) -> tuple[Any, Any]:
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(
        pair.target,
        block=BLOCK,
        sequences=sequences,
        drafter=drafter,
        n_batch=PIECE,
        replay=replay,
        prefix_memory=memory,
        exact=True,
    )
    return session, drafter


def add(session: Any, drafter: Any, prompt: list[int], expected: list[int], **options: Any) -> int:
    settings = {"max_tokens": len(expected), "block": BLOCK, "stops": ENDLESS} | options
    number: int = session.add(prompt, **settings)
    drafter.script(number, prompt + expected, [3, 0, 5])
    return number


def until_cancelled(session: Any, number: int) -> list[int]:
    """Step until the sequence is given up; return what it wrote."""
    tokens: list[int] = []
    for _ in range(1000):
        for output in session.step():
            assert output.id == number
            tokens += output.tokens
            if output.finish != core().Finish.none:
                assert output.finish == core().Finish.cancelled
                return tokens
    pytest.fail("it was never given up")


@pytest.mark.parametrize("nodes", FIRST)
@pytest.mark.parametrize("memory", [0, 10**9])
@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("rounds", [0, 1, 2, 5, 9])
def test_the_next_text_is_right(
    pair: Pair, nodes: int, memory: int, replay: bool, rounds: int
) -> None:
    """rounds: steps before the one that is given up; the first three read the prompt, the third writes too."""
    expected = plain(pair.target, PROMPT, 40, exact=True)
    session, drafter = opened(pair, memory=memory, replay=replay)
    number = add(session, drafter, PROMPT, expected)
    said = [token for _ in range(rounds) for output in session.step() for token in output.tokens]
    session.interrupt(number).set_after(nodes)
    said += until_cancelled(session, number)
    assert said == expected[: len(said)]
    assert len(said) < len(expected)
    session.remove(number)
    for prompt in (PROMPT, PROMPT + said + [5, 6, 7], PROMPT[:50]):
        answer = plain(pair.target, prompt, 20, exact=True)
        number = add(session, drafter, prompt, answer)
        assert finish(session, [number])[number] == answer
        session.remove(number)
    assert session.draft_failure == ""


@pytest.mark.parametrize("replay", [False, True])
def test_a_later_turn_goes_on_from_the_last_state_that_was_kept(pair: Pair, replay: bool) -> None:
    session, drafter = opened(pair, memory=10**9, replay=replay)
    number = add(session, drafter, PROMPT, plain(pair.target, PROMPT, 9, exact=True), border=80)
    said = finish(session, [number])[number]
    session.remove(number)
    later = PROMPT + said + PROMPT[::-1]
    number = add(
        session, drafter, later, plain(pair.target, later, 9, exact=True), border=len(later) - 1
    )
    session.step()  # a piece of what follows the first turn
    session.interrupt(number).set_after(20)
    assert until_cancelled(session, number) == []
    whole = session.counters(number).reused_tokens
    session.remove(number)
    answer = plain(pair.target, later, 9, exact=True)
    number = add(session, drafter, later, answer)
    assert finish(session, [number])[number] == answer
    hybrid = core().Model(str(pair.target)).has_state
    kept = session.counters(number).reused_tokens
    assert kept == (80 if hybrid else whole + PIECE)


def test_a_decode_that_ends_soon_loses_nothing(hybrid: Pair) -> None:
    session, drafter = opened(hybrid, memory=10**9)
    number = add(session, drafter, PROMPT, plain(hybrid.target, PROMPT, 40, exact=True))
    session.step()
    session.interrupt(number).set()  # half a second before a decode would be given up
    assert until_cancelled(session, number) == []
    session.remove(number)
    number = session.add(PROMPT, max_tokens=2, block=1, stops=ENDLESS)
    finish(session, [number])
    assert session.counters(number).reused_tokens == PIECE


HALF = 0.5  # seconds: what a decode is given to end by itself


def test_a_decode_of_seconds_is_given_up_after_half_of_one(pair: Pair) -> None:
    prompt = [(7 * i + i // 5) % 256 for i in range(16_000)]  # some ten seconds on a core
    params: dict[str, Any] = {"n_ctx": 16_384, "n_batch": 16_384, "n_ubatch": 256}
    session = open_session(pair.target, block=1, prefix_memory=10**9, **params)
    number = session.add(prompt, max_tokens=5, block=1, stops=ENDLESS)
    interrupt, pressed = session.interrupt(number), list[float]()

    def press() -> None:
        pressed.append(time.monotonic())
        interrupt.set()

    timer = threading.Timer(0.1, press)  # in the decode
    timer.start()
    said = until_cancelled(session, number)
    waited = time.monotonic() - pressed[0]
    timer.join()
    assert said == []
    assert waited >= HALF
    session.remove(number)
    # it did not end: what it had read is not of use
    number = session.add(prompt[:300], max_tokens=5, block=1, stops=ENDLESS)
    assert finish(session, [number])[number] == plain(pair.target, prompt[:300], 5, exact=True)
    assert session.counters(number).reused_tokens == 0


def test_a_decode_of_several_is_not_given_up(pair: Pair) -> None:
    other = PROMPT[::-1]
    expected = [plain(pair.target, prompt, 40, exact=True) for prompt in (PROMPT, other)]
    session, drafter = opened(pair, memory=0, sequences=2)
    numbers = [add(session, drafter, p, e) for p, e in zip((PROMPT, other), expected, strict=True)]
    for number in numbers:
        session.interrupt(number).set_after(1)
    said: dict[int, list[int]] = {number: [] for number in numbers}
    for _ in range(8):
        for output in session.step():
            assert output.finish == core().Finish.none
            said[output.id] += output.tokens
    session.interrupt(numbers[0]).set()
    outputs = session.step()
    # the other is alone from here on, and what was asked of its decodes comes to pass
    assert [output.id for output in outputs] == numbers
    assert all((o.finish, o.tokens) == (core().Finish.cancelled, []) for o in outputs)
    for number, text in zip(numbers, expected, strict=True):
        assert said[number] == text[: len(said[number])]
        session.remove(number)
    number = add(session, drafter, other, expected[1])
    assert finish(session, [number])[number] == expected[1]


def test_held_text_comes_with_the_end(dense: Pair) -> None:
    expected = plain(dense.target, PROMPT, 4, exact=True)
    model = core().Model(str(dense.target))
    session, drafter = opened(dense, memory=0)
    begins = model.piece(expected[1]) + b"\x00never"
    number = add(session, drafter, PROMPT, expected, stop_strings=[begins], block=1)
    outputs = [output for _ in range(3) for output in session.step()]  # the third writes two tokens
    assert session.held(number) == model.piece(expected[1])
    session.interrupt(number).set()
    outputs += session.step()
    assert outputs[-1].finish == core().Finish.cancelled
    text = b"".join(output.text for output in outputs)
    tokens = [token for output in outputs for token in output.tokens]
    assert text == b"".join(model.piece(token) for token in tokens)


def test_an_answer_is_interrupted_from_any_thread(pair: Pair) -> None:
    options = {"threads": 1, "context": 1024, "kv_type": "f32"}
    with dflash_gguf.load(pair.target, pair.draft, **options) as engine:
        expected = engine.generate(PROMPT, max_tokens=20, ignore_end=True)
        answer = engine.start(PROMPT, ignore_end=True)
        while len(answer.tokens) < 5:
            engine.step()
        thread = threading.Thread(target=answer.interrupt)
        thread.start()
        thread.join()
        ((ended, chunk),) = engine.step()
        assert ended is answer
        assert chunk.finish_reason == answer.finish_reason == "cancelled"
        assert answer.stats is not None
        assert not engine.busy
        answer.interrupt()  # harmless now
        assert engine.generate(PROMPT, max_tokens=20, ignore_end=True).tokens == expected.tokens


def test_a_ticket_ends_in_the_middle_of_a_decode(
    dense: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = dflash_gguf.load
    with Worker(lambda: load(dense.target, threads=1, context=1024)) as worker:
        waits: list[bool] = []
        started, go_on = threading.Event(), threading.Event()

        def step(engine: dflash_gguf.Engine) -> Any:
            started.set()
            waits.append(go_on.wait(30))
            return original(engine)

        original = dflash_gguf.Engine.step
        monkeypatch.setattr(dflash_gguf.Engine, "step", step)
        ticket = worker.submit(PROMPT, ignore_end=True)
        assert started.wait(30)
        ticket.cancel()  # while the worker's thread is in its step
        assert ticket.sequence is not None
        assert ticket.sequence._interrupt is not None
        assert ticket.sequence._interrupt.is_set
        go_on.set()
        assert [chunk.finish_reason for chunk in ticket] == ["cancelled"]
        assert ticket.sequence.tokens == []
