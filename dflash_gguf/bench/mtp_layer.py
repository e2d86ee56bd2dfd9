"""Whether a target carries the MTP layer that a server is to draft with; servers say it late, or draft nothing."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..gguf_file import GgufFile


def require_mtp_layer(target: Path, option: str) -> None:
    """Raise UsageError, in the name of an option, for a target without one; ModelError for what is no GGUF."""
    with GgufFile(target) as file:
        key = f"{file.architecture}.nextn_predict_layers"
        if file.integer(key, 0) > 0:
            return
    text = (
        f"{option}: {target.name} has no MTP layer ({key} is not there); expected a target converted with it, or "
        "modes without mtp"
    )
    raise UsageError(text)
