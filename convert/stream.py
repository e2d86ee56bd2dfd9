"""One pass over the checkpoint, a piece of rows at a time, for all outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TypeAlias

from .._native import core
from ..ggml_types import F16, I64, TensorType
from .faults import refuse
from .importance import Importance, Weights
from .reader import Reader
from .recipes import Piece
from .tensors import DraftTensor
from .writer import GgufWriter

# bytes done, bytes in all, name of the tensor
Progress: TypeAlias = Callable[[int, int, str], None]

_PIECE = 4 << 20  # bytes of source in memory at a time


def stream(
    tensors: Sequence[DraftTensor],
    types: Sequence[Sequence[TensorType]],
    writers: Sequence[GgufWriter],
    importance: Importance | None,
    threads: int,
    progress: Progress | None,
) -> None:
    """Read each tensor once and write it to every output; `types` has each output's types in order.

    Raises ConvertError for values that a type cannot hold, and what the writers raise.
    """
    total = sum(tensor.source.length for tensor in tensors)
    before = 0
    scratch = _Scratch()
    with Reader() as reader:
        for index, tensor in enumerate(tensors):
            done = 0
            weights = None if importance is None else importance.of(tensor)
            for piece in _pieces(reader, tensor):
                for kinds, writer in zip(types, writers, strict=True):
                    writer.write(
                        _convert_piece(tensor, piece, kinds[index], weights, scratch, threads)
                    )
                done += piece.rows
                if progress is not None:
                    share = tensor.source.length * done // tensor.rows
                    progress(before + share, total, tensor.name)
            before += tensor.source.length


class _Scratch:
    """A buffer used again for every piece: fresh ones of this size would cost page faults."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def take(self, length: int) -> memoryview:
        """Return `length` bytes, which hold anything and are valid until the next call."""
        if len(self._buffer) < length:
            self._buffer = bytearray(length)
        return memoryview(self._buffer)[:length]


def _pieces(reader: Reader, tensor: DraftTensor) -> Iterator[Piece]:
    try:
        yield from tensor.recipe.pieces(reader, tensor.source, tensor.type, tensor.rows, _PIECE)
    except ValueError as error:
        _fail(tensor, f"{error}; expected finite weights: get the files again")


def _convert_piece(
    tensor: DraftTensor,
    piece: Piece,
    kind: TensorType,
    weights: Weights | None,
    scratch: _Scratch,
    threads: int,
) -> memoryview:
    if kind == I64:
        return piece.data
    result = scratch.take(piece.rows * kind.row_bytes(tensor.columns))
    try:
        overflows = core().convert_rows(
            piece.data,
            piece.type.number,
            result,
            kind.number,
            piece.rows,
            tensor.columns,
            threads,
            weights,
        )
    except ValueError as error:
        _fail(tensor, f"{error}; expected finite weights: get the checkpoint again")
    if overflows and kind == F16:
        _fail(
            tensor,
            f"{overflows} values or more exceed f16's 65504; expected smaller: use --outtype bf16",
        )
    return result


def _fail(tensor: DraftTensor, fault: str) -> NoReturn:
    refuse(f"{tensor.source.path}: {tensor.source.name}: {fault}")
