"""The model cards' tables, from figures: rows of strings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .figures import Figure, Figures
from .labels import as_the_cards, block_of, blocks_of, column_names, short_names, titled
from .notes import Notes
from .records import STAGES, ArmFacts, Bench

NONE = "-"


@dataclass(frozen=True, slots=True)
class Table:
    """A title, a row of column names, rows as long, and the lines that go with them."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def all_tables(bench: Bench, figures: Figures) -> list[Table]:
    """Return every table that has something to show: the cards' forms first, then what they leave out."""
    notes = Notes(bench, figures)
    tables = [
        *(throughput(figures, notes, each) for each in figures.concurrencies),
        *(by_concurrency(figures, notes, block) for block in _shown_blocks(figures)),
        accept_length(figures, notes),
        accept_pairs(figures, notes),
        same_texts(figures, notes),
        details(figures, notes),
        acceptance(figures, notes),
        shares(figures, notes),
    ]
    return [table for table in tables if table.rows and len(table.header) > 1]


def throughput(figures: Figures, notes: Notes, concurrency: int) -> Table:
    """Output tok/s and speed-up by workload: "537.7 (2.19x)", the fastest speculative arm of a row bold."""
    names = column_names(figures.arms)
    arms = as_the_cards(figures.arms)
    rows = []
    for workload in figures.workloads:
        found = [figures.at(arm.name, workload, concurrency) for arm in arms]
        cells = [_speed(figure, 1, 2) for figure in found]
        speeds = [_of(figure, lambda f: f.throughput.median) for figure in found]
        rows.append((workload, *_bold(cells, speeds, [_speculates(arm) for arm in arms])))
    return Table(
        titled(
            f"Throughput and speed-up, concurrency {concurrency}: output tok/s (speed-up)",
            simulated=figures.simulated,
        ),
        ("Workload", *(names[arm.name] for arm in arms)),
        tuple(rows),
        notes.of("throughput", "speedup", "bold", "block"),
    )


def by_concurrency(figures: Figures, notes: Notes, block: int | str) -> Table:
    """One block's arms beside the baselines, by workload and concurrency: "808 (4.1x)"."""
    arms = [arm for arm in as_the_cards(figures.arms) if block_of(arm) == block or arm.mode == "ar"]
    names = short_names(tuple(arms))
    rows = []
    for workload in figures.workloads:
        first = workload
        for concurrency in figures.concurrencies:
            found = [figures.at(arm.name, workload, concurrency) for arm in arms]
            if any(found):
                cells = [
                    _speed(figure, 0, None if arm.name == figures.baseline else 1)
                    for arm, figure in zip(arms, found, strict=True)
                ]
                rows.append((first, str(concurrency), *cells))
                first = ""
    return Table(
        titled(f"Block size {block}: output tok/s (speed-up)", simulated=figures.simulated),
        ("Task", "Concurrency", *(names[arm.name] for arm in arms)),
        tuple(rows),
        notes.of("throughput", "speedup", *(["pairs"] if _has_mtp(arms) else [])),
    )


def accept_length(figures: Figures, notes: Notes) -> Table:
    """Mean accept lengths at the lowest concurrency; the highest among arms of one block bold."""
    arms = [arm for arm in as_the_cards(figures.arms) if _speculates(arm)]
    names = column_names(figures.arms)
    least = figures.concurrencies[0]
    rows = []
    for workload in figures.workloads:
        lengths = [
            _of(figures.at(arm.name, workload, least), lambda f: f.accept_length) for arm in arms
        ]
        cells = [_number(length, 3) for length in lengths]
        for block in dict.fromkeys(map(block_of, arms)):
            matched = [block_of(arm) == block for arm in arms]
            if sum(matched) > 1:
                cells = _bold(cells, lengths, matched)
        if any(length is not None for length in lengths):
            rows.append((workload, *cells))
    return Table(
        titled(f"Accept length, concurrency {least}", simulated=figures.simulated),
        ("Workload", *(names[arm.name] for arm in arms)),
        tuple(rows),
        notes.of("accept", "bold_pairs", "block"),
    )


