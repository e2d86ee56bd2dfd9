"""The command's way: wishes -> questions and arms -> turns -> checks -> tables, files, plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DflashError, UsageError
from ..fitting import default_context
from ..gguf_file import GgufFile
from ..hardware import default_threads
from ..options import Options
from ..terminal import say, write
from . import plots
from .asked import (
    Pair,
    fit_together,
    parse_blocks,
    parse_concurrencies,
    parse_modes,
    parse_simulation,
    plan_pair,
)
from .document import parse_document
from .facts import Fact, collect
from .figures import Figures, reckon
from .invariants import Finding, check
from .labels import column_names
from .output import check_form, render, render_figures
from .records import Ask, Bench, Question
from .saved import BENCH, check_folder, read_bench, save
from .schedule import News, Planned, measure
from .sweeping import render_sweeps, sweep_pair
from .workloads import parse_workloads, read_questions, select

if TYPE_CHECKING:
    from .peers import Peer

_QUESTIONS = 10  # of a workload, unless said otherwise
_SHOWN = 20  # findings that are told


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is to be measured, as the command line has it."""

    target: Path | None
    draft: Path | None
    modes: str | None
    block: str
    context: int
    threads: int | None
    simulate: str | None
    workloads: tuple[str, ...]
    questions: int | None
    max_tokens: int
    concurrency: str
    runs: int
    think: bool | None
    temperature: float
    top_k: int
    top_p: float
    seed: int
    base_urls: tuple[str, ...] = ()
    peer_commands: tuple[str, ...] = ()
    peer_programs: tuple[str, ...] = ()
    peer_model: str | None = None
    streams: bool = True


def measured(
    wishes: Wishes, form: str, save_dir: Path | None, plot: Path | None, *, quiet: bool
) -> bool:
    """Measure and show; return whether nothing failed and all counts add up.

    Raises, before anything is measured, what the wishes' faults raise; DflashError if nothing could be measured.
    """
    _check_places(form, save_dir, plot)
    concurrencies = parse_concurrencies(wishes.concurrency)
    peers = _peers(wishes)
    pair = None if wishes.target is None and peers else _pair(wishes, peers)
    questions = _questions(wishes, concurrencies)
    pair = None if pair is None else _found(pair)
    arms = [] if pair is None else plan_pair(pair)
    arms += _planned(wishes, peers, pair)
    ask = _ask(wishes)
    made = measure(
        arms,
        questions,
        ask,
        concurrencies=concurrencies,
        runs=wishes.runs,
        facts=_facts(wishes, pair, len(questions)),
        together=fit_together(_files(pair), len(arms)),
        progress=_silent if quiet else Progress(arms),
    )
    made = _without_folders(made, _files(pair))
    return show_bench(made, check(made, ask), form, save_dir, plot, quiet=quiet)


def _without_folders(made: Bench, files: list[Path]) -> Bench:
    """Name files in failures without their folders: what is saved is shown to others."""
    failures = []
    for failure in made.failures:
        error = failure.error
        for path in files:
            error = error.replace(str(path), path.name)
        failures.append(replace(failure, error=error))
    return replace(made, failures=tuple(failures))


def swept(wishes: Wishes, form: str) -> None:
    """Measure and show what widths cost.

    Raises UsageError without a pair, and what `sweep_pair` raises.
    """
    check_form(form)
    concurrencies = parse_concurrencies(wishes.concurrency)
    pair = _pair(wishes)
    if pair.draft is None:
        text = "--sweep times blocks of a drafter; expected one (--draft)"
        raise UsageError(text)
    pair = _found(pair)
    widest = max((block for block in pair.blocks if isinstance(block, int)), default=None)
    sweeps = sweep_pair(pair.target, pair.draft or Path(), pair.options, concurrencies, widest)
    facts = collect(
        target=pair.target,
        draft=pair.draft,
        threads=wishes.threads,
        simulated="",
        settings={"context": wishes.context or "default"},
    )
    write(render_sweeps(sweeps, facts, form))


def show_bench(
    made: Bench,
    findings: list[Finding],
    form: str,
    save_dir: Path | None,
    plot: Path | None,
    *,
    quiet: bool,
) -> bool:
    """Save, print and draw a measurement; return whether nothing in it failed.

    Raises DflashError if no arm has a run that counts.
    """
    for failure in made.failures:
        say(f"failed: {failure.arm}, {failure.workload}: {failure.error}")
    for finding in findings[:_SHOWN]:
        say(finding.line())
    if len(findings) > _SHOWN:
        say(f"and {len(findings) - _SHOWN} more findings")
    if not any(cell.run for cell in made.cells):
        text = "nothing could be measured: " + (
            made.failures[0].error if made.failures else "there is no run"
        )
        raise DflashError(text)
    if save_dir is not None:
        folder = save(made, save_dir)
        if not quiet:
            say(f"saved: {folder}")
    write(render(made, form))
    _draw(reckon(made), plot, quiet=quiet)
    return not made.failures and not any(finding.level == "fault" for finding in findings)


def shown(folder: Path, form: str, plot: Path | None) -> bool:
    """Show a saved measurement, or the figures that `-o json` wrote; return whether no arm failed in it. Raises DflashError for what is none."""
    _check_places(form, None, plot)
    made, figures = _read(folder)
    write(render_figures(made, figures, form))
    _draw(figures, plot, quiet=False)
    return not made.failures


