"""The Hugging Face cache of this process, with files in it that nobody fetched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dflash_gguf.convert.hub_cache import repository_folder

from ..convert.hub_server import COMMIT


def put_in_cache(repository: str, sources: Mapping[str, Path]) -> Path:
    """Link files into a repository's snapshot as huggingface_hub does; returns the snapshot."""
    folder = repository_folder(repository)
    assert folder is not None
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(COMMIT)
    snapshot = folder / "snapshots" / COMMIT
    for name, source in sources.items():
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(source)
    return snapshot
