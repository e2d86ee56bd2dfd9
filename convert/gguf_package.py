"""The `gguf` package, checked: an old one lacks what is used here, or writes something else."""

from __future__ import annotations

import importlib
import re
from importlib import metadata
from typing import Any

from .faults import refuse

_OLDEST = (0, 19)  # as in pyproject.toml


def gguf_package() -> Any:
    """Import gguf. Raises ConvertError, naming both versions, if it is missing or too old."""
    wanted = ".".join(map(str, _OLDEST))
    remedy = f"expected gguf {wanted} or newer: run 'pip install \"gguf>={wanted}\"'"
    try:
        found = importlib.import_module("gguf")
        version = metadata.version("gguf")
    except ModuleNotFoundError:  # metadata's PackageNotFoundError is one too
        refuse(f"the Python package gguf is not installed; {remedy}")
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < _OLDEST:
        refuse(f"the Python package gguf has the version {version}; {remedy}")
    return found
