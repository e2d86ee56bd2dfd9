"""Find a checkpoint's files and read rows of its tensors.

Bytes are read plainly, not mapped: a mapped checkpoint would count as ours in the process's peak memory.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from safetensors import SafetensorError, safe_open

from ..ggml_types import BF16, F16, F32, TensorType
from .faults import refuse_file

# safetensors' own dtype names of what we convert; everything else is refused by name
DTYPES: dict[str, TensorType] = {"BF16": BF16, "F16": F16, "F32": F32}

_MAX_HEADER = 16 << 20  # a header of a hundred thousand tensors is smaller
_MAX_JSON = 64 << 20
_PICKLES = {".bin", ".pt", ".pth", ".ckpt"}


@dataclass(frozen=True, slots=True)
class SourceTensor:
    """A tensor of the checkpoint; `shape` as in the checkpoint (rows first), `offset` absolute in `path`."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The files of a checkpoint: `origin` names it, `folder` holds config.json."""

    origin: Path
    folder: Path
    sharded: bool
    files: tuple[Path, ...]
    tensors: dict[str, SourceTensor]


def find_checkpoint(source: Path) -> Checkpoint:
    """Find and check a checkpoint: a .safetensors file, an index of shards, or a folder with one of them.

    Raises ConvertError if there is none, more than one, or if a header, an index and the files disagree.
    """
    origin = _pick(source)
    if origin.name.endswith(".index.json"):
        files, mapping = _read_index(origin)
        tensors = _merge(files)
        _compare_with_index(origin, mapping, tensors)
    else:
        files = (origin,)
        tensors = _merge(files)
    if not tensors:
        refuse_file(
            origin, "it holds no tensors", "expected a drafter's weights; get the file again"
        )
    return Checkpoint(origin, origin.parent, len(files) > 1, files, tensors)


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

    def _fill(self, tensor: SourceTensor, offset: int, piece: memoryview) -> None:
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_whole(tensor: SourceTensor) -> bytes:
    """Read a small tensor's bytes."""
    with Reader() as reader:
        ((_, data),) = reader.pieces(tensor, 1, tensor.length)
        return bytes(data)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises ConvertError if the file is missing, too large or something else."""
    try:
        _require_file(path)
        if path.stat().st_size > _MAX_JSON:
            refuse_file(
                path, f"it has {path.stat().st_size} bytes", f"expected at most {_MAX_JSON}"
            )
        value = json.loads(path.read_bytes())
    except OSError as error:
        refuse_file(
            path, f"it cannot be read ({error.strerror})", "expected the checkpoint's JSON file"
        )
    except (ValueError, RecursionError) as error:
        refuse_file(path, f"it is not JSON ({error})", "get the file again")
    if not isinstance(value, dict):
        refuse_file(
            path, f"it holds a {type(value).__name__}", "expected a JSON object; get the file again"
        )
    return value


def _pick(source: Path) -> Path:
    try:
        mode = source.stat().st_mode
    except OSError as error:
        refuse_file(
            source,
            f"it cannot be read ({error.strerror})",
            "give a .safetensors file or its folder",
        )
    if stat.S_ISDIR(mode):
        return _pick_in_folder(source)
    if source.suffix in _PICKLES:
        refuse_file(
            source,
            "it is a pickle",
            "expected .safetensors; save the checkpoint as safetensors first",
        )
    if source.suffix == ".gguf":
        refuse_file(source, "it is a GGUF already", "expected a .safetensors file or its folder")
    if source.suffix != ".safetensors" and not source.name.endswith(".safetensors.index.json"):
        refuse_file(
            source,
            f"its name ends in '{source.suffix}'",
            "expected .safetensors; give that or its folder",
        )
    _require_file(source)
    return source


def _pick_in_folder(folder: Path) -> Path:
    indexes = sorted(folder.glob("*.safetensors.index.json"))
    singles = sorted(folder.glob("*.safetensors"))
    found = indexes or singles
    if folder / "model.safetensors" in singles and not indexes:
        found = [folder / "model.safetensors"]
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:4])
        fault = f"it holds {len(found)} checkpoints ({names})"
        refuse_file(folder, fault, "give one of the files by name")
    if not found:
        pickles = sorted(path.name for path in folder.iterdir() if path.suffix in _PICKLES)
        fault = f"it holds {pickles[0]}, but" if pickles else "it holds"
        refuse_file(
            folder, f"{fault} no .safetensors file", "give the folder of a drafter's checkpoint"
        )
    _require_file(found[0])
    return found[0]


def _require_file(path: Path) -> None:
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError) as error:  # ValueError: a name no file can have
        why = error.strerror if isinstance(error, OSError) else error
        refuse_file(path, f"it cannot be read ({why})", "expected a checkpoint's file")
    # a pipe or device would block, or never end
    if not regular:
        refuse_file(path, "it is not a regular file", "expected a checkpoint's file")


def _read_index(path: Path) -> tuple[tuple[Path, ...], dict[str, str]]:
    mapping = read_json(path).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        refuse_file(
            path, "it has no weight_map", "expected tensor names and files; get the index again"
        )
    for name, file in mapping.items():
        if not isinstance(file, str) or not file or Path(file).name != file:
            refuse_file(
                path, f"{name} is in {file!r}", "expected the name of a file beside the index"
            )
    return tuple(path.parent / name for name in sorted(set(mapping.values()))), mapping


def _merge(files: tuple[Path, ...]) -> dict[str, SourceTensor]:
    tensors: dict[str, SourceTensor] = {}
    for file in files:
        for tensor in _read_header(file):
            if tensor.name in tensors:
                other = tensors[tensor.name].path.name
                refuse_file(
                    file,
                    f"{tensor.name} stands in {other} too",
                    "expected it once; get the files again",
                )
            tensors[tensor.name] = tensor
    return tensors


def _compare_with_index(
    path: Path, mapping: dict[str, str], tensors: dict[str, SourceTensor]
) -> None:
    absent = [
        name for name in mapping if name not in tensors or tensors[name].path.name != mapping[name]
    ]
    if absent:
        where = mapping[absent[0]]
        refuse_file(
            path,
            f"{len(absent)} tensors such as {absent[0]} are not in {where}",
            "get the files again",
        )
    extra = [name for name in tensors if name not in mapping]
    if extra:
        refuse_file(
            path, f"it does not list {len(extra)} tensors such as {extra[0]}", "get the index again"
        )


def _read_header(path: Path) -> list[SourceTensor]:
    try:
        _require_file(path)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _MAX_HEADER):
                refuse_file(
                    path,
                    f"its header would have {length} bytes, the file has {size}",
                    f"expected at most {_MAX_HEADER} and the whole file; get it again",
                )
            header = json.loads(file.read(length))
        # it checks that offsets, shapes and the file's size agree, and that nothing overlaps
        with safe_open(path, framework="np"):
            pass
    except OSError as error:
        refuse_file(path, f"it cannot be read ({error.strerror})", "expected a .safetensors file")
    except SafetensorError as error:
        refuse_file(path, f"it is not a whole safetensors file ({error})", "get the file again")
    except (ValueError, RecursionError) as error:
        refuse_file(path, f"its header is not JSON ({error})", "get the file again")
    return [
        _tensor(path, name, entry, 8 + length)
        for name, entry in header.items()
        if name != "__metadata__"
    ]


def _tensor(path: Path, name: str, entry: dict[str, Any], base: int) -> SourceTensor:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    dtype = entry["dtype"]
    kind = DTYPES.get(dtype)
    if kind is not None and math.prod(shape) * kind.size != end - begin:
        refuse_file(
            path, f"{name} has {end - begin} bytes for the shape {shape}", "get the file again"
        )
    return SourceTensor(name, path, dtype, shape, base + begin, end - begin)
