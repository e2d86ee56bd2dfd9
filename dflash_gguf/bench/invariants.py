"""What must hold of every measurement, whatever its figures are: counts and times add up, texts are the same.

A fault means that figures of the cell cannot be trusted, a warning that somebody should look before they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from .loops import loop
from .records import STAGES, ArmFacts, Ask, Bench, Cell, Turn
from .texts import compare_texts, unsteady_texts

OURS = "dflash-gguf"
_SLACK = 0.01  # of a total
_TICK = 1e-6  # seconds that times may be off for being rounded
_UNFINISHED = ("cancelled", "error")
_FEW = 4  # tokens after which an arm that never drafts is one that does not work


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not hold, or that spoils what the figures seem to say.

    Attributes:
        name: of the rule, such as "emitted" or "one-token-loop".
        level: fault or warning.
        text: what was expected and what was found.
        workload, concurrency, run, question, turn: where; None: in all of them.
    """

    name: str
    level: Literal["fault", "warning"]
    arm: str
    text: str
    workload: str | None = None
    concurrency: int | None = None
    run: int | None = None
    question: int | None = None
    turn: int | None = None

    def place(self) -> str:
        """Return where it is, as parts of a line, each behind a comma."""
        parts = (
            ("", self.workload),
            ("concurrency ", self.concurrency),
            ("run ", self.run),
            ("question ", self.question),
            ("turn ", self.turn),
        )
        return "".join(f", {word}{value}" for word, value in parts if value is not None)

    def line(self) -> str:
        """Return it as one line."""
        return f"{self.level} {self.name}: {self.arm}{self.place()}: {self.text}"


def check(bench: Bench) -> list[Finding]:
    """Return all that is wrong or odd in a measurement, faults first; nothing where it is not told how it was asked."""
    ask = bench.ask
    if ask is None:
        return []
    arms = {facts.name: facts for facts in bench.arms}
    found = [finding for facts in bench.arms for finding in check_arm(facts)]
    for cell in bench.cells:
        if cell.arm in arms:  # else no figures can be reckoned
            found += check_cell(cell, arms[cell.arm], ask)
    simulated = bool(bench.facts.get("simulated"))
    if not simulated:
        found += _loops(bench.cells)
        if ask.temperature == 0:
            found += _texts(bench)
    return sorted(found, key=lambda finding: finding.level)


def check_arm(facts: ArmFacts) -> Iterator[Finding]:
    """Yield what there is to say of an arm, whatever it answers."""
    if facts.details.get("template") == "none":
        text = "no chat template was used; a drafter is trained on conversations and accepts less of plain text"
        yield Finding("no-template", "warning", facts.name, text)


def check_cell(cell: Cell, facts: ArmFacts, ask: Ask) -> Iterator[Finding]:
    """Yield what does not hold of the counts and times of a cell."""
    where = _Where(cell)
    yield from _shares(cell, where)
    yield from _order(cell, where)
    yield from _server_counts(cell, where)
    yield from _drafts(cell, facts, where)
    for turn in cell.turns:
        at = _Where(cell, turn)
        yield from _counts(turn, facts, ask, at)
        yield from _times(turn, cell, at)


def _drafts(cell: Cell, facts: ArmFacts, where: _Where) -> Iterator[Finding]:
    """An arm drafts or does not, as its place in the tables says."""
    told = [turn for turn in cell.turns if turn.drafted is not None]
    drafted = sum(turn.drafted or 0 for turn in told)
    if cell.counts is not None:
        if len(told) == len(cell.turns) and drafted != cell.counts.drafted:
            text = f"{drafted} tokens were drafted by answer, {cell.counts.drafted} by the server's counters"
            yield where.warning("drafted", text)
        drafted = max(drafted, cell.counts.drafted)
    tokens = sum(turn.completion_tokens - 1 for turn in told)
    drafting = facts.mode != "ar" and isinstance(facts.width, int)
    if drafting and tokens > _FEW * len(told) and drafted == 0:
        text = f"{tokens} tokens were decoded and none was drafted"
        # a server may be told to draft what is likely only
        yield (where.fault if facts.speaks_for == OURS else where.warning)("no-drafts", text)
    if facts.mode == "ar" and drafted > 0 and facts.speaks_for != OURS:
        text = (
            f"a baseline drafted {drafted} tokens, so that speed-ups are not over plain decoding; say what it is, "
            "such as dflash:8=URL"
        )
        yield where.warning("drafts", text)


