"""What `convert` and `quantize` say about the files they wrote."""

from __future__ import annotations

from collections.abc import Sequence

from ..convert import Written
from ..terminal import say


def say_written(files: Sequence[Written], *, quiet: bool) -> None:
    """Say each warning once, and unless `quiet` one line per file."""
    for text in dict.fromkeys(text for file in files for text in file.warnings):
        say(f"warning: {text}")
    for file in [] if quiet else files:
        say(f"{file.path}  {file.type}  {len(file.tensors)} tensors  {file.bytes / 1e6:,.1f} MB")
