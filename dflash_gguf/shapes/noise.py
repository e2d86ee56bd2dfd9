"""Random weights, cheaply: slices of one random stream, each at another place and of another size.

Slices begin at any value, not at rows only, so that rows made of the same part of the stream point elsewhere. Which
ones depends on the seed and the tensor's name alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..convert.reader import Reader, SourceTensor
from ..convert.recipes import Piece
from ..convert.tensors import DraftTensor
from ..ggml_types import F32, TensorType

Values: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]

_STREAM = 1 << 23  # values
_WIDEST = 1 << 22  # of a piece at most, so that there are many places for it
_SPREAD = 0.1  # how much the pieces differ in size


class Noise:
    """Standard normal values that depend on a seed and on which file they are for."""

    def __init__(self, seed: int, file: int = 0) -> None:
        self._key = [seed, file]
        random = np.random.default_rng(self._key)
        self._stream: Values = random.standard_normal(_STREAM, np.float32)

    def generator(self, name: str) -> np.random.Generator:
        """Return a generator of a tensor's own."""
        return np.random.default_rng([*self._key, zlib.crc32(name.encode())])

    def fill(self, values: Values, random: np.random.Generator, scale: float) -> None:
        """Fill an array of at most `_WIDEST` values with about `scale` times normal noise."""
        place = int(random.integers(_STREAM - values.size))
        factor = np.float32(scale * random.uniform(1 - _SPREAD, 1 + _SPREAD))
        np.multiply(self._stream[place : place + values.size], factor, out=values)


@dataclass(frozen=True, slots=True)
class RandomRows:
    """A recipe for rows of `scale` times normal noise around `mean`, made a piece at a time."""

    noise: Noise
    scale: float
    mean: float = 0.0

    def pieces(
        self, reader: Reader, source: SourceTensor, type: TensorType, rows: int, limit: int
    ) -> Iterator[Piece]:
        """Yield rows in f32; the memory of a piece is used again for the next."""
        del reader, type
        columns = source.length // F32.size // rows
        step = max(1, min(limit // F32.size, _WIDEST) // columns)
        random = self.noise.generator(source.name)
        buffer = np.empty(min(step, rows) * columns, np.float32)
        for first in range(0, rows, step):
            count = min(step, rows - first)
            values = buffer[: count * columns]
            self.noise.fill(values, random, self.scale)
            if self.mean:
                values += np.float32(self.mean)
            yield Piece(count, values.data.cast("B"), F32)


@dataclass(frozen=True, slots=True)
class RandomDecays:
    """A recipe for the decays of a gated delta net, one per head: -exp(noise), as `-exp(A_log)` is kept in a GGUF."""

    noise: Noise

    def pieces(
        self, reader: Reader, source: SourceTensor, type: TensorType, rows: int, limit: int
    ) -> Iterator[Piece]:
        """Yield all of them in f32."""
        del reader, type, limit
        random = self.noise.generator(source.name)
        values = -np.exp(random.standard_normal(source.shape, np.float32))
        yield Piece(rows, values.data.cast("B"), F32)


def random_tensor(name: str, shape: tuple[int, ...], noise: Noise, path: Path) -> DraftTensor:
    """Return a tensor of `shape` (row length first) with random values that let hidden states keep their size.

    Norms are about 1, matrices about 1 / sqrt(row length), as in a fresh network.
    """
    count = int(np.prod(shape, dtype=np.int64))
    source = SourceTensor(name, path, F32.name, shape[::-1], 0, count * F32.size)
    if name.endswith("ssm_a"):
        return DraftTensor(name, source, F32, shape, RandomDecays(noise))
    if "norm" in name:
        return DraftTensor(name, source, F32, shape, RandomRows(noise, 0.1, 1.0))
    return DraftTensor(name, source, F32, shape, RandomRows(noise, shape[0] ** -0.5))
