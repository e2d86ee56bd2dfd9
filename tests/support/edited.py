"""Write a GGUF again with some of its keys or tensors changed: files with one fault each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np


def edited(
    source: Path,
    to: Path,
    *,
    arch: str | None = None,
    drop: tuple[str, ...] = (),
    change: Mapping[str, Any] | None = None,
    add_tensors: tuple[str, ...] = (),
    rows: Mapping[str, int] | None = None,
) -> Path:
    """Write `source` to `to`: keys of `drop` left out, those of `change` replaced or added. Returns `to`.

    `rows`: f32 tensors that get so many rows, padded with zeros, added where there are none.

    Types are kept where the key was there; a new key's type is guessed by gguf.
    """
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(to, arch or architecture)
    changes = dict(change or {})
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or name in drop:
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
        value = changes.pop(name, field.contents())
        writer.add_key_value(name, value, kind, sub_type=sub)
    for name, value in changes.items():
        kind = gguf.GGUFValueType.get_type(value)
        if kind is gguf.GGUFValueType.INT32 and value >= 0:
            kind = gguf.GGUFValueType.UINT32  # as llama.cpp wants its counts
        writer.add_key_value(name, value, kind)
    sizes = dict(rows or {})
    for tensor in reader.tensors:
        data, count = tensor.data, sizes.pop(tensor.name, None)
        if count is not None:
            data = np.pad(data[:count], ((0, max(0, count - len(data))), (0, 0)))
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    for name, count in sizes.items():
        width = reader.fields[f"{architecture}.embedding_length"].contents()
        writer.add_tensor(name, np.zeros((count, width), np.float32))
    for name in add_tensors:
        writer.add_tensor(name, np.zeros((1, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to


def spoilt(source: Path, to: Path, *names: str) -> Path:
    """Write `source` to `to` with no number in the tensors of these names; none given: in any. Returns `to`."""
    reader = gguf.GGUFReader(edited(source, to), "r+")
    assert {tensor.name for tensor in reader.tensors}.issuperset(names)
    for tensor in reader.tensors:
        if not names or tensor.name in names:
            tensor.data[:] = np.nan
    reader.data.flush()
    return to
