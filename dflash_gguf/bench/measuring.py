"""The command's way: wishes -> questions and arms -> turns -> checks -> tables, files, plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..fitting import default_context
from ..gguf_file import GgufFile
from ..hardware import default_threads
from ..options import Options, settled
from ..pair import check_pair
from ..sampling import Sampling
from ..terminal import no_reader_needed, write
from .asked import (
    Pair,
    fit_together,
    parse_blocks,
    parse_concurrencies,
    parse_modes,
    parse_simulation,
    plan_pair,
)
from .facts import Fact, collect
from .output import check_form
from .records import Ask, Bench, Question
from .saved import Saving
from .schedule import Planned, measure
from .showing import Progress, check_places, ignored, show_bench, show_cut, told_of_sweeps
from .sweeping import render_sweeps, sweep_pair
from .workloads import parse_workloads, read_questions, select

if TYPE_CHECKING:
    from .peers import Peer

_QUESTIONS = 10  # of a workload, unless said otherwise


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

    Each run is saved when it is over. Whatever cuts the measurement, Ctrl-C or a full disk, what there is by then is shown,
    and that is raised on. Raises, before anything is measured, what the wishes' faults raise; DflashError if nothing
    could be measured.
    """
    check_places(form, save_dir, plot)
    concurrencies = parse_concurrencies(wishes.concurrency)
    peers = _peers(wishes)
    pair = None if wishes.target is None and peers else _pair(wishes, peers)
    drawn = _drawn(wishes, peers)
    ask = _ask(wishes, ignore_end=bool(drawn))
    questions = _questions(wishes, concurrencies)
    pair = None if pair is None else _found(pair)
    arms = [] if pair is None else plan_pair(pair)
    arms += _planned(wishes, peers, pair)
    kept = _Kept(
        _public(_files(pair), wishes.base_urls), None if save_dir is None else Saving(save_dir)
    )
    try:
        made = measure(
            arms,
            questions,
            ask,
            concurrencies=concurrencies,
            runs=wishes.runs,
            facts=_facts(wishes, pair, questions, drawn),
            together=fit_together(_files(pair), len(arms)),
            progress=ignored if quiet else Progress(arms),
            keep=kept,
        )
    except BaseException:
        if kept.bench is not None:
            with no_reader_needed():
                show_cut(replace(kept.bench, state="interrupted"), form, kept.saving)
        raise
    return show_bench(_without_places(made, kept.names), form, kept.saving, plot, quiet=quiet)


@dataclass(slots=True)
class _Kept:
    """What was measured so far; on disk too if it is to be saved."""

    names: dict[str, str]
    saving: Saving | None
    bench: Bench | None = None

    def __call__(self, bench: Bench) -> None:
        self.bench = _without_places(bench, self.names)
        if self.saving is not None:
            self.saving.keep(self.bench)


def _public(files: Sequence[Path], urls: Sequence[str]) -> dict[str, str]:
    """What files and servers are called in what is saved, which is shown to others: no folders, no hosts."""
    names = {str(path): path.name for path in files}
    for number, text in enumerate(urls, 1):
        url = text[text.find("http") :].strip().rstrip("/").removesuffix("/v1")
        names[url] = f"(URL {number})"
    return names


def _without_places(made: Bench, names: Mapping[str, str]) -> Bench:
    """Let failures call things by these names."""
    failures = []
    for failure in made.failures:
        error = failure.error
        for place in sorted(names, key=len, reverse=True):  # one may begin like another
            error = error.replace(place, names[place])
        failures.append(replace(failure, error=error))
    return replace(made, failures=tuple(failures))


def swept(wishes: Wishes, form: str, *, quiet: bool) -> None:
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
    sweeps = sweep_pair(
        pair.target,
        pair.draft or Path(),
        pair.options,
        concurrencies,
        widest,
        progress=ignored if quiet else told_of_sweeps,
    )
    facts = collect(
        target=pair.target,
        draft=pair.draft,
        threads=wishes.threads,
        simulated="",
        settings={"context": wishes.context or "default"},
    )
    write(render_sweeps(sweeps, facts, form))


def _questions(wishes: Wishes, concurrencies: tuple[int, ...]) -> tuple[Question, ...]:
    most = max(concurrencies)
    count = wishes.questions or max(_QUESTIONS, most)
    if count < most:
        text = f"--questions {count}: fewer than --concurrency {most} asks at a time; give {most} or more"
        raise UsageError(text)
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
    return Pair(
        wishes.target,
        wishes.draft,
        parse_modes(
            wishes.modes,
            draft=wishes.draft is not None,
            mtp=bool(wishes.peer_programs) or any(peer.mode == "mtp" for peer in peers),
        ),
        parse_blocks(wishes.block),
        settled(Options(context=wishes.context or None, threads=wishes.threads), {}),
        None if wishes.simulate is None else parse_simulation(wishes.simulate, wishes.seed),
    )


def _found(pair: Pair) -> Pair:
    """Say which file the drafter is, if a folder was given or a checkpoint; see that it fits before anything is loaded."""
    from ..draft_file import find_draft

    if pair.draft is None:
        return pair
    draft = find_draft(pair.draft, pair.target)
    trained = check_pair(pair.target, draft).block
    widest = max((block for block in pair.blocks if isinstance(block, int)), default=0)
    if widest > trained:
        text = f"--block {widest}: {draft} was trained for {trained} rows; give 2 to {trained}, or auto"
        raise UsageError(text)
    return replace(pair, draft=draft)


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


def _drawn(wishes: Wishes, peers: Sequence[Peer]) -> str:
    """From what acceptance is drawn, by us or by a server that was told to; empty: it is found out."""
    parts = [wishes.simulate or "", *(peer.drawn for peer in peers)]
    return "; ".join(dict.fromkeys(part for part in parts if part))


def _ask(wishes: Wishes, *, ignore_end: bool) -> Ask:
    """Raises UsageError for sampling out of its bounds."""
    Sampling(wishes.temperature, top_p=wishes.top_p, top_k=wishes.top_k, seed=wishes.seed)
    return Ask(
        max_tokens=wishes.max_tokens,
        temperature=wishes.temperature,
        top_p=wishes.top_p,
        top_k=wishes.top_k,
        seed=wishes.seed,
        think=wishes.think,
        # a text that is nobody's ends anywhere
        ignore_end=ignore_end,
    )


def _counted(questions: Sequence[Question]) -> str | int:
    """How many are asked, and of how many different ones if some are asked again."""
    different = len({(question.workload, question.number) for question in questions})
    return (
        len(questions)
        if different == len(questions)
        else f"{len(questions)} of {different} different ones"
    )


def _facts(
    wishes: Wishes, pair: Pair | None, questions: Sequence[Question], drawn: str
) -> dict[str, Fact]:
    greedy = wishes.temperature == 0
    settings: dict[str, Fact] = {
        "sampling": "greedy"
        if greedy
        else f"temperature {wishes.temperature} top-k {wishes.top_k} top-p {wishes.top_p} "
        f"seed {wishes.seed}",
        "max_tokens": wishes.max_tokens,
        "think": {None: "as the template does", True: "yes", False: "no"}[wishes.think],
        "questions": _counted(questions),
        "runs": wishes.runs,
        "context": wishes.context or "default",
    }
    return collect(
        target=None if pair is None else pair.target,
        draft=None if pair is None else pair.draft,
        threads=wishes.threads,
        simulated=drawn,
        settings=settings,
    )
