"""What an output is called and where it goes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import UsageError
from ..faults import one_line
from .faults import refuse
from .source import Checkpoint
from .types import OutputType
from .writer import refuse_existing

_LONGEST = 200  # bytes; type, suffix and a temporary name's ending must fit in 255 with it

# folder names that tell nothing, so that the parent's is put before them
_GENERIC = {"draft", "drafter", "checkpoint", "model"}


def model_name(checkpoint: Checkpoint, name: str | None) -> str:
    """Return the name outputs carry: `name`, else the file's, else its folder's if the file is `model`.

    A folder merely called `draft` gets its parent's name too (tiny/draft: `tiny-draft`); in a Hugging Face
    cache the repository's name is taken. Raises UsageError for a name that is no file name.
    """
    chosen = name if name is not None else _derived(checkpoint)
    plain = chosen == Path(chosen).name and chosen.isprintable() and not chosen.startswith(".")
    if not chosen or not plain or len(os.fsencode(chosen)) > _LONGEST:
        text = f"the name '{chosen}' is no file name; expected letters and digits: give one with --name"
        raise UsageError(one_line(text))
    return chosen


def output_paths(
    name: str, folder: Path, outputs: Sequence[OutputType], outfile: Path | None
) -> list[Path]:
    """Return one path per output type, in `folder`; `outfile` is that of the only one."""
    if outfile is None:
        return [folder / f"{name}-{output.label}.gguf" for output in outputs]
    if len(outputs) > 1:
        text = (
            f"{len(outputs)} output types and one file {outfile}; expected one type: give --outtype"
        )
        raise UsageError(one_line(text))
    return [outfile]


def check_free(paths: Sequence[Path], sources: Sequence[Path], *, force: bool) -> None:
    """Raise ConvertError if a path exists and `force` is not set, or if it is a file that is read."""
    for path in paths:
        _check_free(path, sources, force=force)


def make_folder(folder: Path) -> list[Path]:
    """Make a folder and its parents; returns those that were not there, the outermost first."""
    absent = [path for path in (folder, *folder.parents) if not os.path.lexists(path)][::-1]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remove_empty(absent)
        refuse(
            f"{folder}: it is no folder and cannot be made one ({error.strerror}); give another --outdir"
        )
    return absent


def remove_empty(folders: Sequence[Path]) -> None:
    """Remove those of the folders, the outermost first, that are empty."""
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()


def _derived(checkpoint: Checkpoint) -> str:
    stem = checkpoint.origin.name.split(".")[0]
    if stem not in {"model", "pytorch_model"} and not checkpoint.sharded:
        return checkpoint.origin.name.removesuffix(checkpoint.origin.suffix)
    folder = checkpoint.folder.absolute()
    if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
        return folder.parent.parent.name.split("--")[-1]
    if folder.name.lower() in _GENERIC and folder.parent.name:
        return f"{folder.parent.name}-{folder.name}"
    return folder.name or "model"


def _check_free(path: Path, sources: Sequence[Path], *, force: bool) -> None:
    # os.path's answer False where pathlib's raise, as for a name that is too long
    if not os.path.lexists(path):
        return
    for source in sources:
        if path.exists() and source.exists() and path.samefile(source):
            refuse(
                f"{path}: the output would overwrite {source}, which is read; expected another place: give "
                "another --name or --outdir"
            )
    if not force or path.is_dir():
        refuse_existing(path)
