"""Files of PyTorch's own format: read with torch, which nothing else here needs, and never executed."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from .faults import refuse_file


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