def accept_pairs(figures: Figures, notes: Notes) -> Table:
    """Accept lengths in the other card's form, a column a block: "5.46 / 5.67" is MTP / DFlash."""
    least = figures.concurrencies[0]
    arms = [arm for arm in figures.arms if _speculates(arm)]
    blocks = [block for block in blocks_of(tuple(arms)) if isinstance(block, int)]
    pairs = _has_mtp(arms)
    rows = []
    for workload in figures.workloads:
        cells = []
        for block in blocks:
            # of several engines the first: the other table has them all
            modes = ("mtp", "dflash") if pairs else ("dflash",)
            found = [_first(arms, mode, block) for mode in modes]
            texts = [
                NONE
                if arm is None
                else _number(
                    _of(figures.at(arm.name, workload, least), lambda f: f.accept_length), 2
                )
                for arm in found
            ]
            cells.append(" / ".join(texts))
        if any(cell.strip("-/ ") for cell in cells):
            rows.append((workload, *cells))
    form = ": MTP / DFlash" if pairs else ": DFlash"
    return Table(
        titled(f"Accept length by block, concurrency {least}{form}", simulated=figures.simulated),
        ("Task", *(f"B{block}" for block in blocks)),
        tuple(rows),
        notes.of("accept", "first_engine", *(["pairs"] if pairs else [])),
    )


def same_texts(figures: Figures, notes: Notes) -> Table:
    """How many greedy answers are those of the baseline: "31/32"."""
    arms = [arm for arm in as_the_cards(figures.arms) if arm.name != figures.baseline]
    names = column_names(figures.arms)
    rows = []
    for workload in figures.workloads:
        for concurrency in figures.concurrencies:
            found = [figures.at(arm.name, workload, concurrency) for arm in arms]
            pairs = [None if figure is None else figure.same_texts for figure in found]
            if any(pairs):
                cells = (NONE if pair is None else f"{pair[0]}/{pair[1]}" for pair in pairs)
                rows.append((workload, str(concurrency), *cells))
    than = "the first arm" if figures.baseline is None else names[figures.baseline]
    return Table(
        titled(f"Greedy texts that are those of {than}", simulated=figures.simulated),
        ("Workload", "Concurrency", *(names[arm.name] for arm in arms)),
        tuple(rows),
        (*notes.of("texts"), *_loops(figures)),
    )


def _loops(figures: Figures) -> Iterable[str]:
    """A line if answers are one token over and over, with the most that an arm has of each workload."""
    most: dict[str, int] = {}
    for figure in figures.by_key.values():
        most[figure.workload] = max(most.get(figure.workload, 0), figure.loops)
    told = [f"{count} of {workload}" for workload, count in most.items() if count]
    if told:
        yield f"one token over and over, which is drafted with ease: {', '.join(told)} (answers, of an arm at most)."


def details(figures: Figures, notes: Notes) -> Table:
    """Every figure that the cards leave out, a row for each arm, workload and concurrency."""
    names = column_names(figures.arms)
    rows = [
        (names[figure.arm], figure.workload, str(figure.concurrency), *_details(figure))
        for figure in _in_order(figures)
    ]
    header = (
        *("Arm", "Workload", "Concurrency", "Runs", "tok/s", "least-most", "Speed-up least-most"),
        *("Decode tok/s", "First token ms", "95 % ms", "Prefill s", "Decode s", "Accepted"),
        "Peak MiB",
    )
    rules = notes.of("throughput", "speedup", "decode", "first", "apart", "acceptance", "memory")
    return Table(
        titled("Every arm in detail", simulated=figures.simulated),
        header,
        tuple(rows),
        (*rules, *notes.commands),
    )


def _details(figure: Figure) -> tuple[str, ...]:
    clock = "" if figure.decode_speed is None or figure.decode_by == "arm" else " (client)"
    speed, gain = figure.throughput, figure.speedup
    memory = figure.peak_memory
    return (
        str(figure.runs),
        f"{speed.median:.1f}",
        f"{speed.least:.1f}-{speed.most:.1f}",
        NONE if gain is None else f"{gain.least:.2f}-{gain.most:.2f}",
        NONE if figure.decode_speed is None else f"{figure.decode_speed.median:.1f}{clock}",
        _milliseconds(figure.first_token),
        _milliseconds(figure.first_token_95),
        _number(figure.prefill_seconds, 4),
        _number(figure.decode_seconds, 4),
        _percent(figure.acceptance),
        NONE if memory is None else f"{memory / 2**20:.0f}",
    )