@dataclass(frozen=True, slots=True)
class _Where:
    cell: Cell
    turn: Turn | None = None

    def fault(self, name: str, text: str) -> Finding:
        return self._finding(name, "fault", text)

    def warning(self, name: str, text: str) -> Finding:
        return self._finding(name, "warning", text)

    def _finding(self, name: str, level: Literal["fault", "warning"], text: str) -> Finding:
        cell, turn = self.cell, self.turn
        place = (None, None) if turn is None else (turn.question, turn.turn)
        return Finding(
            name, level, cell.arm, text, cell.workload, cell.concurrency, cell.run, *place
        )


def _counts(turn: Turn, facts: ArmFacts, ask: Ask, at: _Where) -> Iterator[Finding]:
    count = turn.completion_tokens
    if turn.finish_reason in _UNFINISHED:
        yield at.fault("unfinished", f"the answer ended as {turn.finish_reason!r}")
    if not 0 <= count <= ask.max_tokens:
        text = f"{count} tokens were written; expected at most {ask.max_tokens}"
        yield at.fault("max-tokens", text)
    if count == 0 and turn.finish_reason not in _UNFINISHED:
        yield at.fault("empty", "no token was written; expected one at least, the end token")
    yield from _positions(turn, at)
    drafted, accepted = turn.drafted, turn.accepted
    if drafted is not None and accepted is not None and not 0 <= accepted <= drafted:
        yield at.fault("accepted", f"{accepted} of {drafted} drafted tokens were accepted")
    if facts.speaks_for == OURS:
        yield from _exactly(turn, facts, at)
    else:
        yield from _within_bounds(turn, facts, at)


def _exactly(turn: Turn, facts: ArmFacts, at: _Where) -> Iterator[Finding]:
    """The rules of our own counters.

    The prompt gives a token, every verify one, and every accepted draft one. A round that is cut, by an end token, by
    the token that completes a stop string or by max_tokens, counts what is kept of it: all but the last as accepted.
    So it holds for answers that were cancelled or failed too, unless that was before their first token.
    """
    # what an engine of this process tells; a server of ours may leave it out, and tells no drafts by position
    inside = bool(at.cell.shares)
    if turn.rounds is None or turn.accepted is None or turn.drafted is None:
        if inside:
            text = "rounds, drafted or accepted are missing; this engine tells them"
            yield at.fault("untold", text)
        return
    count, rounds = turn.completion_tokens, turn.rounds
    if count == 0 and (rounds, turn.accepted, turn.drafted) == (0, 0, 0):
        return
    if count != 1 + rounds + turn.accepted:
        text = (
            f"{count} tokens were written; expected 1 + {rounds} rounds + {turn.accepted} accepted"
        )
        yield at.fault("emitted", text)
    width = 1 if facts.mode == "ar" else facts.width
    if isinstance(width, int) and turn.drafted > rounds * (width - 1):
        text = f"{turn.drafted} tokens were drafted in {rounds} rounds of {width} rows"
        yield at.fault("drafted", text)
    by_place = (
        ("drafted", turn.drafted, turn.drafted_at),
        ("accepted", turn.accepted, turn.accepted_at),
    )
    for name, total, places in by_place:
        if sum(places) != total and (places or inside):
            text = f"{total} tokens were {name}, by position {sum(places)}"
            yield at.fault("positions", text)


