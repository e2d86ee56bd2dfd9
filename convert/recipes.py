"""How the rows of a GGUF tensor are made from a tensor of the checkpoint, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .._native import core
from ..ggml_types import F16, F32, TensorType
from .reader import Reader, SourceTensor


@dataclass(frozen=True, slots=True)
class Piece:
    """Some whole rows as bytes of a type; the memory is used again for the next piece."""

    rows: int
    data: memoryview
    type: TensorType


class Recipe(Protocol):
    """Makes the pieces of a tensor of `rows` x `columns` from `source`, whose values are of `type`."""

    def pieces(
        self, reader: Reader, source: SourceTensor, type: TensorType, rows: int, limit: int
    ) -> Iterator[Piece]:
        """Yield the tensor's rows in order, about `limit` bytes at a time."""
        ...


class AsIs:
    """The rows as they stand."""

    def pieces(
        self, reader: Reader, source: SourceTensor, type: TensorType, rows: int, limit: int
    ) -> Iterator[Piece]:
        """Yield the rows read."""
        for count, data in reader.pieces(source, rows, limit):
            yield Piece(count, data, type)


@dataclass(frozen=True, slots=True)
class Deinterleaved:
    """Rows of heads of `head` whose neighbours rotate together: even ones first, then odd ones.

    llama.cpp rotates the halves of a head. A norm is one row, whose values change places.
    """

    head: int

    def pieces(
        self, reader: Reader, source: SourceTensor, type: TensorType, rows: int, limit: int
    ) -> Iterator[Piece]:
        """Yield whole heads."""
        vector = rows == 1
        for count, data in reader.pieces(source, rows, limit, multiple=1 if vector else self.head):
            unit = type.size if vector else len(data) // count
            pairs = np.frombuffer(data, np.uint8).reshape(-1, self.head // 2, 2, unit)
            moved = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(-1)
            yield Piece(count, moved.data, type)


@dataclass(frozen=True, slots=True)
class WithRow:
    """The rows as they stand, but for row `index`, which gets the f32 `values` rounded to their type."""

    index: int
    values: bytes

    def pieces(
        self, reader: Reader, source: SourceTensor, type: TensorType, rows: int, limit: int
    ) -> Iterator[Piece]:
        """Yield the rows; quantised ones come as f32, as one cannot be put into a block of them."""
        first = 0
        columns = len(self.values) // F32.size
        for count, data in reader.pieces(source, rows, limit):
            piece = Piece(count, data, type)
            if type.block > 1:
                piece = Piece(count, _converted(data, type, F32, count, columns), F32)
            if first <= self.index < first + count:
                row = _converted(memoryview(self.values), F32, piece.type, 1, columns)
                at = (self.index - first) * len(row)
                piece.data[at : at + len(row)] = row
            first += count
            yield piece


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Rows `ids`, which ascend, of a larger matrix: the source begins where that does, and has their size."""

    ids: np.ndarray[Any, np.dtype[np.int64]]

    def pieces(
        self, reader: Reader, source: SourceTensor, type: TensorType, rows: int, limit: int
    ) -> Iterator[Piece]:
        """Yield these rows."""
        for count, data in reader.gather(source, self.ids, source.length // rows, limit):
            yield Piece(count, data, type)


@dataclass(frozen=True, slots=True)
class Ready:
    """Bytes that are there already, as of `type`."""

    data: bytes
    type: TensorType

    def pieces(
        self, reader: Reader, source: SourceTensor, type: TensorType, rows: int, limit: int
    ) -> Iterator[Piece]:
        """Yield all of it at once."""
        del reader, source, type, limit
        yield Piece(rows, memoryview(self.data), self.type)


def _converted(
    data: memoryview, old: TensorType, new: TensorType, rows: int, columns: int
) -> memoryview:
    result = bytearray(rows * new.row_bytes(columns))
    overflows = core().convert_rows(data, old.number, result, new.number, rows, columns, 1)
    if overflows and new == F16:
        text = f"{overflows} values exceed f16's 65504"
        raise ValueError(text)
    return memoryview(result)
