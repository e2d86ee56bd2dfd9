"""What a table shows, reckoned from a measurement's cells. Pure; the warm-up (run 0) is left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Literal

from ..errors import UsageError
from .invariants import Finding, check
from .labels import column_names
from .lacks import lacks
from .loops import loop
from .records import ArmFacts, Bench, Cell, Turn
from .texts import compare_texts, texts_hash

Key = tuple[str, str, int]  # arm, workload, concurrency


@dataclass(frozen=True, slots=True)
class Spread:
    """A value of every run: their median, the least and the most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """Return it for these values; None if there are none."""
        all_values = sorted(values)
        if not all_values:
            return None
        return cls(median(all_values), all_values[0], all_values[-1])


@dataclass(frozen=True, slots=True)
class Figure:
    """One arm at one workload and concurrency, over all counted runs. None: the arm does not tell.

    Attributes:
        runs, turns, tokens: what was counted; tokens are completion tokens.
        throughput: output tokens by wall-clock seconds of a run, prompts and waiting included: the cards' rule.
        speedup: throughput over the baseline's in the same run.
        accept_length: mean over turns of completion tokens by verifications: the cards' rule. Turns without a
            verification (the prompt gave the only token) have none. Where only a server's counters tell: 1 and the
            accepted tokens by rounds with a draft.
        decode_speed: tokens after an answer's first, by the seconds from its first to its last; of one stream.
        decode_by: whose clock that is: the arm's own, or its client's.
        first_token, first_token_95: seconds from asking to the answer's first piece: median and 95th percentile.
        prefill_seconds, decode_seconds: of a turn by the arm's own clock, the mean.
        acceptance: accepted by drafted tokens.
        acceptance_at: the same by position in the block; None for one that was never drafted. By rounds where it is
            not told which positions were drafted.
        shares: of each stage's seconds in those of all stages.
        peak_memory: bytes.
        texts: SHA-256 of the first run's answers, by question and turn.
        same_texts: how many of the answers of the first run are the baseline's, and of how many; None: they need not be
            (sampled, simulated), or this is the baseline.
        loops: how many of the first run's answers are one token over and over, which drafters guess with ease.
    """

    arm: str
    workload: str
    concurrency: int
    runs: int
    turns: int
    tokens: int
    throughput: Spread
    speedup: Spread | None
    accept_length: float | None
    decode_speed: Spread | None
    decode_by: Literal["arm", "client"]
    first_token: float | None
    first_token_95: float | None
    prefill_seconds: float | None
    decode_seconds: float | None
    acceptance: float | None
    acceptance_at: tuple[float | None, ...]
    shares: dict[str, float] = field(default_factory=dict)
    peak_memory: int | None = None
    texts: str = ""
    same_texts: tuple[int, int] | None = None
    loops: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a measurement.

    Attributes:
        arms: in the order of columns.
        baseline: the arm that speed-ups are over: the first of mode "ar"; None if there is none.
        workloads: in the order they were measured in.
        concurrencies: ascending.
        simulated: acceptance was drawn, so that texts and accept lengths say nothing of the models.
        findings: what does not hold of it, faults first; None: not checked.
        lacks: a line of what was planned and not measured; empty if nothing.
    """

    arms: tuple[ArmFacts, ...]
    baseline: str | None
    workloads: tuple[str, ...]
    concurrencies: tuple[int, ...]
    simulated: bool
    by_key: dict[Key, Figure]
    findings: tuple[Finding, ...] | None = None
    lacks: str = ""

    def at(self, arm: str, workload: str, concurrency: int) -> Figure | None:
        """Return one arm's figure; None if that was not measured."""
        return self.by_key.get((arm, workload, concurrency))


def reckon(bench: Bench) -> Figures:
    """Return a measurement's figures.

    Raises UsageError for cells without an arm, without turns or without time, for two of one run, and if only
    the warm-up was measured.
    """
    counted = _counted(bench)
    baseline = next((arm.name for arm in bench.arms if arm.mode == "ar"), None)
    same = _same_texts(bench)
    figures = {}
    workloads = list(dict.fromkeys(workload for _, workload, _ in counted))
    places = {facts.name: place for place, facts in enumerate(bench.arms)}
    # arms take turns in being first, and their cells come in that order
    keys = sorted(counted, key=lambda key: (workloads.index(key[1]), key[2], places[key[0]]))
    for arm, workload, concurrency in keys:
        runs = counted[arm, workload, concurrency]
        base = {} if baseline is None else counted.get((baseline, workload, concurrency), {})
        figures[arm, workload, concurrency] = replace(
            _figure(runs, base), same_texts=same.get((arm, workload, concurrency))
        )
    return Figures(
        arms=bench.arms,
        baseline=baseline,
        workloads=tuple(workloads),
        concurrencies=tuple(sorted({concurrency for _, _, concurrency in counted})),
        simulated=bool(bench.facts.get("simulated", False)),
        by_key=figures,
        findings=None if bench.ask is None else tuple(check(bench)),
        lacks=lacks(bench, column_names(bench.arms)),
    )


def _same_texts(bench: Bench) -> dict[Key, tuple[int, int]]:
    """How many texts are those of plain decoding, where they must be."""
    if bench.facts.get("settings.sampling") != "greedy" or bench.facts.get("simulated"):
        return {}
    return {(of.arm, of.workload, of.concurrency): (of.same, of.of) for of in compare_texts(bench)}


