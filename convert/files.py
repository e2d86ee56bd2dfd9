"""Reading the files of a checkpoint: JSON and the header of safetensors, checked before they are believed."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from .faults import refuse_file
from .reader import DTYPES, SourceTensor

_MAX_HEADER = 16 << 20  # a header of a hundred thousand tensors is smaller
_MAX_JSON = 64 << 20


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises ConvertError if the file is missing, too large or something else."""
    try:
        require_file(path)
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


def require_file(path: Path) -> None:
    """Raise ConvertError unless the path is a file that can be read."""
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError) as error:  # ValueError: a name no file can have
        why = error.strerror if isinstance(error, OSError) else error
        refuse_file(path, f"it cannot be read ({why})", "expected a checkpoint's file")
    # a pipe or device would block, or never end
    if not regular:
        refuse_file(path, "it is not a regular file", "expected a checkpoint's file")


def read_header(path: Path) -> list[SourceTensor]:
    """Read the tensors of a safetensors file. Raises ConvertError if it is not whole."""
    try:
        require_file(path)
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