def _within_bounds(turn: Turn, facts: ArmFacts, at: _Where) -> Iterator[Finding]:
    """What holds of other engines' counters.

    They count tokens behind the end too, a round for the prompt, or one that was cut.
    """
    count, rounds, accepted = turn.completion_tokens, turn.rounds, turn.accepted
    if rounds is None:
        return
    if accepted is not None and count > 1 + rounds + accepted:
        text = f"{count} tokens came of {rounds} rounds with {accepted} accepted: that is too many"
        yield at.fault("emitted", text)
    if isinstance(facts.width, int) and turn.drafted is not None:
        each = facts.width - (facts.mode == "dflash")
        if turn.drafted > (rounds + 1) * each:
            text = f"{turn.drafted} tokens were drafted in {rounds} rounds; expected {each} in each at most"
            yield at.warning("drafted", text)


def _positions(turn: Turn, at: _Where) -> Iterator[Finding]:
    """A block is drafted and accepted from its beginning on."""
    for name, counts in (("drafted", turn.drafted_at), ("accepted", turn.accepted_at)):
        if any(count < 0 for count in counts) or list(counts) != sorted(counts, reverse=True):
            text = f"{name} by position are {list(counts)}; expected counts that do not increase"
            yield at.fault("positions", text)
    blocks = max(turn.drafted_at[:1] + turn.accepted_at[:1], default=0)
    if turn.rounds is not None and blocks > turn.rounds:
        text = f"{blocks} blocks were drafted in {turn.rounds} rounds"
        yield at.fault("positions", text)
    if not turn.drafted_at:  # servers may tell the accepted ones alone
        return
    pairs = zip(turn.drafted_at, turn.accepted_at, strict=False)
    if len(turn.accepted_at) > len(turn.drafted_at) or any(had < kept for had, kept in pairs):
        text = f"accepted by position are {list(turn.accepted_at)} of {list(turn.drafted_at)}"
        yield at.fault("positions", text)


def _times(turn: Turn, cell: Cell, at: _Where) -> Iterator[Finding]:
    first = turn.last if turn.first is None else turn.first  # it came whole
    moments = [0.0, turn.start, first, turn.last, cell.seconds]
    if any(later < earlier - _TICK for earlier, later in pairwise(moments)):
        text = (
            f"asked at {turn.start:.6f} s, first piece at {first:.6f}, last at {turn.last:.6f}, cell's end "
            f"at {cell.seconds:.6f}; expected them in this order"
        )
        yield at.fault("times", text)
    took = (turn.last - turn.start) * (1 + _SLACK) + _TICK
    prefill, decode = turn.prefill_seconds or 0.0, turn.decode_seconds or 0.0
    if min(prefill, decode) < -_TICK or prefill + decode > took:
        text = (
            f"prefill took {prefill:.6f} s and decode {decode:.6f} of an answer that took "
            f"{turn.last - turn.start:.6f}"
        )
        yield at.fault("times", text)


def _order(cell: Cell, where: _Where) -> Iterator[Finding]:
    """Turns of a conversation come one after the other, and no more answers at a time than asked."""
    lasts: dict[tuple[int, int], list[float]] = {}  # a question may be asked more than once
    for turn in cell.turns:
        lasts.setdefault((turn.question, turn.turn), []).append(turn.last)
    ended = {key: deque(sorted(moments)) for key, moments in lasts.items()}
    for turn in sorted(cell.turns, key=lambda turn: turn.start):
        before = ended.get((turn.question, turn.turn - 1))
        last = before.popleft() if before else 0.0
        if turn.start < last - _TICK:
            text = f"asked at {turn.start:.6f} s, before turn {turn.turn - 1} ended at {last:.6f}"
            yield _Where(cell, turn).fault("times", text)
    most = _at_once(cell.turns)
    if most > cell.concurrency:
        text = f"{most} answers were in progress at once; expected {cell.concurrency} at most"
        yield where.fault("concurrency", text)


