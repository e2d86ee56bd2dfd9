"""Rewrite a GGUF with every weight in f32, so that one row and many rows give the same sums."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np


def upcast(source: Path, to: Path) -> Path:
    """Write `source` to `to` with bf16 and f16 tensors as f32; keys and order stay. Returns `to`."""
    reader = gguf.GGUFReader(source)
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(to, arch)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind is gguf.GGUFValueType.ARRAY else None
        value = field.contents()
        if name == "general.file_type":
            value = int(gguf.LlamaFileType.ALL_F32)
        writer.add_key_value(name, value, kind, sub_type=sub)
    for tensor in reader.tensors:
        data = tensor.data
        if tensor.tensor_type is gguf.GGMLQuantizationType.BF16:
            raw = np.ascontiguousarray(data).view(np.uint16)
            data = (raw.astype(np.uint32) << 16).view(np.float32)
        elif tensor.tensor_type is gguf.GGMLQuantizationType.F16:
            data = data.astype(np.float32)
        writer.add_tensor(tensor.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to
