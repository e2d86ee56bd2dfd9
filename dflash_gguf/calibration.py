"""What drafts and verifies cost on this machine: measured at load, kept for the next one.

The controller (cpp_ext/controller.cpp) chooses widths by these costs and by how the drafts fare, which is kept
with them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import resource
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__
from ._native import LLAMA_CPP_PYTHON, core
from .draft_file import cache_folder
from .errors import ResourceError

if TYPE_CHECKING:
    from . import _core

_LOG = logging.getLogger(__name__)
_SECONDS = 1.0  # that measuring may take, or
_LOAD_SHARE = 0.05  # of the load, if that is more
_ROUNDS = 4  # the first of which makes a graph
_PASSES = 3
_FORMAT = 3
_CHUNK_SECONDS = 0.5
_PREEMPTIONS = (
    40  # a second; threads that wait for a device get few cores too, but are not taken off any
)
_SHARE = 0.8  # of the cores wanted, that a measurement must get
_WAITED = 0.25  # of the time, that its threads may wait for a core, all together
_MOST_OF_SLOTS = (
    0.6  # of a verify may go to snapshots; more was measured only where others disturbed
)


@dataclass(slots=True)
class Learnt:
    """Costs in nanoseconds, as `_core.Session.steer` takes them, and outcomes of drafts by position.

    Attributes:
        points: (sequences, width, draft, verify, inject, injected rows).
        depth: snapshots of the target while the points were taken.
        slots: (sequences, width, cost of one more snapshot in every verify of that width).
        rebuild: of a verify of another shape than the last one.
        shift: of remaking the target's context.
        outcomes: (tested, accepted) for every position of a block.
    """

    points: list[tuple[int, int, float, float, float, int]]
    depth: int
    slots: list[tuple[int, int, float]]
    rebuild: float
    shift: float
    outcomes: list[tuple[float, float]]


def learn(
    target: _core.Target, drafter: _core.Drafter, *, widest: int, context: int, load_seconds: float
) -> Learnt:
    """Measure the costs of rounds on idle contexts.

    Takes at most a second or a twentieth of the load; what is left out by then is interpolated.

    Args:
        target: with room for `widest` rows of every sequence; left without snapshots.
        context: positions of a sequence.
        load_seconds: how long the load took.
    """
    until = time.monotonic() + max(_SECONDS, _LOAD_SHARE * load_seconds)
    widest = min(widest, context)
    measured = _Measured(target, drafter, context, until)
    depth = target.depth
    many = target.sequences
    for sequences, width in _needed(widest):
        measured.sample(sequences, width)
    for _ in range(_PASSES):
        for sequences, width in _plan(many, widest):
            measured.sample_in_time(sequences, width)
    slots, shift = measured.snapshots(depth, {1, many})
    return Learnt(measured.points(), depth, slots, measured.rebuild(), shift, [])


@dataclass(frozen=True, slots=True)
class Effort:
    """What this process got of the machine so far.

    Attributes:
        wall: seconds by the clock.
        cpu: seconds of computing.
        preempted: how often a thread was taken off a core.
        waited: seconds for each living thread that it was ready to compute and had no core, by thread id; None
            where the system does not tell.
    """

    wall: float
    cpu: float
    preempted: int
    waited: dict[str, float] | None = None

    @classmethod
    def now(cls) -> Effort:
        """Return the present counts."""
        return cls(
            time.perf_counter(),
            time.process_time(),
            resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
            _waited(),
        )

    def disturbed_until(self, later: Effort, threads: int) -> bool:
        """Whether other programs took much of `threads` cores meanwhile, so that no time it took means much."""
        wall = later.wall - self.wall
        if self.waited is not None and later.waited is not None:
            before = self.waited
            waited = sum(time - before.get(thread, 0.0) for thread, time in later.waited.items())
            return waited > _WAITED * wall
        taken_off = (later.preempted - self.preempted) / max(wall, 1e-3)
        return taken_off > _PREEMPTIONS and later.cpu - self.cpu < _SHARE * wall * threads


def _waited() -> dict[str, float] | None:
    """Read Linux's schedstat (seconds computed, seconds waited, turns; the first two in nanoseconds) of all threads."""
    found = {}
    try:
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(
                FileNotFoundError, ProcessLookupError
            ):  # it has ended meanwhile
                _, waited, _ = (thread / "schedstat").read_text().split()
                found[thread.name] = int(waited) * 1e-9
    except (OSError, ValueError):
        return None
    return found or None


