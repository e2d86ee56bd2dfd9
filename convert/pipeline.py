"""The conversion itself: one pass over the checkpoint, a piece of rows at a time, for all outputs."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

from .._native import core
from ..errors import ResourceError, UsageError
from ..ggml_types import F16, TensorType
from ..gguf_file import GgufFile
from .config import DraftConfig, read_config
from .faults import refuse
from .fields import Field
from .metadata import describe_file, describe_model
from .names import make_folder, model_name, output_paths, remove_empty
from .source import DTYPES, Checkpoint, Reader, find_checkpoint
from .target import check_fit, read_target
from .tensors import DraftTensor, match_tensors
from .types import OutputType, choose_types, fallback_warnings, find_output_types
from .vocabulary import copy_tokenizer
from .writer import GgufWriter, Plan

# bytes done, bytes in all, name of the tensor
Progress: TypeAlias = Callable[[int, int, str], None]

_PIECE = 4 << 20  # bytes of source in memory at a time


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
class _Output:
    """An output to be made."""

    type: OutputType
    path: Path
    plan: list[Plan]


@dataclass(frozen=True, slots=True)
class _Drafter:
    """The checkpoint as found and checked."""

    checkpoint: Checkpoint
    config: DraftConfig
    tensors: list[DraftTensor]

    @property
    def folder(self) -> Path:
        return self.checkpoint.folder

    @property
    def parameters(self) -> int:
        return sum(math.prod(tensor.shape) for tensor in self.tensors)


def convert(
    source: Path | str,
    target: Path | str,
    *,
    outdir: Path | str | None = None,
    outtypes: Sequence[str] = ("bf16", "q5_k_m"),
    name: str | None = None,
    force: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Written]:
    """Convert a DFlash drafter's checkpoint to GGUF files that llama.cpp reads.

    Args:
        source: a .safetensors file, an index of shards, or a folder with one of them; config.json beside it.
        target: GGUF of the model the drafter was trained for; its tokenizer goes into the outputs.
        outdir: folder of the outputs, made if needed; default: beside the source.
        outtypes: names from `types.OUTPUT_TYPES`, any case; each gives a file `<name>-<TYPE>.gguf`.
        name: the outputs' `<name>`; default: after the file, or its folder where the file is `model`.
        force: overwrite outputs that exist.
        threads: threads for the quantisation; default: all CPUs of the process.
        progress: called after each piece with (bytes done, bytes in all, tensor).

    Returns one Written per output type, in order. Raises UsageError for a request that makes no sense,
    ModelError or ConvertError if a file is broken, not convertible or does not fit the other, and
    ResourceError if the disk is full. Nothing is left behind then, and existing files are kept.
    """
    outputs = find_output_types(outtypes)
    if threads is not None and threads < 1:
        text = f"threads is {threads}; expected at least 1"
        raise UsageError(text)
    drafter = _read_drafter(Path(source))
    with GgufFile(Path(target)) as target_file, ExitStack() as stack:
        shared = _shared_fields(drafter, target_file)
        chosen = model_name(drafter.checkpoint, name)
        folder = drafter.folder if outdir is None else Path(outdir)
        paths = output_paths(drafter.checkpoint, Path(target), chosen, folder, outputs, force=force)
        stack.callback(remove_empty, make_folder(folder))
        planned = [
            _plan(output, path, drafter) for output, path in zip(outputs, paths, strict=True)
        ]
        _require_space(folder, sum(tensor.length for item in planned for tensor in item.plan))
        writers = []
        for item in planned:
            general = describe_file(chosen, item.type.file_type, drafter.parameters)
            writer = GgufWriter(item.path, general | shared, item.plan, force=force)
            writers.append(stack.enter_context(writer))
        _stream(drafter.tensors, planned, writers, threads or _cpus(), progress)
        _commit(writers, keep=force)
        return [
            _report(item, writer, drafter) for item, writer in zip(planned, writers, strict=True)
        ]


def _read_drafter(source: Path) -> _Drafter:
    checkpoint = find_checkpoint(source)
    config = read_config(checkpoint.folder / "config.json")
    _refuse_mask_embedding(checkpoint.folder)
    return _Drafter(checkpoint, config, match_tensors(config, checkpoint))


def _shared_fields(drafter: _Drafter, target: GgufFile) -> dict[str, Field]:
    """The key/values that all outputs have, once it is sure that the drafter fits the target."""
    facts = read_target(target)
    check_fit(drafter.config, str(drafter.folder / "config.json"), facts)
    model = describe_model(drafter.config, facts)
    return model | copy_tokenizer(target, drafter.config.mask_token_id)


def _plan(output: OutputType, path: Path, drafter: _Drafter) -> _Output:
    types = choose_types(output, drafter.config, drafter.tensors)
    pairs = zip(drafter.tensors, types, strict=True)
    return _Output(output, path, [Plan(tensor.name, kind, tensor.shape) for tensor, kind in pairs])


def _stream(
    tensors: list[DraftTensor],
    outputs: list[_Output],
    writers: list[GgufWriter],
    threads: int,
    progress: Progress | None,
) -> None:
    total = sum(tensor.source.length for tensor in tensors)
    done = 0
    scratch = _Scratch()
    with Reader() as reader:
        for index, tensor in enumerate(tensors):
            rows = max(tensor.rows, 1)
            for count, piece in reader.pieces(tensor.source, rows, _PIECE):
                for output, writer in zip(outputs, writers, strict=True):
                    kind = output.plan[index].type
                    result = scratch.take(count * kind.row_bytes(tensor.columns))
                    _convert_piece(tensor, piece, kind, result, threads)
                    writer.write(result)
                done += len(piece)
                if progress is not None:
                    progress(done, total, tensor.name)


class _Scratch:
    """A buffer used again for every piece: fresh ones of this size would cost page faults."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def take(self, length: int) -> memoryview:
        """Return `length` bytes, which hold anything and are valid until the next call."""
        if len(self._buffer) < length:
            self._buffer = bytearray(length)
        return memoryview(self._buffer)[:length]