def _at_once(turns: Sequence[Turn]) -> int:
    # at the same moment ends come before beginnings
    events = [(turn.start + _TICK, 1) for turn in turns] + [(turn.last, -1) for turn in turns]
    most = going = 0
    for _, change in sorted(events):
        going += change
        most = max(most, going)
    return most


def _server_counts(cell: Cell, where: _Where) -> Iterator[Finding]:
    counts = cell.counts
    if counts is None:
        return
    at = list(counts.accepted_at)
    if (
        not 0 <= counts.accepted <= counts.drafted
        or at != sorted(at, reverse=True)
        or (at and sum(at) != counts.accepted)
    ):
        text = (
            f"{counts.accepted} of {counts.drafted} drafted tokens were accepted, by position {at}; expected no "
            "more than all, and positions that do not increase and add up to it"
        )
        yield where.fault("accepted", text)


def _shares(cell: Cell, where: _Where) -> Iterator[Finding]:
    if not cell.shares:
        return
    if unknown := sorted(set(cell.shares) - set(STAGES)):
        text = f"shares of {', '.join(unknown)}; expected those of {', '.join(STAGES)}"
        yield where.fault("shares", text)
    for name, seconds in cell.shares.items():
        if seconds < -_SLACK * cell.seconds:
            yield where.fault("shares", f"{name} took {seconds:.6f} s; expected no less than 0")
    total = sum(cell.shares.values())
    if abs(total - cell.seconds) > _SLACK * cell.seconds:
        text = f"the shares add up to {total:.6f} s of a cell that took {cell.seconds:.6f}"
        yield where.fault("shares", text)
    read = [turn.prefill_seconds for turn in cell.turns if turn.prefill_seconds is not None]
    if "prefill" in cell.shares and len(read) == len(cell.turns):
        share, alone = cell.shares["prefill"], sum(read)
        if abs(share - alone) > _SLACK * max(share, alone) + _TICK:
            text = f"prompts took {alone:.6f} s, the share of prefill is {share:.6f}"
            yield where.fault("shares", text)
    yield from _rounds_in_time(cell, where)


def _rounds_in_time(cell: Cell, where: _Where) -> Iterator[Finding]:
    """One at a time, what drafts and verifies take is a part of what answers take behind their first tokens."""
    spans = [turn.decode_seconds for turn in cell.turns if turn.decode_seconds is not None]
    rounds = cell.shares.get("draft", 0.0) + cell.shares.get("verify", 0.0)
    if cell.concurrency > 1 or not spans or len(spans) < len(cell.turns):
        return
    if rounds > sum(spans) * (1 + _SLACK) + _TICK * len(spans):
        text = f"drafts and verifies took {rounds:.6f} s of {sum(spans):.6f} behind first tokens"
        yield where.fault("shares", text)


def _loops(cells: Sequence[Cell]) -> Iterator[Finding]:
    """Each text once: runs repeat them."""
    seen: set[tuple[str, str, int, int, str]] = set()
    for cell in cells:
        for turn in cell.turns:
            key = (cell.arm, cell.workload, turn.question, turn.turn, turn.text)
            how = None if key in seen else loop(turn.text)
            seen.add(key)
            if how is not None:
                yield _Where(cell, turn).warning("one-token-loop", f"the answer {how}")


def _texts(bench: Bench) -> Iterator[Finding]:
    """Greedy texts do not depend on the arm, but for ties that rounding breaks."""
    for of in compare_texts(bench):
        if of.same < of.of:
            level: Literal["fault", "warning"] = "fault" if of.unlike else "warning"
            yield Finding("other-text", level, of.arm, of.line(), of.workload, of.concurrency)
    for arm, workload, concurrency, count in unsteady_texts(bench.cells):
        text = f"{count} answers differ from one run to the next, though nothing was sampled"
        yield Finding("unsteady-text", "warning", arm, text, workload, concurrency)
