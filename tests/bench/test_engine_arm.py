"""This engine as an arm: the same texts as Engine gives, counted and timed."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import Engine, Options, Sampling, Simulation, UsageError
from dflash_gguf.bench import engine_arm
from dflash_gguf.bench.engine_arm import EngineArm
from dflash_gguf.bench.peak_memory import forget_peak, peak_memory
from dflash_gguf.bench.records import Ask, Cell, Question
from dflash_gguf.errors import DflashError, ModelError, ResourceError

from ..support.bench import ASK, TALKS
from ..support.edited import edited
from ..support.random_pairs import Pair

QUICK = Options(threads=1, context=512)


def texts(cell: Cell) -> list[tuple[int, int, str]]:
    return [(turn.question, turn.turn, turn.text) for turn in cell.turns]


@pytest.fixture
def arm(pair: Pair) -> Iterator[EngineArm]:
    with closing(EngineArm(pair.target, pair.draft, block=4, options=QUICK)) as made:
        yield made


@pytest.mark.parametrize("concurrency", [1, 3])
def test_conversations_are_answered_as_the_engine_answers_them(
    pair: Pair, arm: EngineArm, concurrency: int
) -> None:
    cell = arm.run(TALKS, ASK, concurrency)
    expected = []
    template = {"enable_thinking": False}
    with dflash_gguf.load(pair.target, options=QUICK) as engine:
        for question in TALKS:
            messages = question.opening()
            for number, said in enumerate(question.turns):
                messages.append({"role": "user", "content": said})
                answer = engine.generate(messages, max_tokens=ASK.max_tokens, template=template)
                messages.append({"role": "assistant", "content": answer.text})
                expected.append((question.number, number, answer.text))
    assert texts(cell) == expected
    assert (cell.arm, cell.workload, cell.concurrency, cell.run) == (
        "dflash 4",
        "made",
        concurrency,
        0,
    )


def test_counts_and_times_are_those_of_the_engine(arm: EngineArm) -> None:
    began = time.perf_counter()
    cell = arm.run(TALKS, ASK, 2)
    wall = time.perf_counter() - began
    for turn in cell.turns:
        assert turn.rounds is not None
        assert turn.accepted is not None
        assert turn.completion_tokens == 1 + turn.rounds + turn.accepted
        assert turn.drafted == sum(turn.drafted_at) > 0
        assert turn.accepted == sum(turn.accepted_at)
        assert turn.first is not None
        assert 0 <= turn.start < turn.first < turn.last <= cell.seconds <= wall
    assert sum(cell.shares.values()) == pytest.approx(cell.seconds)
    assert all(seconds > 0 for name, seconds in cell.shares.items() if name != "rollback")
    reading = sum(turn.prefill_seconds or 0 for turn in cell.turns)
    assert cell.shares["prefill"] == pytest.approx(reading)
    assert cell.peak_memory is not None
    assert cell.peak_memory > 2**20


def test_only_so_many_are_answered_at_a_time(arm: EngineArm) -> None:
    questions = tuple(Question("made", number, (f"Say {number}.",)) for number in range(7))
    turns = arm.run(questions, ASK, 3).turns
    assert len(turns) == 7
    for moment in [turn.start for turn in turns]:
        going = [turn for turn in turns if turn.start <= moment < turn.last]
        assert len(going) <= 3
    assert any(  # and so many are
        sum(other.start <= turn.start < other.last for other in turns) == 3 for turn in turns
    )


def test_turns_of_a_conversation_wait_for_each_other(arm: EngineArm) -> None:
    turns = {(turn.question, turn.turn): turn for turn in arm.run(TALKS, ASK, 4).turns}
    assert len(turns) == 7
    for question in (1, 3):
        for number in range(1, len(TALKS[question].turns)):
            later, before = turns[question, number], turns[question, number - 1]
            assert later.start >= before.last
            assert later.prompt_tokens > before.prompt_tokens + before.completion_tokens


def test_every_prompt_is_read_anew(arm: EngineArm) -> None:
    first, again = (arm.run(TALKS[:2], ASK, 1) for _ in range(2))
    assert texts(first) == texts(again)
    engine = arm._engine
    assert engine is not None
    assert engine._open().session.prefix_memory == 0


def test_what_is_kept_of_a_cell_serves_no_other(
    dense: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten = []
    original = Engine.forget_prefixes
    monkeypatch.setattr(
        Engine, "forget_prefixes", lambda engine: forgotten.append(engine) or original(engine)
    )
    with closing(EngineArm(dense.target, options=QUICK, prefix_memory=2**24)) as arm:
        for cells in (1, 2):
            arm.run(TALKS[:1], ASK, 1)
            assert len(forgotten) == cells


def test_a_later_cell_counts_its_own_seconds(arm: EngineArm) -> None:
    for _ in range(2):
        cell = arm.run(TALKS[:2], ASK, 1)
        reading = sum(turn.prefill_seconds or 0 for turn in cell.turns)
        assert cell.shares["prefill"] == pytest.approx(reading)


def test_all_that_is_asked_reaches_the_engine(dense: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dflash_gguf.Params] = []
    original = Engine.start
    monkeypatch.setattr(
        Engine,
        "start",
        lambda engine, prompt, params: seen.append(params) or original(engine, prompt, params),
    )
    ask = Ask(5, temperature=0.5, top_p=0.9, top_k=7, seed=3, think=True, ignore_end=True)
    with closing(EngineArm(dense.target, options=QUICK)) as arm:
        arm.run(TALKS[2:3], ask, 1)
        arm.run(TALKS[2:3], Ask(5), 1)
    sampled, greedy = seen
    sampling = Sampling(temperature=0.5, top_p=0.9, top_k=7, seed=5)
    template = {"enable_thinking": True}
    assert sampled == dflash_gguf.Params(
        max_tokens=5, sampling=sampling, template=template, ignore_end=True
    )
    assert greedy == dflash_gguf.Params(max_tokens=5)


@pytest.mark.parametrize("block", [2, "auto"])
def test_arms_say_what_they_are(dense: Pair, block: int | str) -> None:
    with closing(EngineArm(dense.target, dense.draft, block=block, options=QUICK)) as arm:
        assert (arm.facts.mode, arm.facts.width) == ("dflash", block)
        cell = arm.run(TALKS[:1], ASK, 1)
        assert cell.arm == arm.facts.name == f"dflash {block}"
        assert len(cell.turns[0].drafted_at) <= (1 if block == 2 else 7)
    plain = EngineArm(dense.target, options=QUICK)
    assert (plain.facts.name, plain.facts.mode, plain.facts.width) == ("ar", "ar", None)
    assert plain.facts.details["template"] == "chat"


def test_thinking_is_as_asked(dense: Pair) -> None:
    # the template opens and closes <think> where it is off
    with closing(EngineArm(dense.target, options=QUICK)) as arm:
        lengths = {
            think: arm.run(TALKS[:1], replace(ASK, think=think), 1).turns[0].prompt_tokens
            for think in (True, False, None)
        }
    assert lengths[True] == lengths[None] < lengths[False]


def test_without_a_template_the_words_are_asked_as_they_are(dense: Pair, tmp_path: Path) -> None:
    bare = edited(dense.target, tmp_path / "bare.gguf", drop=("tokenizer.chat_template",))
    with closing(EngineArm(bare, options=QUICK)) as arm:
        assert arm.facts.details["template"] == "none"
        turns = arm.run(TALKS[1:2], ASK, 1).turns
    assert turns[0].prompt_tokens == len(TALKS[1].turns[0])
    assert turns[1].prompt_tokens > turns[0].prompt_tokens + len(TALKS[1].turns[1])


def test_sampled_answers_repeat_and_like_questions_differ(dense: Pair) -> None:
    twice = (Question("made", 0, ("Hm.",)), Question("made", 1, ("Hm.",)))
    ask = replace(ASK, temperature=1.0, seed=5)
    with closing(EngineArm(dense.target, options=QUICK)) as arm:
        first, again, other = (
            texts(arm.run(twice, asked, 1)) for asked in (ask, ask, replace(ask, seed=50))
        )
    assert first == again != other
    assert first[0][2] != first[1][2]


def test_acceptance_can_be_drawn(dense: Pair) -> None:
    ask = replace(ASK, max_tokens=65, ignore_end=True)
    simulate = Simulation([1.0, 1.0, 1.0])
    with closing(
        EngineArm(dense.target, dense.draft, block=4, options=QUICK, simulate=simulate)
    ) as arm:
        (turn,) = arm.run(TALKS[:1], ask, 1).turns
    assert (turn.completion_tokens, turn.rounds, turn.finish_reason) == (65, 16, "length")


def test_what_makes_no_sense_is_refused(dense: Pair, tmp_path: Path, arm: EngineArm) -> None:
    with pytest.raises(UsageError, match="block is 1; expected at least 2"):
        EngineArm(dense.target, dense.draft, block=1)
    with pytest.raises(ModelError):
        EngineArm(tmp_path)
    for questions, concurrency in (((), 1), (TALKS, 0)):
        with pytest.raises(UsageError, match="expected 1 or more of either"):
            arm.run(questions, ASK, concurrency)


def test_a_failure_leaves_the_arm_usable(arm: EngineArm, monkeypatch: pytest.MonkeyPatch) -> None:
    long = Question("made", 9, ("word " * 200,))
    with pytest.raises(ResourceError, match="the context holds 512"):
        arm.run((*TALKS, long), ASK, 5)
    engine = arm._engine
    assert engine is not None
    assert not engine.busy
    before = texts(arm.run(TALKS, ASK, 5))

    def failing(talk: Any, now: float) -> Any:
        stats = talk.answer.stats
        talk.answer.stats = replace(stats, draft_failure="no room")
        return original(talk, now)

    original = engine_arm._turn
    with monkeypatch.context() as patch:
        patch.setattr(engine_arm, "_turn", failing)
        with pytest.raises(DflashError, match=r"question \d failed: no room"):
            arm.run(TALKS, ASK, 5)
    assert not engine.busy
    assert texts(arm.run(TALKS, ASK, 5)) == before


def test_the_peak_is_told_and_can_be_forgotten() -> None:
    size = 2**26
    forget_peak()
    before = peak_memory()
    assert before is not None
    with mmap.mmap(-1, size) as block:  # not of the heap, which may hold so much already
        for page in range(0, size, mmap.PAGESIZE):
            block[page] = 1
        most = peak_memory()
    assert most is not None
    assert most >= before + 0.9 * size
    assert peak_memory() == pytest.approx(most, abs=size / 4)
    forget_peak()
    assert (peak_memory() or 0) <= most - size / 2
