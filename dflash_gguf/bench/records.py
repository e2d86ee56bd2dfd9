"""What a measurement consists of: turns, cells, runs. Everything a table shows is reckoned from these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ..errors import UsageError

ACCEPTANCE = "acceptance"
Mode = Literal["ar", "mtp", "dflash"]

# where a cell's time goes, in the order of a round; host: what is left
STAGES = ("prefill", "draft", "verify", "inject", "rollback", "host")


@dataclass(frozen=True, slots=True)
class Question:
    """Something to ask: the user's turns, one after the other; each waits for the answer to the last.

    `number` is its place in the workload's own order. `before` is what was said before them, as (role, text): a system
    message, turns whose answers are given. `kind` is what sort of question the workload says it is, if it does.
    """

    workload: str
    number: int
    turns: tuple[str, ...]
    before: tuple[tuple[str, str], ...] = ()
    kind: str = ""

    def opening(self) -> list[dict[str, str]]:
        """Return the messages that stand before the first turn."""
        return [{"role": role, "content": text} for role, text in self.before]


@dataclass(frozen=True, slots=True)
class Ask:
    """How all questions of a run are asked. `max_tokens` is of a turn; `think` None: as the template does.

    `ignore_end`: go on after end tokens, where the text means nothing (simulated acceptance).
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    think: bool | None = None
    ignore_end: bool = False

    def seed_of(self, question: Question) -> int:
        """Return a question's seed: of its own, else like questions would get like answers."""
        return self.seed + question.number


def check_asked(questions: Sequence[Question], concurrency: int) -> None:
    """Raise UsageError unless there are questions, and a place for one of them at least."""
    if not questions or concurrency < 1:
        text = f"{len(questions)} questions, {concurrency} at a time; expected 1 or more of either"
        raise UsageError(text)


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer, as whoever gave it counts.

    Attributes:
        workload, question, turn: which answer it is.
        prompt_tokens, completion_tokens: by the arm's own counting; completion with the end token.
        text: of the answer, reasoning included, as it came.
        finish_reason: as in OpenAI's API.
        rounds: verifications by the target; None: not told.
        drafted, accepted: proposed tokens, and those of them that became text; None: not told.
        drafted_at, accepted_at: the same by position in the block; empty: not told.
        start, first, last: seconds since the cell began: asked, first piece of the answer, last one. `first` is None
            if the answer came whole, as SGLang's must to tell its accept figures.
        prefill_seconds, decode_seconds: as the arm itself measured; None: not told.
    """

    workload: str
    question: int
    turn: int
    prompt_tokens: int
    completion_tokens: int
    text: str
    finish_reason: str
    start: float
    first: float | None
    last: float
    rounds: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    drafted_at: tuple[int, ...] = ()
    accepted_at: tuple[int, ...] = ()
    prefill_seconds: float | None = None
    decode_seconds: float | None = None

    @property
    def accept_length(self) -> float | None:
        """Completion tokens by verifications: the cards' rule, of which they give the mean over turns."""
        return self.completion_tokens / self.rounds if self.rounds else None


@dataclass(frozen=True, slots=True)
class Counts:
    """Speculation over a whole cell, by a server's own counters; `rounds` are those with a draft."""

    rounds: int
    drafted: int
    accepted: int
    accepted_at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm at one workload and concurrency, once.

    Attributes:
        run: 0 is the warm-up, which no table counts.
        seconds: from the first question asked to the last answer's end.
        shares: seconds by stage (prefill, draft, verify, inject, rollback, host), which add up
            to `seconds`; empty: the arm does not tell.
        peak_memory: bytes that the arm's process took at most so far; None: unknown.
        counts: what a server counts of all answers together (vLLM: nowhere else); None: not told.
    """

    arm: str
    workload: str
    concurrency: int
    run: int
    turns: tuple[Turn, ...]
    seconds: float
    shares: dict[str, float] = field(default_factory=dict)
    peak_memory: int | None = None
    counts: Counts | None = None

    @property
    def throughput(self) -> float:
        """Output tokens by wall-clock seconds, prompts and waiting included: the cards' rule."""
        return sum(turn.completion_tokens for turn in self.turns) / self.seconds


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """What an arm is. `mode` and `width` place it in the cards' tables: rows of a block (dflash), steps (mtp).

    `speaks_for` is the engine's name ("dflash-gguf", "llama-server", "sglang", "vllm", "openai").
    `details` has "template": "chat" if conversations are rendered by a chat template, "none" if they are plain text;
    "acceptance" if it is drawn, and from what.
    """

    name: str
    mode: Mode
    width: int | str | None
    speaks_for: str
    details: dict[str, str] = field(default_factory=dict)


def drawn_from(curve: str) -> dict[str, str]:
    """Return what an arm's details say of acceptance that is drawn; nothing if it is found out."""
    return {ACCEPTANCE: f"drawn from {curve}"} if curve else {}


def acceptances(bench: Bench) -> dict[str, str]:
    """Return of each arm that drafts whether its acceptance was found out or drawn, and from what.

    Empty where a simulated measurement does not say of whom it is, as those of early versions.
    """
    drafting = {arm.name: arm.details.get(ACCEPTANCE) for arm in bench.arms if arm.mode != "ar"}
    if bench.facts.get("simulated") and not any(drafting.values()):
        return {}
    return {name: said or "found out" for name, said in drafting.items()}


class Arm(Protocol):
    """One way to answer. Only one arm works at a time."""

    facts: ArmFacts

    def run(self, questions: tuple[Question, ...], ask: Ask, concurrency: int) -> Cell:
        """Answer all questions, so many at a time; the cell's `run` is 0."""
        ...

    def close(self) -> None:
        """Free what it holds, and end the processes it started."""
        ...


@dataclass(frozen=True, slots=True)
class Failure:
    """An arm that could not go on: where, and in its own words. `run` is None if it could not be opened."""

    arm: str
    workload: str
    concurrency: int
    run: int | None
    error: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a measurement is to consist of, for each of its arms: so many runs, and run 0 to warm up."""

    workloads: tuple[str, ...]
    concurrencies: tuple[int, ...]
    runs: int


@dataclass(frozen=True, slots=True)
class Bench:
    """A whole measurement, as it is saved.

    Attributes:
        facts: of machine, files, revisions, settings; `simulated` among them says that acceptance was drawn.
        arms: in the order of the tables' columns; the first of mode "ar" is what speed-ups are over.
        prompts: a hash of all that was asked, and how.
        failures: arms that have no cells from somewhere on.
        ask: how it was asked; None: saved before that was noted.
        plan: what it was to consist of; None likewise.
        state: "running" also of one whose process ended without a word; "interrupted" by Ctrl-C, a signal or an error.
    """

    facts: dict[str, str | int | float | bool]
    arms: tuple[ArmFacts, ...]
    cells: tuple[Cell, ...]
    prompts: str
    failures: tuple[Failure, ...] = ()
    ask: Ask | None = None
    plan: Plan | None = None
    state: Literal["complete", "running", "interrupted"] = "complete"

    @property
    def has_runs(self) -> bool:
        """Whether there is a run that tables can show: one behind the warm-up."""
        return any(cell.run for cell in self.cells)