def _convert_piece(
    tensor: DraftTensor, piece: memoryview, kind: TensorType, result: memoryview, threads: int
) -> None:
    source = DTYPES[tensor.source.dtype]
    rows = len(piece) // source.row_bytes(tensor.columns)
    try:
        overflows = core().convert_rows(
            piece, source.number, result, kind.number, rows, tensor.columns, threads
        )
    except ValueError as error:
        _fail(tensor, f"{error}; expected finite weights: get the checkpoint again")
    if overflows and kind == F16:
        _fail(
            tensor,
            f"{overflows} values or more exceed f16's 65504; expected smaller: use --outtype bf16",
        )


def _commit(writers: list[GgufWriter], *, keep: bool) -> None:
    """Put all outputs in place, or none if one cannot be (`keep`: those that replaced another stay)."""
    for writer in writers:
        writer.sync()
    placed: list[Path] = []
    try:
        for writer in writers:
            writer.commit()
            placed.append(writer.path)
    except BaseException:
        for path in [] if keep else placed:
            path.unlink(missing_ok=True)
        raise


def _report(output: _Output, writer: GgufWriter, drafter: _Drafter) -> Written:
    own = [output.type.warning] if output.type.warning else []
    fallen = fallback_warnings(output.type, [plan.type for plan in output.plan], drafter.tensors)
    return Written(
        path=output.path,
        type=output.type.label,
        tensors=tuple(
            WrittenTensor(plan.name, plan.type.name, plan.shape, plan.length)
            for plan in output.plan
        ),
        bytes=writer.size,
        warnings=(*drafter.config.warnings, *own, *fallen),
    )


def _refuse_mask_embedding(folder: Path) -> None:
    path = folder / "mask_embedding.pt"
    if path.exists():
        refuse(
            f"{path}: a drafter with a learned mask embedding is not converted yet; expected none beside the "
            "checkpoint: use llama.cpp's convert_hf_to_gguf.py for it"
        )


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        text = f"{folder}: {needed} bytes are needed and {free} are free; free some or use --outdir"
        raise ResourceError(text)


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _fail(tensor: DraftTensor, fault: str) -> NoReturn:
    refuse(f"{tensor.source.path}: {tensor.source.name}: {fault}")
