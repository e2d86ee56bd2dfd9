"""Both files of a shape, written as the converter writes: streamed, and put in place once they are whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..convert.fields import string
from ..convert.gguf_package import gguf_package
from ..convert.metadata import describe_type
from ..convert.names import check_free
from ..convert.output import Output, Written, check_threads, write_outputs
from ..convert.stream import Progress
from ..convert.tensors import DraftTensor
from ..convert.types import OutputType, find_output_types
from ..errors import DflashError, UsageError
from ..gguf_file import GgufFile
from .catalogue import Shape
from .drafter import plan_drafter
from .noise import Noise
from .target import parameters, plan_target

KEY = "dflash_gguf.shape"
_RECIPE = 1  # another number for other values of the same seed


@dataclass(frozen=True, slots=True)
class WrittenPair:
    """The files of a shape; `target` is None if the one that was there is the same, and was kept."""

    target_path: Path
    target: Written | None
    draft: Written


def write_shape(
    shape: Shape,
    outdir: Path | str,
    *,
    outtype: str = "bf16",
    draft_outtype: str | None = None,
    draft_vocab: int | None = None,
    seed: int = 0,
    force: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> WrittenPair:
    """Write a target and a drafter of a shape, with random weights: for speed and memory, not for text.

    Takes as much memory for any shape: some 150 MB. The same seed gives the same files, with one release of numpy.

    Args:
        shape: one of SHAPES, or one's own.
        outdir: folder of the files, made if needed: `<name>-shape-<TYPE>.gguf` and
            `<name>-shape-draft-<TYPE>.gguf`, or `-draft-<draft_vocab>-<TYPE>`; with `-shape-mtp` if there is that layer.
        outtype: name from `convert.OUTPUT_TYPES`, of both.
        draft_outtype: another one for the drafter.
        draft_vocab: give the drafter a head of its own for that many tokens, as `convert` does.
        seed: of the weights, from 0.
        force: overwrite files that exist. A target of the same shape, type and seed is kept anyhow.
        threads: for quantising; default: all CPUs of the process.
        progress: called after each piece with (bytes done, bytes in all, tensor), for each file.

    Raises UsageError for a request that makes no sense, ConvertError if a file exists, ResourceError if the disk
    is full.
    """
    kind, draft_kind = _kind(outtype), _kind(draft_outtype or outtype)
    check_threads(threads)
    if seed < 0:
        text = f"the seed is {seed}; expected 0 or more"
        raise UsageError(text)
    folder = Path(outdir)
    trimmed = "" if draft_vocab is None else f"-{draft_vocab}"
    stem = f"{shape.name}-shape{'-mtp' if shape.mtp else ''}"
    target_path = folder / f"{stem}-{kind.label}.gguf"
    draft_path = folder / f"{stem}-draft{trimmed}-{draft_kind.label}.gguf"
    output, tensors = plan_target(shape, kind, target_path, Noise(seed))
    output = _named(output, tensors, f"{shape.name} shape", kind, _mark(shape, kind, seed))
    kept = _is_there(output)
    check_free([draft_path] if kept else [target_path, draft_path], [], force=force)
    written = None if kept else _write(output, tensors, force, threads, progress)
    with GgufFile(target_path) as target:
        noise = Noise(seed, 1)
        draft, tensors = plan_drafter(shape, draft_kind, draft_path, target, noise, draft_vocab)
        mark = _mark(shape, draft_kind, seed)
        draft = _named(draft, tensors, f"{shape.name} shape drafter", draft_kind, mark)
        return WrittenPair(target_path, written, _write(draft, tensors, force, threads, progress))


def _kind(name: str) -> OutputType:
    found = find_output_types([name])
    return found[0]


def _mark(shape: Shape, kind: OutputType, seed: int) -> str:
    return f"{shape}, {kind.label}, seed {seed}, recipe {_RECIPE}"


def _named(
    output: Output, tensors: Sequence[DraftTensor], name: str, kind: OutputType, mark: str
) -> Output:
    gguf = gguf_package()
    general = {
        "general.type": string("model"),
        "general.name": string(f"{name} (random weights)"),
        "general.size_label": string(gguf.size_label(parameters(tensors), 0, 0, 0)),
        "general.description": string("Random weights in a real shape, for measuring."),
        KEY: string(mark),
    }
    fields = {**output.fields, **general, **describe_type(kind.file_type)}
    return Output(output.path, output.label, fields, output.types, output.warnings)


def _is_there(output: Output) -> bool:
    """Whether the file is there already; a file is put in place only when it is whole."""
    try:
        with GgufFile(output.path) as file:
            return file.string(KEY, "").encode() == output.fields[KEY].data[8:]
    except (DflashError, OSError):
        return False


def _write(
    output: Output,
    tensors: Sequence[DraftTensor],
    force: bool,
    threads: int | None,
    progress: Progress | None,
) -> Written:
    (written,) = write_outputs([output], tensors, force=force, threads=threads, progress=progress)
    return written
