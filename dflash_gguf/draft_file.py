"""Where a drafter's GGUF is: the file itself, one in a folder, or one converted into the cache."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from pathlib import Path

from . import __version__
from .errors import ModelError

_LOG = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return the folder of converted drafters: DFLASH_GGUF_CACHE, else the system's cache folder."""
    if given := os.environ.get("DFLASH_GGUF_CACHE"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dflash-gguf"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dflash-gguf"


def find_draft(given: Path, target: Path) -> Path:
    """Return the GGUF that `--draft` means.

    A file is itself. Of a folder's GGUF files the largest, the one closest to the checkpoint, is taken; a
    folder with a checkpoint only is converted to bf16 once, into the cache. Both are logged at INFO.

    Raises ModelError if there is neither, ConvertError if the checkpoint cannot be converted.
    """
    if not given.is_dir():
        return given
    files = sorted(given.glob("*.gguf"), key=lambda path: (-path.stat().st_size, path.name))
    if files:
        _LOG.info("draft: %s", files[0])
        return files[0]
    if not any(given.glob("*.safetensors*")):
        text = (
            f"{given}: expected a folder with a drafter's .gguf or its model.safetensors, found neither; give "
            "the drafter's file"
        )
        raise ModelError(text)
    return _converted(given, target)


def _converted(source: Path, target: Path) -> Path:
    from .convert import convert

    folder = cache_folder() / _identity(source, target)
    existing = sorted(folder.glob("*.gguf"))
    if existing:
        _LOG.info("draft: %s (converted before from %s)", existing[0], source)
        return existing[0]
    _LOG.info("draft: converting %s to %s, once", source, folder)
    return convert(source, target, outdir=folder, outtypes=["bf16"], force=True)[0].path


def _identity(source: Path, target: Path) -> str:
    """Name a conversion by what would change it: the files' places, sizes and times, and our version."""
    digest = hashlib.sha256(__version__.encode())
    inputs = [
        target,
        *(p for p in source.iterdir() if p.suffix in {".json", ".safetensors", ".pt"}),
    ]
    for path in sorted(inputs):
        stat = path.stat()
        digest.update(f"{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