def _counted(bench: Bench) -> dict[Key, dict[int, Cell]]:
    """Cells of all runs but the warm-up, by what they measured and by run."""
    known = {arm.name for arm in bench.arms}
    found: dict[Key, dict[int, Cell]] = {}
    for cell in bench.cells:
        what = f"run {cell.run} of {cell.arm} on {cell.workload} at concurrency {cell.concurrency}"
        if cell.arm not in known:
            _refuse(what, f"expected one of the arms {', '.join(sorted(known)) or '(none)'}")
        if not cell.turns or not cell.seconds > 0:
            _refuse(what, f"{len(cell.turns)} turns in {cell.seconds} s; expected some, and time")
        if cell.run == 0:
            continue
        runs = found.setdefault((cell.arm, cell.workload, cell.concurrency), {})
        if cell.run in runs:
            _refuse(what, "it stands twice, expected it once")
        runs[cell.run] = cell
    if not found:
        text = "the measurement has no run but the warm-up; expected one at least (--runs 1)"
        raise UsageError(text)
    return found


def _refuse(what: str, why: str) -> None:
    text = f"{what}: {why}; measure again"
    raise UsageError(text)


def _figure(runs: dict[int, Cell], base: dict[int, Cell]) -> Figure:
    cells = [runs[run] for run in sorted(runs)]
    turns = [turn for cell in cells for turn in cell.turns]
    throughput = Spread.of(cell.throughput for cell in cells)
    assert throughput is not None  # there is a cell
    waits = [turn.first - turn.start for turn in turns if turn.first is not None]
    own = all(turn.decode_seconds is not None for turn in turns)
    peaks = [cell.peak_memory for cell in cells if cell.peak_memory is not None]
    return Figure(
        arm=cells[0].arm,
        workload=cells[0].workload,
        concurrency=cells[0].concurrency,
        runs=len(cells),
        turns=len(turns),
        tokens=sum(turn.completion_tokens for turn in turns),
        throughput=throughput,
        speedup=_speedup(runs, base),
        accept_length=_accept_length(cells),
        decode_speed=Spread.of(
            speed for cell in cells if (speed := _decode_speed(cell.turns, own=own)) is not None
        ),
        decode_by="arm" if own else "client",
        first_token=median(waits) if waits else None,
        first_token_95=percentile(waits, 95) if waits else None,
        prefill_seconds=_mean(turn.prefill_seconds for turn in turns),
        decode_seconds=_mean(turn.decode_seconds for turn in turns),
        acceptance=_acceptance(cells),
        acceptance_at=_acceptance_at(cells),
        shares=_shares(cells),
        peak_memory=max(peaks, default=None),
        texts=texts_hash(cells[0].turns),
        loops=sum(loop(turn.text) is not None for turn in cells[0].turns),
    )


def _speedup(runs: dict[int, Cell], base: dict[int, Cell]) -> Spread | None:
    """Over the baseline's cell of the same run: a machine that grows slower does so for both."""
    both = [run for run in runs if run in base and base[run].throughput > 0]
    return Spread.of(runs[run].throughput / base[run].throughput for run in both)


def _decode_speed(turns: Sequence[Turn], *, own: bool) -> float | None:
    """Tokens per second of one stream. `own`: by the arm's clock."""
    tokens, seconds = 0, 0.0
    for turn in turns:
        spent = turn.decode_seconds
        if not own:
            spent = None if turn.first is None else turn.last - turn.first
        if spent is not None and spent > 0 and turn.completion_tokens > 1:
            tokens += turn.completion_tokens - 1
            seconds += spent
    return tokens / seconds if seconds > 0 else None


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the least of the values that so many percent of them do not exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[max(math.ceil(percent / 100 * len(ranked)), 1) - 1]


def _mean(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return fmean(told) if told else None


def _accept_length(cells: Sequence[Cell]) -> float | None:
    told = _mean(turn.accept_length for cell in cells for turn in cell.turns)
    if told is not None:
        return told
    counts = [cell.counts for cell in cells if cell.counts is not None]
    rounds = sum(each.rounds for each in counts)
    return 1 + sum(each.accepted for each in counts) / rounds if rounds else None


def _acceptance(cells: Sequence[Cell]) -> float | None:
    pairs = [(t.drafted, t.accepted) for cell in cells for t in cell.turns]
    told = [(d, a) for d, a in pairs if d is not None and a is not None]
    if not told:
        told = [(c.counts.drafted, c.counts.accepted) for c in cells if c.counts is not None]
    drafted = sum(part for part, _ in told)
    return sum(part for _, part in told) / drafted if drafted else None


def _acceptance_at(cells: Sequence[Cell]) -> tuple[float | None, ...]:
    told = [_by_position(turn) for cell in cells for turn in cell.turns]
    if not any(accepted for _, accepted in told):
        counts = [cell.counts for cell in cells if cell.counts is not None]
        told = [((each.rounds,) * len(each.accepted_at), each.accepted_at) for each in counts]
    found: list[float | None] = []
    for place in range(max((len(drafted) for drafted, _ in told), default=0)):
        tested = sum(drafted[place] for drafted, _ in told if place < len(drafted))
        kept = sum(accepted[place] for _, accepted in told if place < len(accepted))
        found.append(kept / tested if tested else None)
    return tuple(found)


def _by_position(turn: Turn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Drafted and accepted; servers tell the second alone, whose every round drafts all positions."""
    if turn.drafted_at or turn.rounds is None:
        return turn.drafted_at, turn.accepted_at
    return (turn.rounds,) * len(turn.accepted_at), turn.accepted_at


def _shares(cells: Sequence[Cell]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for cell in cells:
        for stage, spent in cell.shares.items():
            seconds[stage] = seconds.get(stage, 0.0) + spent
    total = sum(seconds.values())
    return {stage: spent / total for stage, spent in seconds.items()} if total > 0 else {}