def prefill_rows(target: _core.Target, most: int) -> int:
    """Return how many rows of a prompt to read at a time, a power of two up to `most`.

    They are to take half a second at most, since nothing else happens meanwhile: no other answer grows and none
    is cancelled. A row among many costs a CPU a third of a lone one or less (measured: bf16, q8_0, q5_k_m).
    """
    costs = core().bare_rounds(target, None, sequences=1, width=1, rounds=3)
    alone = min(cost[1] for cost in costs) * 1e-9
    rows = 1 << max(4, int(math.log2(max(1.0, 3 * _CHUNK_SECONDS / alone))))
    return min(rows, most)


def _needed(widest: int) -> list[tuple[int, int]]:
    return [(1, 1), (1, widest), (1, min(8, widest))]


def _plan(many: int, widest: int) -> Iterator[tuple[int, int]]:
    """Sequences and widths, the most telling ones first."""
    coarse = [width for width in (1, 8, 4, 2) if width < widest] + [widest]
    fine = [width for width in (3, 6, 12, 5, 10, 14, 24) if width < widest and width not in coarse]
    numbers = [1] if many == 1 else [1, many]
    for widths in (coarse, fine):
        for sequences in numbers:
            for width in widths:
                yield sequences, width
    if many > 4:
        for width in coarse:
            yield max(2, many // 4), width


class _Measured:
    def __init__(
        self, target: _core.Target, drafter: _core.Drafter, context: int, until: float
    ) -> None:
        self._target, self._drafter, self._context, self._until = target, drafter, context, until
        self._keeps_snapshots = target.depth > 0
        self._samples: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        self._built: list[float] = []  # what the first round of a shape took more than the next

    def sample_in_time(self, sequences: int, width: int) -> None:
        """Sample unless that would take too long."""
        if time.monotonic() + self._expected(sequences * width) < self._until:
            self.sample(sequences, width)

    def sample(self, sequences: int, width: int) -> None:
        """Measure some rounds."""
        costs = core().bare_rounds(
            self._target,
            self._drafter,
            sequences=sequences,
            width=width,
            kept=self._kept(width),
            rounds=max(1, min(_ROUNDS, self._context // width)),
            chooses=True,
        )
        rest = costs[1:] or costs
        self._samples.setdefault((sequences, width), []).extend(cost[:3] for cost in rest)
        if sequences == 1:
            self._built.append(costs[0][1] - min(cost[1] for cost in rest))

    def points(self) -> list[tuple[int, int, float, float, float, int]]:
        """Return the fastest rounds of each shape: what else the machine does only slows them down."""
        return [
            (*shape, *self._fastest(shape), shape[0] * self._kept(shape[1]))
            for shape in sorted(self._samples)
        ]

    def rebuild(self) -> float:
        """Return the nanoseconds of making a graph of a new shape; it takes no longer than a verify of one row."""
        return min(max(0.0, statistics.median(self._built)), self._fastest((1, 1))[1])

    def _fastest(self, shape: tuple[int, int]) -> tuple[float, float, float]:
        draft, verify, inject = zip(*self._samples[shape], strict=True)
        return min(draft), min(verify), min(inject)

    def snapshots(
        self, depth: int, numbers: set[int]
    ) -> tuple[list[tuple[int, int, float]], float]:
        """Return what a snapshot costs by sequences and width, and what it takes to change their number.

        Each is measured right before and after a change, since the machine's speed may not be what it was. More
        rows pay more for it: on the tiny pair 8 rows three times what one does.
        """
        if depth == 0:
            return [], 0.0
        known = [sequences for sequences in sorted(numbers) if (sequences, 1) in self._samples]
        half = depth // 2
        wide = [(sequences, half + 1) for sequences in known if self._in_time(sequences, half + 1)]
        slots: list[tuple[int, int, float]] = []
        shifts = []
        if half > 0 and wide:
            shifts.append(self._change(depth, half, wide, slots))
            depth = half
        shifts.append(self._change(depth, 0, [(sequences, 1) for sequences in known], slots))
        return slots, min(shifts)

    def _change(
        self,
        depth: int,
        fewer: int,
        shapes: list[tuple[int, int]],
        slots: list[tuple[int, int, float]],
    ) -> float:
        """Take snapshots away, add what that saves in verifies of `shapes`, return the nanoseconds it takes."""
        before = [self._verify(shape) for shape in shapes]
        began = time.perf_counter()
        self._target.reshape(fewer)
        taken = (time.perf_counter() - began) * 1e9
        for shape, cost in zip(shapes, before, strict=True):
            saved = max(0.0, cost - self._verify(shape)) / (depth - fewer)
            most = _MOST_OF_SLOTS * cost / depth
            slots.append((*shape, min(saved, most)))
        return taken

    def _verify(self, shape: tuple[int, int]) -> float:
        """Nanoseconds of the fastest of some verifies now."""
        sequences, width = shape
        rounds = 2 * _ROUNDS if self._in_time(sequences, width) else 2  # the first makes a graph
        costs = core().bare_rounds(
            self._target,
            None,
            sequences=sequences,
            width=width,
            kept=self._kept(width),
            rounds=max(1, min(rounds, self._context // width)),
            chooses=True,
        )
        return min(float(cost[1]) for cost in costs[1:] or costs)

    def _kept(self, width: int) -> int:
        """Rows of a measured verify that stay; all where the target has no snapshots to go back to."""
        return max(1, width // 2) if self._keeps_snapshots else width

    def _in_time(self, sequences: int, width: int) -> bool:
        """Whether a shape fits and measuring it before and after a change would still be in time."""
        fits = width <= self._context
        return fits and time.monotonic() + 4 * self._expected(sequences * width) < self._until

    def _expected(self, rows: int) -> float:
        """Seconds that measuring `rows` rows may take, from the nearest number of rows measured."""
        nearest = min(self._samples, key=lambda shape: abs(shape[0] * shape[1] - rows))
        each = sum(self._fastest(nearest)) * max(1.0, rows / (nearest[0] * nearest[1]))
        return each * _ROUNDS * 1e-9


class Notebook:
    """Where a pair's costs and outcomes are kept between runs: a file in the cache folder.

    Args:
        facts: all that the costs depend on.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        known = {"format": _FORMAT, "version": __version__, "llama_cpp": LLAMA_CPP_PYTHON, **facts}
        digest = hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()
        self._path: Path | None = None
        try:
            self._path = cache_folder() / "costs" / f"{digest[:32]}.json"
        except ResourceError as error:
            _LOG.debug("costs are not kept: %s", error)

    def read(self) -> Learnt | None:
        """Return what was kept; None if there is nothing, or nothing of use."""
        if self._path is None:
            return None
        try:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            return Learnt(
                points=[tuple(point) for point in kept["points"]],
                depth=int(kept["depth"]),
                slots=[tuple(slot) for slot in kept["slots"]],
                rebuild=float(kept["rebuild"]),
                shift=float(kept["shift"]),
                outcomes=[tuple(outcome) for outcome in kept["outcomes"]],
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None  # nothing is there, or what nobody can have written

    def note(self, outcomes: list[tuple[float, float]]) -> None:
        """Keep how drafts fared lately."""
        learnt = self.read()
        if learnt is not None and outcomes:
            learnt.outcomes = outcomes
            self.write(learnt)

    def write(self, learnt: Learnt) -> None:
        """Keep it, as far as the folder can be written."""
        if self._path is None:
            return
        text = json.dumps({name: getattr(learnt, name) for name in Learnt.__slots__})
        scratch = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(text, encoding="utf-8")
            scratch.replace(self._path)
        except OSError as error:
            _LOG.debug("costs are not kept: %s", error)


def identity(path: Path) -> list[Any]:
    """Return what tells a file from another one, or from itself after a change, without reading it."""
    facts = path.stat()
    return [path.name, facts.st_size, facts.st_mtime_ns]
