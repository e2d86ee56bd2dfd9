"""The Hugging Face cache on disk, read without huggingface_hub: `models--OWNER--NAME/snapshots/COMMIT/FILE`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def cache_folder() -> Path | None:
    """Return the cache: HF_HUB_CACHE, HF_HOME's hub, or the system's; None for a user without a home."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if cache := os.environ.get(name):
            return _expanded(cache)
    if home := os.environ.get("HF_HOME"):
        return _expanded(home) / "hub"
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # of Path.home, for a user whom the system does not know
        return None
    return caches / "huggingface" / "hub"


def repositories() -> Iterator[tuple[str, Path]]:
    """Yield the models' repositories in the cache, by name: `owner/name` and its folder."""
    cache = cache_folder()
    try:
        folders = sorted(cache.glob("models--*--*")) if cache else []
    except OSError:
        return
    for folder in folders:
        owner, _, name = folder.name.removeprefix("models--").partition("--")
        yield f"{owner}/{name}", folder


def repository_folder(repository: str) -> Path | None:
    """Return where `owner/name` lies if it is in the cache; None if there is no cache."""
    cache = cache_folder()
    return None if cache is None else cache / f"models--{repository.replace('/', '--')}"


def snapshots(folder: Path) -> list[Path]:
    """Return the snapshots of a repository's folder: the one that `main` means first, then the newest."""
    try:
        found = [path for path in (folder / "snapshots").iterdir() if path.is_dir()]
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:  # none, or the cache is being cleared
        return []
    try:
        main = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return found
    return sorted(found, key=lambda path: path.name != main)


def files(snapshot: Path) -> list[str]:
    """Return what a snapshot holds whole, by paths in it; links whose file is gone are left out."""
    try:
        paths = sorted(snapshot.rglob("*"))
        return [path.relative_to(snapshot).as_posix() for path in paths if path.is_file()]
    except OSError:
        return []


def _expanded(text: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(text)))  # noqa: PTH111  both, as huggingface_hub does
