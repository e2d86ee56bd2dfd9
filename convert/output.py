"""Outputs: planned, written all in one pass, and put in place together or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ..errors import ResourceError, UsageError
from ..ggml_types import TensorType
from ..hardware import usable_cpus
from .fields import Field
from .importance import Importance
from .names import make_folder, remove_empty
from .stream import Progress, stream
from .tensors import DraftTensor
from .writer import GgufWriter, NewFile, Plan


@dataclass(frozen=True, slots=True)
class WrittenTensor:
    """A tensor of an output file: `type` by ggml's name, `shape` row length first, `length` in bytes."""

    name: str
    type: str
    shape: tuple[int, ...]
    length: int


@dataclass(frozen=True, slots=True)
class Written:
    """An output file: its `type` as in its name, its tensors, its size in bytes, and what to tell the user."""

    path: Path
    type: str
    tensors: tuple[WrittenTensor, ...]
    bytes: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """An output to be made: `types` of the tensors, in their order."""

    path: Path
    label: str
    fields: Mapping[str, Field]
    types: Sequence[TensorType]
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True)
class Companion:
    """A text file put in place with the outputs: `make` gets their finished files, in order, not yet renamed."""

    path: Path
    make: Callable[[Sequence[Path]], str]


def write_outputs(
    outputs: Sequence[Output],
    tensors: Sequence[DraftTensor],
    *,
    force: bool,
    threads: int | None,
    progress: Progress | None,
    importance: Importance | None = None,
    late_fields: Callable[[], Mapping[str, Field]] | None = None,
    companion: Companion | None = None,
) -> list[Written]:
    """Write all outputs, whose folders are made if needed.

    `late_fields` gives values that replace equally long ones of `fields`, once all tensors are written.
    Raises ConvertError or ResourceError; then nothing is left behind, and existing files are kept.
    """
    plans = [_plan(output, tensors) for output in outputs]
    with ExitStack() as stack:
        for folder in dict.fromkeys(output.path.parent for output in outputs):
            stack.callback(remove_empty, make_folder(folder))
            needed = sum(
                tensor.length
                for output, plan in zip(outputs, plans, strict=True)
                for tensor in plan
                if output.path.parent == folder
            )
            _require_space(folder, needed)
        writers = [
            stack.enter_context(GgufWriter(output.path, output.fields, plan, force=force))
            for output, plan in zip(outputs, plans, strict=True)
        ]
        types = [output.types for output in outputs]
        stream(tensors, types, writers, importance, threads or len(usable_cpus()), progress)
        if late_fields is not None:
            fields = late_fields()
            for writer in writers:
                writer.replace(fields)
        files: list[NewFile] = [*writers]
        if companion is not None:
            files.append(stack.enter_context(NewFile(companion.path, force=force)))
            text = companion.make([writer.temporary for writer in writers])
            files[-1].append(text.encode("utf-8", "replace"))
        _commit(files, keep=force)
        return [
            _report(output, plan, writer)
            for output, plan, writer in zip(outputs, plans, writers, strict=True)
        ]


def check_threads(threads: int | None) -> None:
    """Raise UsageError for a number of threads that cannot be."""
    if threads is not None and threads < 1:
        text = f"threads is {threads}; expected at least 1"
        raise UsageError(text)


def _plan(output: Output, tensors: Sequence[DraftTensor]) -> list[Plan]:
    pairs = zip(tensors, output.types, strict=True)
    return [Plan(tensor.name, kind, tensor.shape) for tensor, kind in pairs]


def _commit(files: Sequence[NewFile], *, keep: bool) -> None:
    """Put all outputs in place, or none if one cannot be (`keep`: those that replaced another stay)."""
    for file in files:
        file.sync()
    placed: list[Path] = []
    try:
        for file in files:
            file.commit()
            placed.append(file.path)
    except BaseException:
        for path in [] if keep else placed:
            path.unlink(missing_ok=True)
        raise


def _report(output: Output, plan: Sequence[Plan], writer: GgufWriter) -> Written:
    return Written(
        path=output.path,
        type=output.label,
        tensors=tuple(
            WrittenTensor(tensor.name, tensor.type.name, tensor.shape, tensor.length)
            for tensor in plan
        ),
        bytes=writer.size,
        warnings=tuple(output.warnings),
    )


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        text = f"{folder}: {needed} bytes are needed and {free} are free; free some or use --outdir"
        raise ResourceError(text)
