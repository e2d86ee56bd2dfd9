"""Files of PyTorch's own format: read with torch, which nothing else here needs, and never executed."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from .faults import refuse_file
from .reader import SourceTensor

# torch's dtypes by safetensors' names
_NAMES = {
    "torch.bfloat16": "BF16",
    "torch.float16": "F16",
    "torch.float32": "F32",
    "torch.int64": "I64",
    "torch.int32": "I32",
    "torch.bool": "BOOL",
}


def read_pickle(path: Path) -> list[SourceTensor]:
    """Return the tensors of a .bin or .pt file. Raises ConvertError if it holds anything else."""
    loaded = load_pickle(path)
    if not isinstance(loaded, dict) or not all(
        hasattr(value, "dtype") for value in loaded.values()
    ):
        refuse_file(
            path,
            "it is no table of tensors by name",
            "expected a state dict; save it as safetensors",
        )
    return [_tensor(path, str(name), value) for name, value in loaded.items()]


def _tensor(path: Path, name: str, value: Any) -> SourceTensor:
    import torch

    if value.is_sparse or value.is_quantized:
        refuse_file(path, f"{name} is sparse or quantised", "expected plain tensors")
    raw = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    dtype = str(value.dtype)
    shape = tuple(value.shape)
    return SourceTensor(name, path, _NAMES.get(dtype, dtype), shape, 0, raw.nbytes, raw.data)


def load_pickle(path: Path) -> Any:
    """Read a .pt or .bin file on the CPU, with `weights_only`. Raises ConvertError, also without torch."""
    try:
        import torch
    except ModuleNotFoundError:
        refuse_file(
            path, "only PyTorch reads it, which is not installed", "run 'pip install torch'"
        )
    try:
        # mapped, its tensors take memory only while they are read; the oldest format cannot be
        mapped = zipfile.is_zipfile(path)
        return torch.load(str(path), map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # noqa: BLE001  torch raises many kinds
        first = str(error).strip().split("\n")[0]
        refuse_file(
            path,
            f"torch does not read it as weights ({type(error).__name__}: {first})",
            "expected tensors only; get the file again, or save it as safetensors",
        )
