"""A measurement as text: md (the cards' tables), json (one document), jsonl and csv (a line for each figure)."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..errors import UsageError
from .figures import Figure, Figures, Spread, reckon
from .records import STAGES, Bench, acceptances
from .tables import Table, all_tables

# what a line alone must say of its measurement
_ORIGIN = ("date", "machine.cpu", "machine.cores", "threads", "target.file", "target.types")
_ORIGIN_TOO = ("draft.file", "draft.types", "version", "revision", "llama.cpp")


def check_form(form: str) -> None:
    """Raise UsageError for a form of output that there is not."""
    if form not in _FORMS:
        text = f"-o {form}: expected one of {', '.join(_FORMS)}"
        raise UsageError(text)


def render(bench: Bench, form: str) -> str:
    """Return a measurement as `form`, md, json, jsonl or csv, ending with a line break.

    Raises UsageError for another form, and for cells that no figures can be reckoned from.
    """
    return render_figures(bench, reckon(bench), form)


def render_figures(bench: Bench, figures: Figures, form: str) -> str:
    """Return figures that have been reckoned already, as `render` does; of `bench` all but the cells is needed."""
    check_form(form)
    return _FORMS[form](bench, figures)


def _md(bench: Bench, figures: Figures) -> str:
    return "\n".join(md_table(table) for table in all_tables(bench, figures))


def md_table(table: Table, *, heading: str = "##", notes: bool = True) -> str:
    """Return a table as Markdown, its notes below."""
    lines = [f"{heading} {table.title}", ""]
    lines += [_md_row(table.header), _md_row(["---"] * len(table.header))]
    lines += [_md_row(row) for row in table.rows]
    lines += ["", *(f"- {note}" for note in table.notes if notes), ""]
    return "\n".join(lines)


def _md_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _json(bench: Bench, figures: Figures) -> str:
    document = {
        "simulated": figures.simulated,
        "facts": bench.facts,
        "prompts": bench.prompts,
        "baseline": figures.baseline,
        "state": bench.state,
        "lacks": figures.lacks,
        "arms": [asdict(arm) for arm in bench.arms],
        "figures": [asdict(figure) for figure in figures.by_key.values()],
        "failures": [asdict(failure) for failure in bench.failures],
        "findings": None
        if figures.findings is None
        else [asdict(finding) for finding in figures.findings],
    }
    return json.dumps(document, indent=2) + "\n"


def _jsonl(bench: Bench, figures: Figures) -> str:
    faults = _faults(figures)
    lines = [
        {**_head(bench, figures, figure, faults), **asdict(figure)}
        for figure in figures.by_key.values()
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def _csv(bench: Bench, figures: Figures) -> str:
    faults = _faults(figures)
    rows = [_flat(bench, figures, figure, faults) for figure in figures.by_key.values()]
    stages = dict.fromkeys(
        (*STAGES, *(stage for figure in figures.by_key.values() for stage in figure.shares))
    )
    columns = [*rows[0], *(f"share_{stage}" for stage in stages)]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row, figure in zip(rows, figures.by_key.values(), strict=True):
        writer.writerow({**row, **{f"share_{s}": part for s, part in figure.shares.items()}})
    return text.getvalue()


def _faults(figures: Figures) -> Counter[str]:
    """How many faults an arm has, by its name: they spoil the trust in all of its figures."""
    found = figures.findings or ()
    return Counter(finding.arm for finding in found if finding.level == "fault")


def _head(
    bench: Bench, figures: Figures, figure: Figure, faults: Mapping[str, int]
) -> dict[str, Any]:
    arm = next(arm for arm in figures.arms if arm.name == figure.arm)
    return {
        "simulated": figures.simulated,
        "state": bench.state,
        "faults": faults[figure.arm],
        "engine": arm.speaks_for,
        "mode": arm.mode,
        "width": arm.width,
        "acceptance_is": acceptances(bench).get(arm.name, ""),
        "prompts": bench.prompts,
        **{key: bench.facts.get(key, "") for key in (*_ORIGIN, *_ORIGIN_TOO)},
    }


def _flat(
    bench: Bench, figures: Figures, figure: Figure, faults: Mapping[str, int]
) -> dict[str, Any]:
    row = _head(bench, figures, figure, faults)
    for key, value in asdict(figure).items():
        if key == "shares":
            continue
        spread = getattr(figure, key)
        if key in {"throughput", "speedup", "decode_speed"}:
            known = spread if isinstance(spread, Spread) else None
            row[key] = None if known is None else known.median
            row[f"{key}_least"] = None if known is None else known.least
            row[f"{key}_most"] = None if known is None else known.most
        elif key == "same_texts":
            row[key] = None if value is None else "{}/{}".format(*value)
        elif key == "acceptance_at":
            row[key] = " ".join("-" if part is None else f"{part:.6f}" for part in value)
        else:
            row[key] = value
    return row


_FORMS: dict[str, Callable[[Bench, Figures], str]] = {
    "md": _md,
    "json": _json,
    "jsonl": _jsonl,
    "csv": _csv,
}
