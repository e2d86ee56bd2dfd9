"""Tensors of a checkpoint, and reading rows of them.

Bytes are read plainly, not mapped: a mapped checkpoint would count as ours in the process's peak memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..ggml_types import BF16, F16, F32, TensorType
from .faults import refuse_file

# safetensors' own dtype names of what we convert; everything else is refused by name
DTYPES: dict[str, TensorType] = {"BF16": BF16, "F16": F16, "F32": F32}


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """A tensor of the checkpoint; `shape` as in the checkpoint (rows first), `offset` absolute in `path`.

    With `data`, its bytes are there, and `offset` counts in them.
    """

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int
    data: memoryview | None = None


class Reader:
    """Reads tensors of a checkpoint in pieces of whole rows, each file opened once."""

    def __init__(self) -> None:
        self._open: dict[Path, int] = {}

    def pieces(
        self, tensor: SourceTensor, rows: int, limit: int, *, multiple: int = 1
    ) -> Iterator[tuple[int, memoryview]]:
        """Yield (rows, bytes) of `tensor`, which has `rows` rows: at most `limit` bytes, but at least `multiple`
        rows and, until the last, a multiple of that.

        The memory of a piece is used again for the next. Raises ConvertError if the file became shorter.
        """
        row = tensor.length // rows
        step = max(multiple, limit // row // multiple * multiple)
        buffer = bytearray(min(step, rows) * row)
        for first in range(0, rows, step):
            count = min(step, rows - first)
            piece = memoryview(buffer)[: count * row]
            self._fill(tensor, tensor.offset + first * row, piece)
            yield count, piece

    def gather(
        self, tensor: SourceTensor, rows: np.ndarray[Any, np.dtype[np.int64]], row: int, limit: int
    ) -> Iterator[tuple[int, memoryview]]:
        """Yield (rows, bytes) of single rows of `row` bytes, counted from `tensor`'s offset, which ascend: at
        most `limit` bytes, but at least one row.

        Memory and errors as of `pieces`.
        """
        step = max(1, limit // row)
        buffer = bytearray(min(step, len(rows)) * row)
        for start in range(0, len(rows), step):
            chosen = rows[start : start + step]
            piece = memoryview(buffer)[: len(chosen) * row]
            done = 0
            for run in np.split(chosen, np.flatnonzero(np.diff(chosen) != 1) + 1):
                end = done + len(run) * row
                self._fill(tensor, tensor.offset + int(run[0]) * row, piece[done:end])
                done = end
            yield len(chosen), piece

    def _fill(self, tensor: SourceTensor, offset: int, piece: memoryview) -> None:
        if tensor.data is not None:
            piece[:] = tensor.data[offset : offset + len(piece)]
            return
        handle = self._handle(tensor.path)
        done = 0
        while done < len(piece):
            got = os.preadv(handle, [piece[done:]], offset + done)
            if got == 0:
                refuse_file(
                    tensor.path, f"it ends within {tensor.name}", "it changed while it was read"
                )
            done += got

    def _handle(self, path: Path) -> int:
        if path not in self._open:
            self._open[path] = os.open(path, os.O_RDONLY)
        return self._open[path]

    def close(self) -> None:
        """Close the files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_whole(tensor: SourceTensor) -> bytes:
    """Read a small tensor's bytes."""
    with Reader() as reader:
        ((_, data),) = reader.pieces(tensor, 1, tensor.length)
        return bytes(data)
