"""What a verify and a draft cost by width, and which width is best at which acceptance: the picture behind "auto".

Measuring is apart from reckoning: `measure_costs` takes times, all else are functions of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from .._native import core
from ..errors import ResourceError, UsageError
from ..survival_curves import OF_DRAFTERS

if TYPE_CHECKING:
    from ..engine import Engine
    from ..parts import Parts

ACCEPTANCES = tuple(round(0.5 + 0.05 * step, 2) for step in range(10))
_ROUNDS = 4  # of a sample, the first of which makes a graph
_NS = 1e-9
_Times: TypeAlias = tuple[float, float, float]  # nanoseconds of draft, verify, inject


@dataclass(frozen=True, slots=True)
class WidthCost:
    """What a round of blocks of one width takes, in seconds, all sequences together.

    `inject` is of `injected` rows, half of the verified ones. Width 1 is plain decoding: a verify alone.
    """

    width: int
    verify: float
    draft: float = 0.0
    inject: float = 0.0
    injected: int = 1

    def round(self, rows: float) -> float:
        """Seconds of a round in which `rows` rows of all sequences become text: as many are injected."""
        return self.verify + self.draft + self.inject * rows / self.injected


@dataclass(frozen=True, slots=True)
class Best:
    """The width that writes fastest for drafts of some acceptance.

    Attributes:
        accept_length: tokens expected of a round of that width.
        speedup: over width 1.
    """

    of: str
    width: int
    accept_length: float
    speedup: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """Costs by width, for so many sequences with a context of so many positions each."""

    costs: tuple[WidthCost, ...]
    sequences: int
    context: int


def measure_costs(
    engine: Engine,
    *,
    widths: Sequence[int] | None = None,
    sequences: int = 1,
    context: int = 0,
    passes: int = 5,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Measure rounds of bare llama.cpp calls at every width, taking turns; return the medians.

    Args:
        engine: idle, with a drafter, loaded for a fixed block: an "auto" engine's snapshots are its own. The
            target of a recurrent state is remade with as many as each width needs.
        widths: rows of a block; None: all up to the engine's widest. 1 is always measured.
        sequences: blocks of a decode, at most those that the engine was loaded for.
        context: positions that are filled before.
        passes: samples of each width; the first of them is dropped if there are more.
        progress: told how many samples of how many are taken.

    The target gives out features at every width, 1 too. Raises UsageError for an engine that answers, has no
    drafter or chooses widths itself, and for widths, sequences or a context that it has no room for;
    ResourceError if there is no memory for the snapshots, or none can be had.
    """
    parts = engine._open()
    if engine.busy or parts.drafter is None or parts.notebook is not None:
        text = (
            "costs are measured on an idle engine that was loaded with a drafter and a fixed block"
        )
        raise UsageError(text)
    widest = parts.session.max_block
    chosen = sorted({1, *(widths if widths is not None else range(1, widest + 1))})
    rounds = min(_ROUNDS, (engine.n_ctx - context) // chosen[-1])
    if (
        not 1 <= chosen[0] <= chosen[-1] <= widest
        or not 1 <= sequences <= parts.sequences
        or min(passes, rounds, context + 1) < 1
    ):
        text = (
            f"widths {chosen[0]} to {chosen[-1]}, {sequences} sequences, {context} positions, {passes} passes; "
            f"expected 1 to {widest} rows, 1 to {parts.sequences} sequences, room for a round in {engine.n_ctx} "
            "positions, and 1 pass or more"
        )
        raise UsageError(text)
    engine.forget_prefixes()
    turns = [
        chosen[(place + number) % len(chosen)]
        for number in range(passes)
        for place in range(len(chosen))
    ]
    samples: dict[int, list[_Times]] = {width: [] for width in chosen}
    for number, width in enumerate(turns, start=1):
        samples[width].append(_sample(parts, width, sequences, context, rounds))
        if progress is not None:
            progress(number, len(turns))
    costs = tuple(_cost(width, samples[width], sequences) for width in chosen)
    return Sweep(costs, sequences, context)


def _sample(parts: Parts, width: int, sequences: int, context: int, rounds: int) -> _Times:
    """Return the medians of some rounds, the first left out. A recurrent target gets the snapshots they need."""
    target = parts.target
    depth = target.depth
    try:
        if depth > 0:
            target.reshape(width - 1)
        costs = core().bare_rounds(
            target,
            parts.drafter if width > 1 else None,
            sequences=sequences,
            width=width,
            kept=_kept(width),
            rounds=rounds,
            context=context,
            chooses=True,
        )
        target.reshape(depth)
    except (ValueError, RuntimeError, MemoryError) as error:
        text = f"the cost of {width} rows cannot be measured: {error}"
        raise ResourceError(text) from error
    draft, verify, inject, _ = zip(*(costs[1:] or costs), strict=True)
    return statistics.median(draft), statistics.median(verify), statistics.median(inject)


def _kept(width: int) -> int:
    return max(1, width // 2)


def _cost(width: int, samples: Sequence[_Times], sequences: int) -> WidthCost:
    counted = samples[1:] or samples
    draft, verify, inject = (statistics.median(each) * _NS for each in zip(*counted, strict=True))
    if width == 1:
        return WidthCost(1, verify)
    return WidthCost(width, verify, draft, inject, sequences * _kept(width))


def geometric(acceptance: float, width: int) -> float:
    """Tokens expected of a round of `width` rows if each draft is accepted with this chance after the one before.

    1 + a + a^2 + ... + a^(width - 1): Leviathan et al. 2023, equation 1.
    """
    return sum(acceptance**position for position in range(width))


def surviving(curve: Sequence[float], width: int) -> float:
    """Tokens expected of a round of `width` rows if drafted positions survive as the curve says."""
    return 1 + sum(curve[: width - 1])


def break_even(sweep: Sweep, cost: WidthCost) -> float:
    """Tokens of a round, for each sequence, above which this width is faster than plain decoding.

    The accept length L at which L / round(L) = 1 / verify(1), where a round injects the rows it keeps. Infinite
    if injecting a row takes as long as a plain token.
    """
    alone = _plain(sweep).verify
    each = alone - cost.inject * sweep.sequences / cost.injected
    return (cost.verify + cost.draft) / each if each > 0 else float("inf")


def best_width(sweep: Sweep, of: str, tokens: Callable[[int], float]) -> Best:
    """Return the width that writes most tokens per second; of equal ones the narrowest.

    Args:
        tokens: expected of a round, by width.
    """
    alone = _plain(sweep).verify
    best = Best(of, 1, 1.0, 1.0)
    for cost in sweep.costs:
        length = tokens(cost.width)
        if cost.width == 1:
            continue
        speedup = length * alone / cost.round(length * sweep.sequences)
        if speedup > best.speedup:
            best = Best(of, cost.width, length, speedup)
    return best


def best_widths(
    sweep: Sweep,
    *,
    acceptances: Sequence[float] = ACCEPTANCES,
    curves: Mapping[str, Sequence[float]] = OF_DRAFTERS,
) -> list[Best]:
    """Return the best width by acceptance rate and by survival curve, in the order given."""
    found = [best_width(sweep, f"{rate:.2f}", partial(geometric, rate)) for rate in acceptances]
    found += [best_width(sweep, name, partial(surviving, curve)) for name, curve in curves.items()]
    return found


def cost_rows(sweep: Sweep) -> list[tuple[str, ...]]:
    """Return a table: a head, then width, milliseconds of verify, draft and inject, and break-even accept length."""
    rows: list[tuple[str, ...]] = [("width", "verify ms", "draft ms", "inject ms", "break-even")]
    for cost in sweep.costs:
        times = (f"{1e3 * seconds:.2f}" for seconds in (cost.verify, cost.draft, cost.inject))
        even = "1.00" if cost.width == 1 else f"{break_even(sweep, cost):.2f}"
        rows.append((str(cost.width), *times, even))
    return rows


def best_rows(found: Sequence[Best]) -> list[tuple[str, ...]]:
    """Return a table: a head, then acceptance, best width, accept length and speed-up over plain decoding."""
    rows: list[tuple[str, ...]] = [("acceptance", "best width", "accept length", "speed-up")]
    for best in found:
        rows.append((best.of, str(best.width), f"{best.accept_length:.2f}", f"{best.speedup:.2f}x"))
    return rows


def _plain(sweep: Sweep) -> WidthCost:
    for cost in sweep.costs:
        if cost.width == 1:
            return cost
    text = "the costs lack width 1, plain decoding; measure it too"
    raise UsageError(text)
