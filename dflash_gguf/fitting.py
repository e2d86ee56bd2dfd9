"""What gives way when a pair does not fit in memory, and what is refused. Asked before anything is loaded."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import memory
from ._native import core
from .errors import ModelError, ResourceError, UsageError
from .expected_speed import expected_speed
from .hardware import devices, gpu_layers, maps
from .plan import CELL, HOST, MemoryLine, MemoryPlan, make_plan, size_text, state_bytes
from .sizes import Sizes

if TYPE_CHECKING:
    from . import _core
    from .options import Options

_log = logging.getLogger(__name__)

_DEFAULT_CTX = 8192
_PAGE = 256  # llama.cpp rounds contexts up to it
_SMALL = 2**16  # positions of all sequences of which a trial is cheap
_LARGE = 2**26  # bytes of cells beyond which a trial is made only if it will do
_SUFFIXES = {"": 20, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True, slots=True)
class Fitted:
    """What the contexts are made for, the plan of it, and what gave way, in one line each.

    `prefix_memory`: bytes for states of earlier texts, as `Options` has it or what is left.
    """

    sizes: Sizes
    plan: MemoryPlan
    prefix_memory: int
    notes: tuple[str, ...] = ()


def parse_size(given: int | str) -> int:
    """Return the bytes of a size: '8G', '1.5 GiB', '500M', or a number of MiB as text or int.

    Units are powers of 1024. Raises UsageError for anything else.
    """
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:iB|B)?", str(given).strip(), re.IGNORECASE)
    if isinstance(given, bool) or parts is None or float(parts[1]) <= 0:
        text = (
            f"memory_limit is {given!r}; expected a size such as '8G' or '500M', or a number of MiB"
        )
        raise UsageError(text)
    return int(min(float(parts[1]) * 2 ** _SUFFIXES[parts[2].upper()], 2.0**62))


def open_trial(target: Path, draft: Path | None, options: Options) -> _core.MemoryTrial:
    """Read what planning needs of the files. Raises ModelError, naming the file, if llama.cpp cannot."""
    layers = gpu_layers(options.gpu_layers), gpu_layers(options.draft_gpu_layers)
    path = target
    try:
        trial: _core.MemoryTrial = core().MemoryTrial(
            str(target), layers[0], list(options.devices), mmap=maps(target, options.mmap)
        )
        if draft is not None:
            path = draft
            trial.open_draft(
                str(draft),
                layers[1],
                list(options.draft_devices),
                mmap=maps(draft, options.mmap),
            )
    except RuntimeError as error:
        text = f"{path}: llama.cpp cannot load it ({error}); is the file complete?"
        raise ModelError(text) from error
    return trial


def default_context(options: Options, n_ctx_train: int) -> int:
    """Positions of a sequence: as asked, or 8192 or what the target was trained for, if less."""
    return options.context or min(_DEFAULT_CTX, n_ctx_train)


def fit(
    trial: _core.MemoryTrial, options: Options, block: int, *, drafts: bool, unified: bool = False
) -> Fitted:
    """Choose what fits: snapshots for the widest block, else what should be fastest of less.

    Args:
        block: rows of the widest verify that is wanted; 1 without a drafter.
        unified: the draft's sequences must share one cache.

    Raises ResourceError, with the numbers and a context that would fit, if nothing does.
    """
    return _Fitting(trial, options, block, drafts=drafts, unified=unified).choose()


class _Fitting:
    def __init__(
        self,
        trial: _core.MemoryTrial,
        options: Options,
        block: int,
        *,
        drafts: bool,
        unified: bool,
    ) -> None:
        self._trial, self._options, self._drafts = trial, options, drafts
        self._wanted, self._unified = block, unified
        self._context = default_context(options, trial.n_ctx_train)
        self._limit = None if options.memory_limit is None else parse_size(options.memory_limit)
        self._free = {device.name: device.memory_free for device in devices()}
        self._free[HOST] = memory.available() or 2**62
        self._mapped = True  # whether pages of files must fit too
        self._plans: dict[Sizes, MemoryPlan] = {}

    def choose(self) -> Fitted:
        found = self._best()
        if found is None and self._limit is None:
            self._mapped = False
            found = self._best()
        if found is None:
            raise ResourceError(self._refusal())
        plan, kept = self._plan(found), self._options.prefix_memory
        left = max(self._left(plan), 0)
        notes = self._notes(found)
        if kept > left:
            notes.append(
                f"of the {size_text(kept)} for states of earlier texts {size_text(left)} fit in memory"
            )
        kept = min(kept, left)
        if kept:
            line = MemoryLine("kept prefixes", HOST, kept, grows=True)
            plan = MemoryPlan((*plan.lines, line))
        return Fitted(found, plan, kept, tuple(notes))

    def _left(self, plan: MemoryPlan) -> int:
        """What a plan leaves of the host's memory."""
        free = self._free[HOST] - plan.at(HOST, mapped=self._mapped and self._limit is None)
        return free if self._limit is None else min(free, self._limit - plan.total)

    def _best(self) -> Sizes | None:
        """Return the fastest sizes that fit."""
        ways = [
            sizes for replay in self._ways() if (sizes := self._widest(replay=replay)) is not None
        ]
        return max(ways, key=lambda way: expected_speed(way.block, replay=way.replay), default=None)

    def _ways(self) -> list[bool]:
        """Whether to replay: what can be done at all."""
        if not self._trial.has_state or self._wanted == 1:
            return [False]
        return [False, True] if self._trial.keeps_snapshots() else [True]

    def _sizes(self, block: int, *, replay: bool, context: int | None = None) -> Sizes:
        states = self._trial.has_state and not replay
        snapshots = block - 1 if states else 0
        return Sizes(context or self._context, block, snapshots, replay, self._unified)

    def _widest(self, *, replay: bool) -> Sizes | None:
        least = min(2, self._wanted)
        for block in range(self._wanted, least - 1, -1):
            sizes = self._sizes(block, replay=replay)
            if self._may_fit(sizes) and self._fits(self._plan(sizes)):
                return sizes
        return None

    def _trial_fits(self, sizes: Sizes) -> bool:
        """Whether a trial can be made: it takes the states and cells it is asked for."""
        states = state_bytes(self._trial) * self._options.sequences
        if not self._below(states * (1 + sizes.snapshots) + self._cells(sizes.context)):
            return False
        return self._cells(sizes.context) < _LARGE or self._below(self._estimate(sizes.context))

    def _estimate(self, context: int) -> int:
        """What a context takes at least, from two small ones: most of it grows in proportion."""
        small = max(2 * _PAGE, _SMALL // self._options.sequences)
        counted = []
        for positions in (small, 4 * small):
            plan = self._plan(self._least(positions))
            counted.append(plan.total - self._dropped(plan))
        slope = (counted[1] - counted[0]) / (3 * small)
        return int(counted[0] + slope * (context - small))

    def _may_fit(self, sizes: Sizes) -> bool:
        """Whether a plan is worth making: by what any of this context takes, if one is known."""
        states = state_bytes(self._trial) * self._options.sequences
        if not self._trial_fits(sizes):
            return False
        known = next(
            (plan for size, plan in self._plans.items() if size.context == sizes.context), None
        )
        if known is None or not states:
            return True
        # the rest depends on the rows of a block, or on whether there are snapshots
        least = known.of("target weights", "draft weights", "target cache", "states")
        return self._below(least - self._dropped(known) + states * sizes.snapshots)

    def _cells(self, context: int) -> int:
        return context * self._options.sequences * CELL

    def _below(self, size: int) -> bool:
        places = sum(self._free.values()) if len(self._free) > 1 else self._free[HOST]
        return size <= min(self._limit or size, places)

    def _dropped(self, plan: MemoryPlan) -> int:
        return 0 if self._mapped else sum(line.size for line in plan.lines if line.mapped)

    def _plan(self, sizes: Sizes) -> MemoryPlan:
        if sizes not in self._plans:
            try:
                self._plans[sizes] = make_plan(
                    self._trial, self._options, sizes, drafts=self._drafts
                )
            except RuntimeError as error:
                text = f"llama.cpp cannot make such contexts: {error}"
                raise UsageError(text) from error
        return self._plans[sizes]

    def _fits(self, plan: MemoryPlan) -> bool:
        if self._limit is not None and plan.total > self._limit:
            return False
        mapped = self._mapped and self._limit is None
        return all(
            plan.at(place, mapped=mapped) <= self._free.get(place, 2**62) for place in plan.places
        )

    def _notes(self, sizes: Sizes) -> list[str]:
        notes = []
        if sizes.replay and not self._trial.keeps_snapshots():
            notes.append(
                "llama.cpp keeps no snapshots of this architecture's state: after a rejected draft the "
                "accepted tokens are decoded again"
            )
        elif sizes.replay:
            full = state_bytes(self._trial) * self._options.sequences * (self._wanted - 1)
            notes.append(
                f"snapshots of the target's state for blocks of {self._wanted} ({size_text(full)}) do not fit "
                "in memory: the state is kept once, and after a rejected draft the accepted tokens are decoded "
                "again"
            )
        if sizes.block < self._wanted:
            notes.append(
                f"blocks of {self._wanted} do not fit in memory: at most {sizes.block} rows are verified at once"
            )
        plan = self._plan(sizes)
        if not self._mapped:
            notes.append(
                f"the weights do not fit in memory beside the rest ({size_text(plan.at(HOST))} planned, "
                f"{size_text(self._free[HOST])} free): they will be read from the disk again and again"
            )
        return notes

    def _refusal(self) -> str:
        many = self._options.sequences > 1
        asked = f"a context of {self._context:,} tokens" + (
            f" for each of {self._options.sequences} sequences" if many else ""
        )
        sizes = self._least(self._context)
        if self._trial_fits(sizes):
            plan = self._plan(sizes)
            takes = f"takes {self._by_place(plan.places, plan.at)} with the models"
        else:
            takes = f"takes about {size_text(self._estimate(self._context))} with the models"
        most = self._most_context()
        remedy = (
            f"at most {most:,} tokens would fit (-c)"
            if most
            else f"no context fits: take a smaller model{' or fewer sequences' if many else ''}"
        )
        return f"{asked} {takes}, {self._bound()}; {remedy}"

    def _bound(self) -> str:
        if self._limit is not None and self._limit <= self._free[HOST]:
            return f"{size_text(self._limit)} are allowed"
        known = next(iter(self._plans.values()), None)
        places = known.places if known else (HOST,)
        return f"{self._by_place(places, lambda place: self._free.get(place, 0))} are free"

    def _by_place(self, places: Sequence[str], size: Callable[[str], int]) -> str:
        return " and ".join(
            size_text(size(place)) + ("" if place == HOST else f" on {place}") for place in places
        )

    def _least(self, context: int) -> Sizes:
        """The sizes of a context that take least."""
        return self._sizes(min(2, self._wanted), replay=self._ways()[-1], context=context)

    def _most_context(self) -> int:
        """Return the longest context that would fit, a multiple of what llama.cpp rounds to; 0: none."""
        if not self._trial_fits(self._least(_PAGE)):
            return 0
        low, high = (
            0,
            self._context // _PAGE + 1,
        )  # pages: `low` fits by the estimate, `high` does not
        while high - low > 1:
            middle = (low + high) // 2
            if self._below(self._estimate(middle * _PAGE)):
                low = middle
            else:
                high = middle
        if self._cells(low * _PAGE) >= _LARGE:
            return low * 19 // 20 * _PAGE  # a trial would take long
        while low and not self._fits(self._plan(self._least(low * _PAGE))):
            low = min(low - 1, low * 31 // 32)
        return low * _PAGE


def say(fitted: Fitted) -> None:
    """Log the plan: its line for everybody, all its lines for who asks for more."""
    _log.info("%s", fitted.plan.line())
    for text in fitted.plan.table():
        _log.debug("%s", text)
