"""What a pair will take in memory, before it is loaded, in llama.cpp's own numbers.

*Taken* is the memory that is resident once every sequence has filled its context, with blocks as wide as they
get, above what the process held before the load. Weights that are mapped from a file count whole, though the
system may drop their pages and read them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .sizes import Sizes, anchor_params, draft_params, target_params

if TYPE_CHECKING:
    from . import _core
    from .options import Options

HOST = "host"
CELL = 48  # llama.cpp's notes on a position: its place, its shift and a bit per sequence
_FLOAT = 4
_RING, _RINGS = 32 * 2**20, 256 * 2**20  # of one sequence, of all
_RING_ROWS = 64, 256  # at least, at most
_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
# copies of an injected row: the batch, twice as it grows, and llama.cpp's own
_ROW_COPIES = 3


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """Bytes of one kind in one place.

    Attributes:
        name: what for.
        place: "host" or a device's name.
        size: bytes.
        mapped: pages of a file, which the system may drop.
        grows: taken as the contexts fill; the rest from the load or the first rounds on.
    """

    name: str
    place: str
    size: int
    mapped: bool = False
    grows: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """All lines; sizes in bytes."""

    lines: tuple[MemoryLine, ...]

    @property
    def total(self) -> int:
        """Everything, everywhere."""
        return sum(line.size for line in self.lines)

    @property
    def places(self) -> tuple[str, ...]:
        """The host and the devices that hold something."""
        return tuple(dict.fromkeys(line.place for line in self.lines))

    def of(self, *names: str) -> int:
        """Sum of the lines with these names."""
        return sum(line.size for line in self.lines if line.name in names)

    def at(self, place: str, *, mapped: bool = True) -> int:
        """Sum of a place, with or without pages of files."""
        return sum(
            line.size for line in self.lines if line.place == place and (mapped or not line.mapped)
        )

    def line(self) -> str:
        """Return the plan in one line."""
        groups = {
            "weights": ("target weights", "draft weights"),
            "target cache": ("target cache",),
            "states": ("states", "snapshots", "kept states"),
            "draft cache": ("draft cache",),
            "buffers": ("target buffers", "draft buffers"),
            "kept prefixes": ("kept prefixes",),
        }
        sums = {name: self.of(*lines) for name, lines in groups.items()}
        sums["other"] = self.total - sum(sums.values())
        parts = ", ".join(f"{name} {size_text(size)}" for name, size in sums.items() if size)
        return f"memory planned: {size_text(self.total)} ({parts})"

    def table(self) -> list[str]:
        """Return one text for every line, the largest first, and the sums of places if there are several."""
        lines = sorted(self.lines, key=lambda line: -line.size)
        texts = [
            f"  {size_text(line.size):>10}  {line.name}"
            + ("" if line.place == HOST else f", on {line.place}")
            + (", mapped from the file" if line.mapped else "")
            for line in lines
            if line.size
        ]
        if len(self.places) > 1:
            texts += [f"  {size_text(self.at(place)):>10}  on {place}" for place in self.places]
        return texts


def size_text(size: float) -> str:
    """Return bytes in words, such as '1.5 GiB'."""
    for factor, unit in _UNITS:
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{int(size)} bytes"


def make_plan(
    trial: _core.MemoryTrial, options: Options, sizes: Sizes, *, drafts: bool
) -> MemoryPlan:
    """Return what contexts of these sizes take with the trial's models.

    Raises RuntimeError with llama.cpp's words for contexts it refuses, UsageError as the sizes' parameters do.
    """
    params = target_params(options, sizes)
    use = trial.target(params)
    lines = [
        MemoryLine("headers and vocabularies", HOST, max(trial.headers, 0)),
        *_buffers("target", use, _times(trial.state, params.n_seq * (1 + sizes.snapshots))),
        *_states(trial.state, params.n_seq, sizes),
        MemoryLine("target outputs", HOST, _FLOAT * params.n_outputs * trial.n_vocab),
        *_books("target", use, params.n_ctx * params.n_seq),
    ]
    if drafts:
        draft = draft_params(options, sizes)
        drafted = trial.draft(draft)
        width = trial.n_taps * trial.n_embd
        if sizes.snapshots:
            lines += _anchor(trial)
        rows = params.n_batch + _ROW_COPIES * draft.n_batch
        lines += [
            *_buffers("draft", drafted, {}, _written(trial, draft, width, sizes)),
            MemoryLine("layer inputs", HOST, _FLOAT * width * rows),
            MemoryLine(
                "waiting features",
                HOST,
                # with a fixed block every round drafts, and none wait
                _waiting(params, draft, width) if isinstance(options.block, str) else 0,
                grows=True,
            ),
            MemoryLine("draft outputs", HOST, _FLOAT * params.n_seq * sizes.block * trial.n_vocab),
            *_books("draft", drafted, draft.n_ctx * draft.n_seq),
        ]
    return MemoryPlan(tuple(line for line in lines if line.size))


def _anchor(trial: _core.MemoryTrial) -> list[MemoryLine]:
    """The small context from which the draft borrows the target's head.

    It never decodes: its buffers on the host are never written to, and so never taken.
    """
    use = trial.target(anchor_params())
    lines = [
        MemoryLine(
            "anchor", buffer.place, buffer.caches + (buffer.compute if buffer.place != HOST else 0)
        )
        for buffer in use.buffers
    ]
    return [*lines, MemoryLine("anchor", HOST, max(use.books, 0))]


def _waiting(params: _core.ContextParams, draft: _core.ContextParams, width: int) -> int:
    """Features that wait on the host while nothing is drafted, as cpp_ext/drafting.cpp bounds them."""
    row = _FLOAT * max(width, 1)
    fewest, most = _RING_ROWS
    rows = min(max(fewest, min(most, min(_RING, _RINGS // params.n_seq) // row)), params.n_ctx)
    return params.n_seq * row * (min(rows, draft.window) if draft.window else rows)


def state_bytes(trial: _core.MemoryTrial) -> int:
    """Recurrent state of one sequence, everywhere."""
    return sum(use.caches for use in trial.state)


def _times(state: Iterable[_core.BufferUse], count: int) -> dict[str, int]:
    return {use.place: use.caches * count for use in state}


def _written(trial: _core.MemoryTrial, draft: _core.ContextParams, width: int, sizes: Sizes) -> int:
    """Bytes of the draft's buffers on the host that are ever written to.

    They have room for logits of every row of a decode, but an injection has none, and a block fewer rows.
    """
    rows, inject = draft.n_seq * sizes.block, draft.n_batch
    draft.n_batch = draft.n_ubatch = draft.n_outputs = rows
    blocks = sum(use.compute for use in trial.draft(draft).buffers if use.place == HOST)
    draft.n_batch = draft.n_ubatch = draft.n_outputs = inject
    return blocks + _FLOAT * width * inject


def _buffers(
    name: str, use: _core.ContextUse, states: dict[str, int], most: int | None = None
) -> list[MemoryLine]:
    lines = []
    for buffer in use.buffers:
        place = buffer.place
        own = buffer.weights - buffer.mapped
        compute = buffer.compute
        if place == HOST and most is not None:
            compute = min(compute, most)
        lines += [
            MemoryLine(f"{name} weights", place, buffer.mapped, mapped=True),
            MemoryLine(f"{name} weights", place, own),
            MemoryLine(f"{name} cache", place, buffer.caches - states.get(place, 0)),
            MemoryLine(f"{name} buffers", place, compute),
        ]
    return lines


def _states(state: Sequence[_core.BufferUse], sequences: int, sizes: Sizes) -> list[MemoryLine]:
    lines = [MemoryLine("states", use.place, use.caches * sequences) for use in state]
    lines += [
        MemoryLine("snapshots", use.place, use.caches * sequences * sizes.snapshots)
        for use in state
    ]
    if sizes.replay:
        kept = sum(use.caches for use in state) * sequences
        lines.append(MemoryLine("kept states", HOST, kept))
    return lines


def _books(name: str, use: _core.ContextUse, positions: int) -> list[MemoryLine]:
    # where the system does not tell what llama.cpp's books take, at least its cells are known
    books = use.books if use.books >= 0 else positions * CELL
    return [
        MemoryLine(f"{name} books", HOST, books),
        MemoryLine(f"{name} graphs", HOST, use.graphs),
        MemoryLine(f"{name} cells in use", HOST, use.cells, grows=True),
    ]
