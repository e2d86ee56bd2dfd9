"""Models that are given by name, brought here under a progress bar before a command begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..convert.stream import Progress


def fetched(
    target: Path, draft: Path | None = None, *, quiet: bool = False
) -> tuple[Path, Path | None]:
    """Return the paths that `--target` and `--draft` mean, see model_names.py for what they may be."""
    from ..model_names import find_drafter, find_target

    with fetching(quiet=quiet) as progress:
        return (
            find_target(target, progress),
            None if draft is None else find_drafter(draft, progress),
        )


def gguf_files(
    target: Path, draft: Path | None = None, *, quiet: bool = False
) -> tuple[Path, Path | None]:
    """Do as `fetched`, and convert a drafter's checkpoint, for commands that read the files themselves."""
    target, draft = fetched(target, draft, quiet=quiet)
    if draft is not None:
        from ..draft_file import find_draft

        draft = find_draft(draft, target)
    return target, draft


@contextmanager
def fetching(*, quiet: bool = False) -> Iterator[Progress]:
    """Yield what `fetch` wants to be told of its progress: a bar on a terminal."""
    from ..terminal import progress_bar

    with progress_bar("fetching", quiet=quiet) as move:
        yield lambda done, total, what: move(done / max(total, 1), what)


def complete_model(incomplete: str) -> list[str]:
    """Return the names of models in the Hugging Face cache that begin so; shells complete paths where there is none."""
    from ..model_names import cached_names

    return [name for name in cached_names() if name.startswith(incomplete)]
