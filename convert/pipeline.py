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
from .metadata import describe_file, describe_model
from .names import make_folder, model_name, output_paths, remove_empty
from .source import DTYPES, Reader, find_checkpoint
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
    """An output on its way."""

    type: OutputType
    types: list[TensorType]
    plan: list[Plan]
    writer: GgufWriter


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
    checkpoint = find_checkpoint(Path(source))
    config_path = checkpoint.folder / "config.json"
    config = read_config(config_path)
    _refuse_mask_embedding(checkpoint.folder)
    tensors = match_tensors(config, checkpoint)
    with GgufFile(Path(target)) as target_file, ExitStack() as stack:
        facts = read_target(target_file)
        check_fit(config, str(config_path), facts)
        chosen = model_name(checkpoint, name)
        folder = None if outdir is None else Path(outdir)
        paths = output_paths(checkpoint, Path(target), chosen, folder, outputs, force=force)
        shared = {
            **describe_model(config, facts),
            **copy_tokenizer(target_file, config.mask_token_id),
        }
        stack.callback(remove_empty, make_folder(paths[0].parent))
        mixes = [choose_types(output, config, tensors) for output in outputs]
        plans = [
            [Plan(t.name, kind, t.shape) for t, kind in zip(tensors, mix, strict=True)]
            for mix in mixes
        ]
        _require_space(paths[0].parent, sum(tensor.length for plan in plans for tensor in plan))
        opened = []
        for output, path, mix, plan in zip(outputs, paths, mixes, plans, strict=True):
            fields = describe_file(chosen, output.file_type, _parameters(tensors)) | shared
            writer = stack.enter_context(GgufWriter(path, fields, plan, force=force))
            opened.append(_Output(output, mix, plan, writer))
        _stream(tensors, opened, threads or _cpus(), progress)
        _commit([output.writer for output in opened], keep=force)
        return [_report(output, config, tensors) for output in opened]


def _stream(
    tensors: list[DraftTensor], outputs: list[_Output], threads: int, progress: Progress | None
) -> None:
    total = sum(tensor.source.length for tensor in tensors)
    done = 0
    with Reader() as reader:
        for index, tensor in enumerate(tensors):
            rows = max(tensor.rows, 1)
            for count, piece in reader.pieces(tensor.source, rows, _PIECE):
                for output in outputs:
                    kind = output.types[index]
                    output.writer.write(_converted(tensor, kind, piece, count, threads))
                done += len(piece)
                if progress is not None:
                    progress(done, total, tensor.name)


def _converted(
    tensor: DraftTensor, kind: TensorType, piece: memoryview, rows: int, threads: int
) -> memoryview:
    source = DTYPES[tensor.source.dtype]
    result = memoryview(bytearray(rows * kind.row_bytes(tensor.columns)))
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
    return result


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


def _report(output: _Output, config: DraftConfig, tensors: list[DraftTensor]) -> Written:
    own = [output.type.warning] if output.type.warning else []
    return Written(
        path=output.writer.path,
        type=output.type.label,
        tensors=tuple(
            WrittenTensor(plan.name, plan.type.name, plan.shape, plan.length)
            for plan in output.plan
        ),
        bytes=output.writer.size,
        warnings=(
            *config.warnings,
            *own,
            *fallback_warnings(output.type, output.types, tensors),
        ),
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


def _parameters(tensors: list[DraftTensor]) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensors)


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _fail(tensor: DraftTensor, fault: str) -> NoReturn:
    refuse(f"{tensor.source.path}: {tensor.source.name}: {fault}")
