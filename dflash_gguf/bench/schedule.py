"""Arms take turns, run by run, so that what a machine's speed does in an hour is the same for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from ..errors import DflashError, UsageError
from .records import Arm, ArmFacts, Ask, Bench, Cell, Failure, Plan, Question
from .workloads import prompt_hash

_WARM_TOKENS = 8  # of an answer that only warms up


@dataclass(frozen=True, slots=True)
class Planned:
    """An arm that is to take part: what it is, and how it is opened. An arm that is open may be handed over too."""

    facts: ArmFacts
    open: Callable[[], Arm]


@dataclass(frozen=True, slots=True)
class News:
    """What happens now: an arm is opened, answers, has answered or has failed; of `total` runs `done` are over."""

    event: Literal["open", "run", "ran", "failed"]
    arm: str
    workload: str
    concurrency: int
    run: int
    done: int
    total: int
    cell: Cell | None = None
    failure: Failure | None = None


def _ignored(_: object) -> None:
    pass


def measure(
    arms: Sequence[Planned],
    questions: Sequence[Question],
    ask: Ask,
    *,
    concurrencies: Sequence[int] = (1,),
    runs: int = 5,
    facts: Mapping[str, str | int | float | bool] | None = None,
    together: bool = True,
    progress: Callable[[News], None] = _ignored,
    keep: Callable[[Bench], None] = _ignored,
) -> Bench:
    """Have every arm answer every workload at every concurrency, `runs` times and once to warm up.

    For each workload and concurrency all arms do run 0, which no table counts, then all do run 1 and so on; each
    run begins with another arm. An arm that raises is closed, has no further cells of that workload, and is
    opened again for the next; one that cannot be opened takes no further part. What was wrong is in the failures.

    Args:
        arms: with names that differ.
        questions: of one workload or several, which come in the order of their first questions.
        facts: for the Bench.
        together: all arms stay open. Else, for memory, only one is open at any time; it is opened anew for each
            of its runs, and answers a few tokens first.
        progress: told what happens; what it raises ends the measurement.
        keep: given all that was measured so far, whenever a run is over or an arm has failed; likewise.

    Raises UsageError for arms of the same name, no arms, no questions or runs below 1.
    """
    _check(arms, questions, concurrencies, runs)
    workloads: dict[str, list[Question]] = {}
    for question in questions:
        workloads.setdefault(question.workload, []).append(question)
    total = len(arms) * len(workloads) * len(concurrencies) * (runs + 1)
    begun = Bench(
        facts=dict(facts or {}),
        arms=(),
        cells=(),
        prompts=prompt_hash(questions, ask),
        ask=ask,
        plan=Plan(tuple(workloads), tuple(concurrencies), runs),
        state="running",
    )
    places = [_Place(planned) for planned in arms]
    stage = _Stage(begun, places, ask, together, progress, keep, total)
    try:
        for asked in workloads.values():
            stage.workload(tuple(asked), concurrencies, runs)
    finally:
        stage.end()
    return replace(stage.made(), state="complete")


def rotated(count: int, run: int) -> Iterator[int]:
    """Yield the places of `count` arms in the order of a run: each begins with the next one."""
    yield from ((run + place) % count for place in range(count))


def _check(
    arms: Sequence[Planned],
    questions: Sequence[Question],
    concurrencies: Sequence[int],
    runs: int,
) -> None:
    names = [planned.facts.name for planned in arms]
    if len(set(names)) < len(names) or not names:
        text = f"the arms are {', '.join(names) or 'none'}; expected some, whose names differ"
        raise UsageError(text)
    if not questions:
        text = "there are no questions; expected one at least"
        raise UsageError(text)
    if runs < 1 or not concurrencies or min(concurrencies) < 1:
        text = f"{runs} runs at concurrency {list(concurrencies)}; expected 1 or more of either"
        raise UsageError(text)


@dataclass(slots=True)
class _Place:
    """An arm's place in the measurement. Its name is that of the plan."""

    planned: Planned
    facts: ArmFacts = field(init=False)
    arm: Arm | None = None
    barred: bool = False  # from this workload
    over: bool = False  # it cannot be opened

    def __post_init__(self) -> None:
        self.facts = self.planned.facts

    def open(self) -> None:
        self.arm = self.planned.open()
        self.facts = replace(self.arm.facts, name=self.planned.facts.name)

    def run(self, questions: tuple[Question, ...], ask: Ask, concurrency: int, run: int) -> Cell:
        if self.arm is None:
            text = f"the arm {self.facts.name} is closed; open it first"
            raise DflashError(text)
        cell = self.arm.run(questions, ask, concurrency)
        # an arm may know what it is only now
        self.facts = replace(self.arm.facts, name=self.planned.facts.name)
        return replace(cell, arm=self.facts.name, run=run)

    def close(self) -> None:
        arm, self.arm = self.arm, None
        if arm is not None:
            arm.close()


