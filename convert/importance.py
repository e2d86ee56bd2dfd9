"""Importance matrices: how much each column of a matrix matters, as llama.cpp's llama-imatrix measures it.

Both its formats are read: GGUF, and the older .dat.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ..gguf_file import GgufFile
from .faults import refuse_file
from .fields import Field, string, u32
from .files import require_file
from .tensors import DraftTensor

Weights: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]

_SUMS, _COUNTS = ".in_sum2", ".counts"
_METADATA = ("imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size")
_AGAIN = "expected a file of llama-imatrix; make it again"
_LONGEST = 127  # bytes llama-quantize keeps of a name


@dataclass(frozen=True, slots=True)
class Importance:
    """The mean squares of each tensor's inputs, by its GGUF name; `chunks` of text they come from."""

    path: Path
    weights: Mapping[str, Weights]
    chunks: int
    dataset: str

    def of(self, tensor: DraftTensor) -> Weights | None:
        """Return a tensor's weights, if there are any. Raises ConvertError if they are of another model."""
        found = self.weights.get(tensor.name)
        if found is None or len(found) == tensor.columns:
            return found
        # the embeddings are looked up, not multiplied: what stands there is no use
        if tensor.name != "token_embd.weight":
            refuse_file(
                self.path,
                f"it has {len(found)} values for {tensor.name}",
                f"expected {tensor.columns}: is it of another model?",
            )
        return None

    def fields(self) -> dict[str, Field]:
        """Return the key/values that tell of it, as llama-quantize writes them."""
        fields = {"quantize.imatrix.file": string(_cut(str(self.path)))}
        if self.dataset:
            fields["quantize.imatrix.dataset"] = string(_cut(self.dataset))
        fields["quantize.imatrix.entries_count"] = u32(len(self.weights))
        if self.chunks > 0:
            fields["quantize.imatrix.chunks_count"] = u32(self.chunks)
        return fields


def read_importance(path: Path, tensors: Sequence[DraftTensor]) -> Importance:
    """Read an imatrix file for these tensors. Raises ConvertError if it is none, or of another model."""
    try:
        require_file(path)
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        refuse_file(path, f"it cannot be read ({error.strerror})", "expected an imatrix file")
    found = _read_gguf(path) if magic == b"GGUF" else _read_legacy(path)
    for name, weights in found.weights.items():
        if not np.isfinite(weights).all():
            refuse_file(path, f"a value for {name} is infinite or not a number", _AGAIN)
    if all(weights is None for weights in [found.of(tensor) for tensor in tensors]):
        refuse_file(
            path, "it knows none of the drafter's tensors", "expected this drafter's imatrix"
        )
    return found


def _read_gguf(path: Path) -> Importance:
    with GgufFile(path) as file:
        absent = [key for key in _METADATA if key not in file.fields]
        if absent:
            refuse_file(path, f"the key {absent[0]} is missing", _AGAIN)
        datasets = file.array("imatrix.datasets")
        names = [name for name in file.tensors if name.endswith(_SUMS)]
        weights = {name.removesuffix(_SUMS): _mean(file, name) for name in names}
        chunks = file.integer("imatrix.chunk_count")
    return Importance(path, weights, chunks, str(datasets[0]) if datasets else "")


def _mean(file: GgufFile, name: str) -> Weights:
    counts_name = name.removesuffix(_SUMS) + _COUNTS
    for wanted in (name, counts_name):
        info = file.tensors.get(wanted)
        if info is None or info.type.name != "F32":
            refuse_file(file.path, f"the tensor {wanted} is missing or not F32", _AGAIN)
    sums = np.frombuffer(file.data(name), "<f4")
    counts = np.floor(np.frombuffer(file.data(counts_name), "<f4") + np.float32(0.5))
    if len(sums) % len(counts):
        refuse_file(file.path, f"{name} and {counts_name} do not fit each other", _AGAIN)
    each = np.repeat(counts, len(sums) // len(counts))
    # an expert that was never asked counts evenly
    return np.where(each > 0, sums / np.where(each > 0, each, 1), np.float32(1)).astype(np.float32)


def _read_legacy(path: Path) -> Importance:
    data = path.read_bytes()
    position = 0

    def take(code: str) -> Any:
        nonlocal position
        values = struct.unpack_from(f"<{code}", data, position)
        position += struct.calcsize(f"<{code}")
        return values[0]

    try:
        weights: dict[str, Weights] = {}
        for _ in range(take("i")):
            name = take(f"{_length(path, take('i'))}s").split(b"\0")[0].decode("utf-8", "replace")
            calls, size = take("i"), _length(path, take("i"))
            values = np.frombuffer(take(f"{4 * size}s"), "<f4")
            weights[name] = (values / np.float32(calls) if calls > 0 else values).astype(np.float32)
        chunks, dataset = 0, ""
        if position < len(data):
            chunks = take("i")
        if position < len(data):
            dataset = take(f"{_length(path, take('i'))}s").decode("utf-8", "replace")
    except struct.error:
        _refuse_legacy(path)
    if not weights:
        _refuse_legacy(path)
    return Importance(path, weights, chunks, dataset)


def _length(path: Path, value: int) -> int:
    if not 0 <= value < 1 << 28:
        _refuse_legacy(path)
    return value


def _refuse_legacy(path: Path) -> NoReturn:
    refuse_file(path, "it is neither a GGUF nor a whole .dat of llama-imatrix", _AGAIN)


def _cut(text: str) -> str:
    return text.encode("utf-8", "surrogateescape")[:_LONGEST].decode("utf-8", "surrogateescape")
