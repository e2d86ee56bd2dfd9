"""A pair, from its files to one block that is drafted and verified. Runs in child.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..convert.target import read_target
from ..draft_file import find_draft
from ..engine import Engine
from ..gguf_file import GgufFile
from ..inspection import inspect_file
from ..loading import load, plan_pair
from ..options import Options
from ..pair import Draft, check_pair
from ..plan import size_text
from ..sequence import Sequence
from ..stats import Stats
from .findings import Check, Finding, fault, note, ok

PROMPT = "Count from 1 to 100, with a comma between the numbers."
_TOKENS = 48  # enough blocks for a hint that drafts are one place off
_CONTEXT = 2048  # of the check: a template may bring long instructions of its own
# natural log of a probability: nearer than this, llama.cpp's kernels for one row and for many may choose otherwise
_NEAR = 0.2


class PairChecks:
    """The checks of a pair, or of a target alone, one after the other; each relies on those before it."""

    def __init__(self, target: Path, draft: Path | None, context: int) -> None:
        self._target = target
        self._given = draft
        self._options = Options(context=context or None)
        self._draft: Draft | None = None

    def checks(self) -> dict[str, Check]:
        """Return them by name, in order."""
        last: dict[str, Check] = {"memory plan": self.memory_plan}
        if self._given is None:
            return {"target": self.target, **last, "answer": self.answer}
        return {
            "target": self.target,
            "draft": self.draft,
            "fit": self.fit,
            **last,
            "block": self.block,
        }

    def target(self) -> Iterator[Finding]:
        """Say what the target is. Raises ModelError if it is none."""
        with GgufFile(self._target) as file:
            target = read_target(file)
            name = file.string("general.name", "")
        text = (
            f"{self._target.name}{f' ({name})' if name else ''}: {target.architecture}, {target.n_layers} layers of "
            f"width {target.hidden_size}, {target.vocab_size:,} tokens, {size_text(self._target.stat().st_size)}"
        )
        yield ok("target", text, path=str(self._target), architecture=target.architecture)

    def draft(self) -> Iterator[Finding]:
        """Say what the drafter is, and what is odd about it. Raises ModelError if it is none."""
        assert self._given is not None
        path = find_draft(self._given, self._target)
        report = inspect_file(path)
        if report.architecture != "dflash":
            check_pair(self._target, path)  # says what it is instead, and what to do
        text = (
            f"{path.name}: {report.family}, {len(report.layers)} layers, {report.bits_per_weight:g} bits per weight, "
            f"{size_text(report.bytes)}"
        )
        yield ok("draft", text, path=str(path), family=report.family, origin=report.origin)
        for oddity in report.oddities:
            yield note("draft", oddity)
        self._given = path

    def fit(self) -> Iterator[Finding]:
        """Ask whether the two belong together. Raises ModelError, with both values, if not."""
        assert self._given is not None
        self._draft = check_pair(self._target, self._given)
        taps = ", ".join(map(str, self._draft.taps))
        text = f"the drafter was made for this target: blocks of {self._draft.block}, it reads layers {taps}"
        yield ok("fit", text, block=self._draft.block, taps=list(self._draft.taps))

    def memory_plan(self) -> Iterator[Finding]:
        """Plan what `run` would take. Raises ResourceError, naming a context that fits, if that does not."""
        fitted = plan_pair(self._target, self._draft, self._options)
        lines = [asdict(line) for line in fitted.plan.lines]
        sizes = {"context": fitted.sizes.context, "block": fitted.sizes.block}
        planned = fitted.plan.line().partition(": ")[2]
        text = f"{planned}, with a context of {fitted.sizes.context:,} tokens: it fits"
        yield ok("memory plan", text, total=fitted.plan.total, lines=lines, **sizes)
        for text in fitted.notes:
            yield note("memory plan", text, "give a smaller context (-c), or end other programs")

    def answer(self) -> Iterator[Finding]:
        """Let the target alone write some tokens."""
        with self._open() as engine:
            answer = _plain(engine)
        yield ok("answer", f"the target writes: {answer.text[:60]!r}", tokens=answer.tokens)

    def block(self) -> Iterator[Finding]:
        """Draft and verify one block, then more of them, and compare with the target alone."""
        with self._open() as engine:
            before = len(engine.warnings)
            own = _plain(engine)
            drafted = engine.start(PROMPT, max_tokens=_TOKENS)
            first = _first_block(engine, drafted)
            while drafted.finish_reason is None:
                engine.step()
            stats = drafted.stats
            warnings = engine.warnings[before:]
        if stats is None or first is None:
            ended = (
                f"the answer ended after {len(drafted.tokens)} tokens, before anything was drafted"
            )
            yield note("block", ended)
            return
        yield ok(
            "block",
            f"one block was drafted and verified: {first.accepted} of {first.drafted} tokens were the target's own",
            drafted=first.drafted,
            accepted=first.accepted,
        )
        yield from _compare(own, drafted)
        yield from _acceptance(stats, warnings)

    def _open(self) -> Engine:
        """Open the pair for one short answer: nothing is measured and nothing kept."""
        asked = min(self._options.context or _CONTEXT, _CONTEXT)
        draft = self._draft
        return load(
            self._target,
            None if draft is None else draft.path,
            context=asked,
            block=1 if draft is None else draft.block,
            prefix_memory=0,
        )


def _plain(engine: Engine) -> Sequence:
    return engine.generate(PROMPT, max_tokens=_TOKENS, block=1, logprobs=2)


def _first_block(engine: Engine, sequence: Sequence) -> Stats | None:
    """Go on until a block was verified; return the counts then, None if the answer ends without."""
    while sequence.finish_reason is None:
        engine.step()
        stats = engine.so_far(sequence)
        if stats.drafting_rounds:
            return stats
    return sequence.stats if sequence.stats and sequence.stats.drafting_rounds else None


def _compare(own: Sequence, drafted: Sequence) -> Iterator[Finding]:
    pairs = enumerate(zip(own.tokens, drafted.tokens, strict=False))
    at = next((place for place, (a, b) in pairs if a != b), None)
    if at is None and len(own.tokens) == len(drafted.tokens):
        text = f"{len(own.tokens)} tokens are the same with the drafter and without"
        yield ok("text", text, tokens=own.tokens)
        return
    at = min(len(own.tokens), len(drafted.tokens)) if at is None else at
    top = own.logprobs[at].top if at < len(own.logprobs) else ()
    gap = top[0][1] - top[1][1] if len(top) > 1 else None
    text = f"the text with the drafter parts from the target's own after {at} tokens"
    facts: dict[str, Any] = {"own": own.tokens, "drafted": drafted.tokens, "gap": gap}
    if gap is not None and gap < _NEAR:
        yield note(
            "text",
            f"{text}, where the two best tokens are nearly equal (log-probabilities {gap:.3f} apart): llama.cpp may "
            "compute one row and several with different kernels",
            "nothing; a target in f32 does not do so",
            **facts,
        )
    else:
        yield fault(
            "text",
            f"{text}, where the target is sure of its own",
            "please report it with this document (--json); until then --no-draft gives the target's own text",
            **facts,
        )


def _acceptance(stats: Stats, warnings: list[str]) -> Iterator[Finding]:
    facts = asdict(stats)
    if stats.draft_failure:
        yield fault("drafts", f"drafting stopped: {stats.draft_failure}", "run it with --no-draft")
    if stats.accept_length is None:
        yield note("drafts", "nothing was drafted")
        return
    text = (
        f"{stats.accepted} of {stats.drafted} tokens accepted in {stats.drafting_rounds} blocks, accept length "
        f"{stats.accept_length:.1f} of {stats.block}"
    )
    hints = [warning for warning in warnings if "drafting stopped" not in warning]
    if stats.accepted:
        yield ok("drafts", text, **facts)
    elif not hints:
        yield note(
            "drafts",
            text,
            "was the drafter trained for this very model? One of the same sizes fits and does not help",
            **facts,
        )
    for hint in hints:
        fact, _, remedy = hint.rpartition("; ")
        yield note("drafts", f"{text}; {fact or hint}", remedy if fact else "", **facts)
