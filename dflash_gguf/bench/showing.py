"""What a person sees of a measurement: while it runs, when it is over, and when it was cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import DflashError
from ..terminal import say, write
from . import plots
from .document import parse_document
from .figures import Figures, reckon
from .invariants import Finding, check
from .labels import column_names
from .lacks import lacks
from .output import check_form, render, render_figures
from .records import Bench
from .saved import BENCH, Saving, check_folder, read_bench
from .schedule import News, Planned

_SHOWN = 20  # findings that are told


def check_places(form: str, save_dir: Path | None, plot: Path | None) -> None:
    """Raise now what would be raised when all is measured: UsageError, DflashError or OSError."""
    check_form(form)
    if save_dir is not None:
        check_folder(save_dir)
    if plot is not None:
        plots.check(plot)


def show_bench(
    made: Bench, form: str, saving: Saving | None, plot: Path | None, *, quiet: bool
) -> bool:
    """Save, print and draw a measurement; return whether nothing in it failed.

    Raises DflashError if no arm has a run that counts; OSError if it cannot be saved, with its tables printed.
    """
    if not made.has_runs:
        _tell(made, check(made))
        text = "nothing could be measured: " + (
            made.failures[0].error if made.failures else "there is no run"
        )
        raise DflashError(text)
    try:
        if saving is not None:
            saving.end(made)
    finally:
        good = _show(made, reckon(made), form, plot, quiet=quiet)
    if saving is not None and not quiet:
        say(f"saved: {saving.folder}")
    return good


def _show(made: Bench, figures: Figures, form: str, plot: Path | None, *, quiet: bool) -> bool:
    faults = _tell(made, figures.findings or ())
    write(render_figures(made, figures, form))
    if plot is not None:
        for path in plots.save_plots(figures, plot):
            if not quiet:
                say(f"drawn: {path}")
    if faults:
        count = f"{faults} fault{'s' if faults > 1 else ''}"
        say(f"{count}, told above the tables: the figures cannot be trusted")
    return not made.failures and not faults


def show_cut(made: Bench, form: str, saving: Saving | None) -> None:
    """Save and print what there is of a measurement that was cut, and say what is missing.

    Raises OSError if it cannot be saved, with its tables printed.
    """
    try:
        if saving is not None and made.cells:
            saving.end(made)
    finally:
        _tell(made, check(made))
        if made.has_runs:
            write(render(made, form))
        else:
            say("interrupted before a run that counts was over: there is nothing to show")
        say(lacks(made, column_names(made.arms)))
    if saving is not None and made.cells:
        say(f"saved: {saving.folder}")


def shown(path: Path, form: str, plot: Path | None) -> bool:
    """Show a saved measurement, or the figures that `-o json` wrote; return whether nothing in it failed.

    Raises DflashError for what is neither.
    """
    check_places(form, None, plot)
    if path.is_file() and path.name != BENCH:
        made, figures = parse_document(path.read_text(encoding="utf-8"), str(path))
    else:
        made = read_bench(path)
        figures = reckon(made)
    return _show(made, figures, form, plot, quiet=False)


def _tell(made: Bench, findings: Sequence[Finding]) -> int:
    """Say what failed and what was found, with the arms' names in the tables; return how many faults there are."""
    names = column_names(made.arms)
    for failure in made.failures:
        say(f"failed: {names.get(failure.arm, failure.arm)}, {failure.workload}: {failure.error}")
    for finding in findings[:_SHOWN]:
        say(replace(finding, arm=names.get(finding.arm, finding.arm)).line())
    if len(findings) > _SHOWN:
        say(f"and {len(findings) - _SHOWN} more findings")
    return sum(finding.level == "fault" for finding in findings)


def ignored(*_: object) -> None:
    """Show nothing of it."""


def told_of_sweeps(sequences: int, done: int, total: int) -> None:
    """Say how far a sweep is, ten times."""
    if done * 10 // total > (done - 1) * 10 // total:
        say(f"[{done}/{total}] rounds of blocks, {sequences} at a time")


class Progress:
    """Says a line for every run that is over, and for every arm that is opened."""

    def __init__(self, arms: list[Planned]) -> None:
        self._names = column_names(tuple(arm.facts for arm in arms))

    def __call__(self, news: News) -> None:
        """Tell one piece of news."""
        name = self._names[news.arm]
        if news.event == "open":
            say(f"opening {name}")
        elif news.event == "ran" and news.cell is not None:
            run = f"run {news.run}" if news.run else "warm-up"
            say(
                f"[{news.done}/{news.total}] {news.workload}, {news.concurrency} at a time, {run}: {name} "
                f"{news.cell.throughput:,.1f} tok/s"
            )