def acceptance(figures: Figures, notes: Notes) -> Table:
    """Accepted of drafted tokens by position in the block, from the first drafted one."""
    found = [figure for figure in _in_order(figures) if figure.acceptance_at]
    depth = max((len(figure.acceptance_at) for figure in found), default=0)
    names = column_names(figures.arms)
    rows = []
    for figure in found:
        at = [_percent(value) for value in figure.acceptance_at]
        at += [NONE] * (depth - len(at))
        rows.append((names[figure.arm], figure.workload, str(figure.concurrency), *at))
    return Table(
        titled("Acceptance by position", simulated=figures.simulated),
        ("Arm", "Workload", "Concurrency", *(str(place + 1) for place in range(depth))),
        tuple(rows),
        notes.of("acceptance_at"),
    )


def shares(figures: Figures, notes: Notes) -> Table:
    """Where the time went, stage by stage."""
    found = [figure for figure in _in_order(figures) if figure.shares]
    told = dict.fromkeys(stage for figure in found for stage in figure.shares)
    stages = [stage for stage in STAGES if stage in told]
    stages += [stage for stage in told if stage not in STAGES]
    names = column_names(figures.arms)
    rows = [
        (
            *(names[figure.arm], figure.workload, str(figure.concurrency)),
            *(_percent(figure.shares.get(stage)) for stage in stages),
        )
        for figure in found
    ]
    return Table(
        titled("Shares of the time", simulated=figures.simulated),
        ("Arm", "Workload", "Concurrency", *stages),
        tuple(rows),
        notes.of("shares"),
    )


def _in_order(figures: Figures) -> Iterable[Figure]:
    for workload in figures.workloads:
        for concurrency in figures.concurrencies:
            for arm in figures.arms:
                figure = figures.at(arm.name, workload, concurrency)
                if figure is not None:
                    yield figure


def _shown_blocks(figures: Figures) -> tuple[int | str, ...]:
    return blocks_of(figures.arms)


def _speculates(arm: ArmFacts) -> bool:
    return arm.mode != "ar"


def _has_mtp(arms: Sequence[ArmFacts]) -> bool:
    return any(arm.mode == "mtp" for arm in arms)


def _first(arms: Sequence[ArmFacts], mode: str, block: int | str) -> ArmFacts | None:
    return next((arm for arm in arms if arm.mode == mode and block_of(arm) == block), None)


def _of(figure: Figure | None, take: Callable[[Figure], float | None]) -> float | None:
    return None if figure is None else take(figure)


def _speed(figure: Figure | None, places: int, gain_places: int | None) -> str:
    if figure is None:
        return NONE
    value = figure.throughput.median
    # the cards' places suit hundreds of tok/s; three digits are told of slow machines too
    least = 2 if value < 10 else 1 if value < 100 else 0
    speed = f"{value:.{max(places, least)}f}"
    if gain_places is None or figure.speedup is None:
        return speed
    return f"{speed} ({figure.speedup.median:.{gain_places}f}x)"


def _number(value: float | None, places: int) -> str:
    return NONE if value is None else f"{value:.{places}f}"


def _milliseconds(value: float | None) -> str:
    return NONE if value is None else f"{value * 1e3:.1f}"


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"


def _bold(cells: Sequence[str], values: Sequence[float | None], among: Sequence[bool]) -> list[str]:
    """Make the cell of the highest of these values bold; of equal ones, all."""
    rivals = [
        value for value, in_it in zip(values, among, strict=True) if in_it and value is not None
    ]
    best = max(rivals, default=None)
    return [
        f"**{cell}**" if in_it and value is not None and value == best else cell
        for cell, value, in_it in zip(cells, values, among, strict=True)
    ]
