"""Rewrite a target's GGUF with its weights in a quantised type, by llama.cpp's own code."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from dflash_gguf._native import core

_SOURCES = {gguf.GGMLQuantizationType.F32: 0, gguf.GGMLQuantizationType.BF16: 30}


def requantised(source: Path, to: Path, kind: str) -> Path:
    """Write `source` to `to` with all matrices of whole blocks in `kind`, such as "Q5_K"; returns `to`.

    Convolutions stay, as in llama-quantize.
    """
    wanted = gguf.GGMLQuantizationType[kind]
    per_block, size = gguf.GGML_QUANT_SIZES[wanted]
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(to, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kinds = field.types
        sub = kinds[-1] if kinds[0] is gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kinds[0], sub_type=sub)
    for tensor in reader.tensors:
        columns, rows = int(tensor.shape[0]), int(np.prod(tensor.shape[1:]))
        if len(tensor.shape) != 2 or columns % per_block or "conv" in tensor.name:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        data = np.empty(rows * columns // per_block * size, np.uint8)
        source_type = _SOURCES[tensor.tensor_type]
        given = np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1)
        core().convert_rows(given, source_type, data, int(wanted), rows, columns)
        writer.add_tensor(tensor.name, data.reshape(rows, -1), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return to