def _read(path: Path) -> tuple[Bench, Figures]:
    if path.is_file() and path.name != BENCH:
        return parse_document(path.read_text(encoding="utf-8"), str(path))
    made = read_bench(path)
    return made, reckon(made)


def _check_places(form: str, save_dir: Path | None, plot: Path | None) -> None:
    check_form(form)
    if save_dir is not None:
        check_folder(save_dir)
    if plot is not None:
        plots.check(plot)


def _draw(figures: Figures, plot: Path | None, *, quiet: bool) -> None:
    if plot is None:
        return
    for path in plots.save_plots(figures, plot):
        if not quiet:
            say(f"drawn: {path}")


def _questions(wishes: Wishes, concurrencies: tuple[int, ...]) -> tuple[Question, ...]:
    count = wishes.questions or max(_QUESTIONS, *concurrencies)
    return tuple(
        question
        for workload in parse_workloads(wishes.workloads)
        for question in select(read_questions(workload, target=wishes.target), count)
    )


def _pair(wishes: Wishes, peers: Sequence[Peer] = ()) -> Pair:
    """Read the wishes; no file is opened."""
    if wishes.target is None:
        text = (
            "no model is given; expected a target (--target), or a server (--base-url, --peer-cmd)"
        )
        raise UsageError(text)
    if wishes.context < 0:
        text = f"-c {wishes.context}: expected a number of tokens, or 0 for the default"
        raise UsageError(text)
    simulate = None
    if wishes.simulate is not None:
        if wishes.draft is None:
            text = (
                "--simulate draws how many drafts are accepted, and no drafter is given (--draft)"
            )
            raise UsageError(text)
        simulate = parse_simulation(wishes.simulate, wishes.seed)
    return Pair(
        wishes.target,
        wishes.draft,
        parse_modes(
            wishes.modes,
            draft=wishes.draft is not None,
            mtp=bool(wishes.peer_programs) or any(peer.mode == "mtp" for peer in peers),
        ),
        parse_blocks(wishes.block),
        Options(context=wishes.context or None, threads=wishes.threads),
        simulate,
    )


def _found(pair: Pair) -> Pair:
    """Say which file the drafter is, if a folder was given or a checkpoint."""
    from ..draft_file import find_draft

    return pair if pair.draft is None else replace(pair, draft=find_draft(pair.draft, pair.target))


def _files(pair: Pair | None) -> list[Path]:
    return [] if pair is None else [path for path in (pair.target, pair.draft) if path is not None]


def _peers(wishes: Wishes) -> list[Peer]:
    """Read what servers are wished for; none is asked or started."""
    if not wishes.base_urls and not wishes.peer_commands:
        return []
    from .peers import parse_peer

    return [
        *(parse_peer(text, command=False) for text in wishes.base_urls),
        *(parse_peer(text, command=True) for text in wishes.peer_commands),
    ]


def _planned(wishes: Wishes, peers: Sequence[Peer], pair: Pair | None) -> list[Planned]:
    if not peers and not wishes.peer_programs:
        return []
    from .llama_server import peers_like
    from .peers import plan_peers

    chosen = list(peers)
    if pair is None:
        if wishes.peer_programs:
            text = f"--peer {wishes.peer_programs[0]}: it stands beside a pair; expected --target"
            raise UsageError(text)
        return plan_peers(chosen, wishes.peer_model, streams=wishes.streams)
    threads = wishes.threads or default_threads()
    for program in wishes.peer_programs:
        chosen += peers_like(program, pair, threads=threads)
    return plan_peers(chosen, wishes.peer_model, context=_context(pair), streams=wishes.streams)


def _context(pair: Pair) -> int:
    """Positions of a request."""
    with GgufFile(pair.target) as file:
        trained = file.integer(f"{file.string('general.architecture')}.context_length")
    return default_context(pair.options, trained)


def _ask(wishes: Wishes) -> Ask:
    return Ask(
        max_tokens=wishes.max_tokens,
        temperature=wishes.temperature,
        top_p=wishes.top_p,
        top_k=wishes.top_k,
        seed=wishes.seed,
        think=wishes.think,
        # a text that is nobody's ends anywhere
        ignore_end=wishes.simulate is not None,
    )


def _facts(wishes: Wishes, pair: Pair | None, questions: int) -> dict[str, Fact]:
    greedy = wishes.temperature == 0
    settings: dict[str, Fact] = {
        "sampling": "greedy"
        if greedy
        else f"temperature {wishes.temperature} top-k {wishes.top_k} top-p {wishes.top_p} "
        f"seed {wishes.seed}",
        "max_tokens": wishes.max_tokens,
        "think": {None: "as the template does", True: "yes", False: "no"}[wishes.think],
        "questions": questions,
        "runs": wishes.runs,
        "context": wishes.context or "default",
    }
    return collect(
        target=None if pair is None else pair.target,
        draft=None if pair is None else pair.draft,
        threads=wishes.threads,
        simulated=wishes.simulate or "",
        settings=settings,
    )


def _silent(_: News) -> None:
    pass


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
