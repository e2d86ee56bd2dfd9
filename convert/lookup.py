"""Which target a drafter belongs to, when none is given: the only GGUF near that fits it."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ModelError
from ..gguf_file import GgufFile
from .config import DraftConfig
from .faults import refuse
from .source import Checkpoint
from .target import check_fit, read_target

_SHOWN = 4


def find_target(checkpoint: Checkpoint, config: DraftConfig) -> Path:
    """Return the one GGUF beside the checkpoint, else the one in the Hugging Face cache, that fits.

    Raises ConvertError, saying where it looked and what to type, if there is none or more than one.
    """
    hub = _hub_cache()
    fitting = _fitting(checkpoint.folder, "*.gguf", config)
    fitting = fitting or _fitting(hub, "models--*/snapshots/**/*.gguf", config)
    if not fitting:
        refuse(
            f"{checkpoint.origin}: no target is given, and no GGUF in {checkpoint.folder} or {hub} fits this "
            f"drafter; expected its target: dflash-gguf convert {checkpoint.origin} --target TARGET.gguf"
        )
    if len(fitting) > 1:
        names = ", ".join(str(path) for path in fitting[:_SHOWN])
        refuse(
            f"{checkpoint.origin}: {len(fitting)} targets fit it ({names}); expected one: give it with --target"
        )
    return fitting[0]


def _hub_cache() -> Path:
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache)
    if home := os.environ.get("HF_HOME"):
        return Path(home) / "hub"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface" / "hub"


def _fitting(folder: Path, pattern: str, config: DraftConfig) -> list[Path]:
    # a cache holds a file once and links to it from every snapshot
    found = {path.resolve(): path for path in sorted(folder.glob(pattern)) if path.is_file()}
    return [path for path in found.values() if _fits(config, path)]


def _fits(config: DraftConfig, path: Path) -> bool:
    try:
        with GgufFile(path) as file:
            check_fit(config, "config.json", read_target(file))
    except ModelError:
        return False
    return True
