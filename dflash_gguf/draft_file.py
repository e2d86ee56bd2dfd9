"""Where a drafter's GGUF is: the file itself, one in a folder, or one converted into the cache."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from pathlib import Path

from . import __version__
from .errors import ModelError, ResourceError
from .gguf_file import GgufFile

_LOG = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return the folder of what is kept between runs: DFLASH_GGUF_CACHE, else the system's cache folder.

    Raises ResourceError if there is neither.
    """
    if given := os.environ.get("DFLASH_GGUF_CACHE"):
        return Path(given)
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "dflash-gguf"
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dflash-gguf"
    except RuntimeError:  # of Path.home, for a user whom the system does not know
        text = "there is no home folder to keep files in; set DFLASH_GGUF_CACHE to a folder"
        raise ResourceError(text) from None


def find_draft(given: Path, target: Path) -> Path:
    """Return the GGUF that `--draft` means.

    A GGUF is itself. Of a folder's drafters the largest GGUF, the one closest to the checkpoint, is taken; a
    folder with a checkpoint only, or a checkpoint, is converted to bf16 once, into the cache. Both are
    logged at INFO.

    Raises ModelError if there is neither, ConvertError if the checkpoint cannot be converted, ResourceError if
    there is no place for it.
    """
    if given.is_file() and given.name.endswith((".safetensors", ".safetensors.index.json")):
        return _converted(given, target)
    if not given.is_dir():
        return given
    files = [path for path in given.glob("*.gguf") if path.is_file()]
    drafters = [path for path in files if _is_drafter(path)]
    if drafters:
        chosen = min(drafters, key=lambda path: (-path.stat().st_size, path.name))
        _LOG.info("draft: %s", chosen)
        return chosen
    if not any(given.glob("*.safetensors*")):
        found = ", ".join(sorted(path.name for path in files)) or "neither"
        text = (
            f"{given}: expected a folder with a drafter's .gguf or its model.safetensors, found {found}; "
            "give the drafter's file"
        )
        raise ModelError(text)
    return _converted(given, target)


def _is_drafter(path: Path) -> bool:
    # a folder may hold the target too; forks' drafters count, so that what is wrong with them gets said
    try:
        with GgufFile(path) as file:
            return file.architecture.startswith("dflash") or file.architecture == "dspark"
    except ModelError:
        return False


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
    folder = source if source.is_dir() else source.parent
    inputs = [
        source,
        target,
        *(path for path in folder.iterdir() if path.suffix in {".json", ".safetensors"}),
    ]
    for path in sorted(path for path in inputs if path.is_file()):
        stat = path.stat()
        digest.update(f"{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
