"""Arms take turns; one that fails is named and the others go on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf import Options
from dflash_gguf.bench.engine_arm import EngineArm
from dflash_gguf.bench.invariants import check
from dflash_gguf.bench.records import ArmFacts, Ask, Bench, Cell, Failure, Question
from dflash_gguf.bench.schedule import News, Planned, measure, rotated
from dflash_gguf.bench.workloads import prompt_hash
from dflash_gguf.errors import ResourceError, UsageError

from ..support.bench import ASK, TALKS, made_cell
from ..support.random_pairs import Pair

OTHER = tuple(replace(question, workload="other") for question in TALKS[:2])


@dataclass
class World:
    """What happens, in order, and which arms are open."""

    log: list[str] = field(default_factory=list)
    open: set[str] = field(default_factory=set)
    most: int = 0


@dataclass
class Scripted:
    """An arm that answers at once, and fails where `fails` says so."""

    world: World
    name: str
    fails: Callable[[str, int, int], Exception | None] = lambda workload, concurrency, count: None
    facts: ArmFacts = field(init=False)
    count: int = 0
    asked: list[tuple[int, Ask]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.facts = ArmFacts("its own", "ar", None, "dflash-gguf", {"opened": "yes"})
        self.world.open.add(self.name)
        self.world.most = max(self.world.most, len(self.world.open))
        self.world.log.append(f"open {self.name}")

    def run(self, questions: tuple[Question, ...], ask: Ask, concurrency: int) -> Cell:
        self.count += 1
        self.asked.append((len(questions), ask))
        self.world.log.append(f"{self.name} {questions[0].workload} {concurrency}")
        error = self.fails(questions[0].workload, concurrency, self.count)
        if error is not None:
            raise error
        return made_cell(self.facts, workload=questions[0].workload, concurrency=concurrency, run=0)

    def close(self) -> None:
        self.world.open.remove(self.name)
        self.world.log.append(f"close {self.name}")


def planned(world: World, *names: str) -> list[Planned]:
    return [
        Planned(ArmFacts(name, "ar", None, "dflash-gguf"), lambda name=name: Scripted(world, name))
        for name in names
    ]


def keys(bench: Bench) -> list[tuple[str, str, int, int]]:
    return [(cell.arm, cell.workload, cell.concurrency, cell.run) for cell in bench.cells]


def test_arms_take_turns_in_rotated_order() -> None:
    world = World()
    bench = measure(planned(world, "a", "b", "c"), TALKS, ASK, concurrencies=(1, 8), runs=3)
    order = [(arm, run, at) for arm, _, at, run in keys(bench)]
    expected = [
        (arm, run, at)
        for at in (1, 8)
        for run, arms in enumerate(["abc", "bca", "cab", "abc"])
        for arm in arms
    ]
    assert order == expected
    assert world.log[:6] == ["open a", "a made 1", "open b", "b made 1", "open c", "c made 1"]
    assert world.most == 3
    assert not world.open
    assert [(facts.name, facts.details) for facts in bench.arms] == [
        (name, {"opened": "yes"}) for name in "abc"
    ]
    assert bench.failures == ()


def test_workloads_come_one_after_the_other() -> None:
    world = World()
    mixed = (TALKS[0], OTHER[0], TALKS[1], OTHER[1])
    bench = measure(planned(world, "a"), mixed, ASK, runs=1, facts={"threads": 2})
    assert keys(bench) == [
        ("a", workload, 1, run) for workload in ("made", "other") for run in (0, 1)
    ]
    assert bench.facts == {"threads": 2}
    assert bench.prompts == prompt_hash(mixed, ASK)
    assert bench.prompts != prompt_hash(mixed, replace(ASK, max_tokens=1))
    assert bench.prompts != prompt_hash(mixed[:-1], ASK)


@given(st.integers(1, 9), st.integers(0, 50))
def test_every_arm_is_first_equally_often(count: int, first: int) -> None:
    orders = [list(rotated(count, run)) for run in range(first, first + count)]
    for order in orders:
        assert sorted(order) == list(range(count))
    for place in range(count):
        assert sorted(order[place] for order in orders) == list(range(count))


def failing(world: World, fails: Callable[[str, int, int], Exception | None]) -> list[Planned]:
    good, bad = planned(world, "good", "bad")
    return [good, replace(bad, open=lambda: Scripted(world, "bad", fails))]


@pytest.mark.parametrize(
    ("error", "words"),
    [(ResourceError("no room"), "no room"), (KeyError("timings"), "KeyError: 'timings'")],
)
def test_an_arm_that_fails_is_named_and_the_others_go_on(error: Exception, words: str) -> None:
    world = World()

    def fails(workload: str, concurrency: int, count: int) -> Exception | None:
        return error if workload == "made" and concurrency == 8 and count == 5 else None

    news: list[News] = []
    arms = failing(world, fails)
    bench = measure(arms, (*TALKS, *OTHER), ASK, concurrencies=(1, 8), runs=2, progress=news.append)
    assert bench.failures == (Failure("bad", "made", 8, 1, words),)
    found = keys(bench)
    assert [key for key in found if key[0] == "bad" and key[1] == "made"] == [
        ("bad", "made", at, run) for at, run in [(1, 0), (1, 1), (1, 2), (8, 0)]
    ]
    # it has its chance at the next workload, and the other one misses nothing
    assert len([key for key in found if key[0] == "bad" and key[1] == "other"]) == 6
    assert len([key for key in found if key[0] == "good"]) == 12
    assert world.log.count("close bad") == 2
    assert [each.failure for each in news if each.event == "failed"] == list(bench.failures)


def test_an_arm_that_cannot_be_opened_is_not_tried_again() -> None:
    world = World()

    def broken() -> Scripted:
        world.log.append("tried")
        text = "no such file"
        raise ResourceError(text)

    good, bad = planned(world, "good", "bad")
    bench = measure([replace(bad, open=broken), good], (*TALKS, *OTHER), ASK, runs=2)
    assert bench.failures == (Failure("bad", "made", 1, None, "no such file"),)
    assert world.log.count("tried") == 1
    assert [facts.name for facts in bench.arms] == ["bad", "good"]
    assert [key[0] for key in keys(bench)] == ["good"] * 6


def test_arms_that_do_not_fit_together_are_opened_one_at_a_time() -> None:
    world, made = World(), []
    arms = [
        Planned(
            facts.facts,
            lambda name=facts.facts.name: made.append(Scripted(world, name)) or made[-1],
        )
        for facts in planned(world, "a", "b")
    ]
    bench = measure(arms, TALKS, ASK, concurrencies=(2,), runs=1, together=False)
    assert keys(bench) == [
        ("a", "made", 2, 0),
        ("b", "made", 2, 0),
        ("b", "made", 2, 1),
        ("a", "made", 2, 1),
    ]
    assert world.most == 1
    assert not world.open
    for arm in made:  # a few tokens first, then all
        assert arm.asked == [(2, replace(ASK, max_tokens=8)), (4, ASK)]


def test_an_arm_that_does_not_close_is_named() -> None:
    world = World()

    class Stuck(Scripted):
        def close(self) -> None:
            super().close()
            text = "it does not end"
            raise ResourceError(text)

    good, bad = planned(world, "good", "bad")
    arms = [good, replace(bad, open=lambda: Stuck(world, "bad"))]
    assert measure(arms, TALKS, ASK, runs=1).failures == ()
    bench = measure(arms, TALKS, ASK, runs=1, together=False)
    assert bench.failures == (Failure("bad", "made", 1, 0, "it does not end"),)
    assert keys(bench) == [("good", "made", 1, 0), ("bad", "made", 1, 0), ("good", "made", 1, 1)]
    assert not world.open


def test_progress_is_told_and_may_end_it() -> None:
    world, news = World(), []
    measure(planned(world, "a", "b"), TALKS, ASK, runs=1, progress=news.append)
    assert [(each.event, each.arm, each.run, each.done) for each in news] == [
        ("open", "a", 0, 0),
        ("run", "a", 0, 0),
        ("ran", "a", 0, 1),
        ("open", "b", 0, 1),
        ("run", "b", 0, 1),
        ("ran", "b", 0, 2),
        ("run", "b", 1, 2),
        ("ran", "b", 1, 3),
        ("run", "a", 1, 3),
        ("ran", "a", 1, 4),
    ]
    assert {each.total for each in news} == {4}
    assert all((each.cell is not None) == (each.event == "ran") for each in news)

    def stop(each: News) -> None:
        if each.event == "ran":
            raise KeyError(each.arm)

    with pytest.raises(KeyError, match="a"):
        measure(planned(world, "a", "b"), TALKS, ASK, runs=1, progress=stop)
    assert not world.open


def test_what_makes_no_sense_is_refused() -> None:
    arms = planned(World(), "a")
    with pytest.raises(UsageError, match="the arms are a, a; expected some, whose names differ"):
        measure([*arms, *arms], TALKS, ASK)
    with pytest.raises(UsageError, match="the arms are none"):
        measure([], TALKS, ASK)
    with pytest.raises(UsageError, match="no questions"):
        measure(arms, (), ASK)
    with pytest.raises(UsageError, match="0 runs"):
        measure(arms, TALKS, ASK, runs=0)
    for concurrencies in ((), (0,)):
        with pytest.raises(UsageError, match="concurrency"):
            measure(arms, TALKS, ASK, concurrencies=concurrencies)


@pytest.mark.parametrize("together", [True, False])
def test_this_engines_arms_measured_add_up(pair: Pair, together: bool) -> None:
    options = Options(threads=1, context=512)
    arms = []
    for draft, block in ((None, "auto"), (pair.draft, 4), (pair.draft, "auto")):
        with closing(EngineArm(pair.target, draft, block=block, options=options)) as arm:
            facts = arm.facts
        arms.append(
            Planned(
                facts,
                lambda draft=draft, block=block: EngineArm(
                    pair.target, draft, block=block, options=options
                ),
            )
        )
    bench = measure(arms, TALKS, ASK, concurrencies=(1, 3), runs=1, together=together)
    assert bench.failures == ()
    assert len(bench.cells) == 3 * 2 * 2
    # random weights write what looks like loops
    assert [found for found in check(bench) if found.name != "one-token-loop"] == []
    first = bench.cells[0]
    for cell in bench.cells:
        assert [turn.text for turn in cell.turns] == [turn.text for turn in first.turns]
