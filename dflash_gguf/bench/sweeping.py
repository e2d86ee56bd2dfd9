"""`--sweep` as the command shows it: what widths cost, and which is best at which acceptance."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from ..options import Options
from ..pair import check_pair
from .facts import Fact
from .notes import where_lines
from .output import check_form, md_table
from .sweep import Best, Sweep, best_rows, best_widths, cost_rows, measure_costs
from .tables import Table

_COSTS = (
    "ms: medians of a round of bare decodes, widths in turns; inject: of half the verified rows.",
    "break-even: tokens of a round above which the width is faster than plain decoding.",
)
_BEST = (
    "acceptance: the chance that a draft is accepted if the one before it was, or a survival curve's name.",
    "accept length: tokens expected of a round of the best width.",
)


def sweep_pair(
    target: Path,
    draft: Path,
    options: Options,
    concurrencies: Sequence[int],
    widest: int | None = None,
    *,
    progress: Callable[[int, int, int], None] = lambda _sequences, _done, _total: None,
) -> list[Sweep]:
    """Measure every width's cost at these numbers of sequences; widest None: the drafter's block.

    `progress` is told at how many sequences how many samples of how many are taken.

    Raises what `load` and `measure_costs` raise.
    """
    from ..loading import load

    block = widest or check_pair(target, draft).block
    chosen = replace(options, block=block, max_block=block, sequences=max(concurrencies))
    with load(target, draft, options=chosen) as engine:
        return [
            measure_costs(engine, sequences=each, progress=partial(progress, each))
            for each in concurrencies
        ]


def render_sweeps(sweeps: Sequence[Sweep], facts: Mapping[str, Fact], form: str) -> str:
    """Return sweeps as md, json, jsonl or csv (costs only). Raises UsageError for another form."""
    check_form(form)
    if form == "md":
        return "\n".join(md_table(table) for table in sweep_tables(sweeps, facts))
    found = [
        {**asdict(sweep), "best": [asdict(best) for best in best_widths(sweep)]} for sweep in sweeps
    ]
    if form == "json":
        return json.dumps({"facts": dict(facts), "sweeps": found}, indent=2) + "\n"
    if form == "jsonl":
        return "".join(json.dumps({**each, "facts": dict(facts)}) + "\n" for each in found)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for number, sweep in enumerate(sweeps):
        head, *rows = cost_rows(sweep)
        writer.writerows([] if number else [("sequences", *head)])
        writer.writerows((sweep.sequences, *row) for row in rows)
    return text.getvalue()


def sweep_tables(
    sweeps: Sequence[Sweep],
    facts: Mapping[str, Fact],
    best: Sequence[Sequence[Best]] | None = None,
) -> list[Table]:
    """Return two tables for each number of sequences; `best` of each sweep if it is known already."""
    tables = []
    found = [best_widths(sweep) for sweep in sweeps] if best is None else best
    for sweep, widths in zip(sweeps, found, strict=True):
        at = f"{sweep.sequences} at a time"
        for title, (head, *rows), rules in (
            (f"Cost of a round by width, {at}", cost_rows(sweep), _COSTS),
            (f"Best width by acceptance, {at}", best_rows(widths), _BEST),
        ):
            tables.append(Table(title, head, tuple(rows), (*where_lines(facts), *rules)))
    return tables
