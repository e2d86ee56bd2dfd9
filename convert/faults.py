"""Refusing to convert: the one place where this package's errors are made."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from ..errors import ConvertError
from ..faults import one_line


def refuse(text: str) -> NoReturn:
    """Raise a ConvertError of one line."""
    raise ConvertError(one_line(text))


def refuse_file(path: Path, fault: str, remedy: str) -> NoReturn:
    """Raise a ConvertError about a file: what is wrong with it; what was expected, or what to do."""
    refuse(f"{path}: {fault}; {remedy}")
