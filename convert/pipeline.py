"""The conversion itself: read and check everything, plan the outputs, stream, put them in place."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import ResourceError, UsageError
from ..gguf_file import GgufFile
from .borrowed import complete_tensors
from .config import DraftConfig, read_config
from .fields import Field
from .metadata import describe_file, describe_model
from .names import make_folder, model_name, output_paths, remove_empty
from .source import Checkpoint, find_checkpoint
from .stream import Progress, stream
from .target import check_fit, read_target
from .tensors import DraftTensor, match_tensors
from .types import OutputType, choose_types, fallback_warnings, find_output_types
from .vocabulary import copy_tokenizer
from .writer import GgufWriter, Plan


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
    warnings: tuple[str, ...] = ()

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
        drafter, shared = _fit(drafter, target_file)
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
        types = [[plan.type for plan in item.plan] for item in planned]
        stream(drafter.tensors, types, writers, threads or _cpus(), progress)
        _commit(writers, keep=force)
        return [
            _report(item, writer, drafter) for item, writer in zip(planned, writers, strict=True)
        ]


def _read_drafter(source: Path) -> _Drafter:
    checkpoint = find_checkpoint(source)
    config = read_config(checkpoint.folder / "config.json")
    return _Drafter(checkpoint, config, match_tensors(config, checkpoint))


def _fit(drafter: _Drafter, target: GgufFile) -> tuple[_Drafter, dict[str, Field]]:
    """The drafter with what it takes from its target, and the key/values that all outputs have."""
    facts = read_target(target)
    check_fit(drafter.config, str(drafter.folder / "config.json"), facts)
    tensors, warnings = complete_tensors(drafter.tensors, drafter.config, drafter.folder, target)
    model = describe_model(drafter.config, facts, {tensor.name for tensor in tensors})
    fields = model | copy_tokenizer(target, drafter.config.mask_token_id)
    return replace(drafter, tensors=tensors, warnings=tuple(warnings)), fields


def _plan(output: OutputType, path: Path, drafter: _Drafter) -> _Output:
    types = choose_types(output, drafter.config, drafter.tensors)
    pairs = zip(drafter.tensors, types, strict=True)
    return _Output(output, path, [Plan(tensor.name, kind, tensor.shape) for tensor, kind in pairs])


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
        warnings=(*drafter.config.warnings, *drafter.warnings, *own, *fallen),
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