@dataclass(slots=True)
class _Stage:
    begun: Bench
    places: list[_Place]
    ask: Ask
    together: bool
    progress: Callable[[News], None]
    keep: Callable[[Bench], None]
    total: int
    done: int = 0
    cells: list[Cell] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def made(self) -> Bench:
        """What there is so far."""
        return replace(
            self.begun,
            arms=tuple(place.facts for place in self.places),
            cells=tuple(self.cells),
            failures=tuple(self.failures),
        )

    def workload(
        self, questions: tuple[Question, ...], concurrencies: Sequence[int], runs: int
    ) -> None:
        for place in self.places:
            place.barred = place.over
        for concurrency in concurrencies:
            for run in range(runs + 1):
                for index in rotated(len(self.places), run):
                    place = self.places[index]
                    news = News(
                        "run",
                        place.facts.name,
                        questions[0].workload,
                        concurrency,
                        run,
                        self.done,
                        self.total,
                    )
                    self.done += 1
                    if not place.barred:
                        self.turn(place, questions, news)

    def turn(self, place: _Place, questions: tuple[Question, ...], news: News) -> None:
        """One run of one arm. Only what the arm itself raises is its failure."""
        if place.arm is None:
            self.progress(replace(news, event="open"))
            try:
                self.open(place, questions, news.concurrency)
            except Exception as error:  # noqa: BLE001 (the others go on)
                place.over = True
                self.fail(place, news, None, error)
                return
        self.progress(news)
        try:
            cell = place.run(questions, self.ask, news.concurrency, news.run)
        except Exception as error:  # noqa: BLE001 (the others go on)
            self.fail(place, news, news.run, error)
            return
        self.cells.append(cell)
        self.keep(self.made())
        self.progress(replace(news, event="ran", done=self.done, cell=cell))
        if not self.together:
            self.close(place, news)

    def open(self, place: _Place, questions: tuple[Question, ...], concurrency: int) -> None:
        place.open()
        if not self.together:
            few = [replace(each, turns=each.turns[:1]) for each in questions[:concurrency]]
            short = replace(self.ask, max_tokens=min(_WARM_TOKENS, self.ask.max_tokens))
            place.run(tuple(few), short, concurrency, 0)

    def fail(self, place: _Place, news: News, run: int | None, error: Exception) -> None:
        place.barred = True
        with suppress(Exception):  # it has failed already
            place.close()
        words = str(error) if isinstance(error, DflashError) else f"{type(error).__name__}: {error}"
        failure = Failure(place.facts.name, news.workload, news.concurrency, run, words)
        self.failures.append(failure)
        self.keep(self.made())
        self.progress(replace(news, event="failed", done=self.done, failure=failure))

    def close(self, place: _Place, news: News) -> None:
        try:
            place.close()
        except Exception as error:  # noqa: BLE001 (its cells stay, and the others go on)
            self.fail(place, news, news.run, error)

    def end(self) -> None:
        """Close all arms, whatever one of them says to that: what was measured stays."""
        for place in self.places:
            with suppress(Exception):
                place.close()
