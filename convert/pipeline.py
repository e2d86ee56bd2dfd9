"""The conversion of a checkpoint: read and check everything, then plan the outputs and write them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import UsageError
from ..ggml_types import BF16, F32, I64, TensorType
from ..gguf_file import GgufFile
from .borrowed import complete_tensors
from .card import describe_origin
from .config import DraftConfig, read_config
from .digests import Digests
from .fields import Field
from .folder_target import open_target
from .hub import fetch_drafter, fetch_target, is_repository
from .importance import Importance, read_importance
from .lookup import find_target
from .metadata import describe_file, describe_model, describe_type
from .names import check_free, model_name, output_paths
from .output import Output, Written, check_threads, write_outputs
from .source import Checkpoint, find_checkpoint
from .stream import Progress
from .target import check_fit, read_target
from .tensors import DraftTensor, match_tensors
from .types import OutputType, choose_types, fallback_warnings, find_output_types, require_quantised
from .vocabulary import copy_tokenizer
from .wishes import grant_wishes, parse_wishes


@dataclass(frozen=True, slots=True)
class _Drafter:
    """The checkpoint as found and checked, and what was said about it."""

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
    target: Path | str | None = None,
    *,
    outdir: Path | str | None = None,
    outfile: Path | str | None = None,
    outtypes: Sequence[str] = ("bf16", "q5_k_m"),
    tensor_types: Sequence[str] = (),
    imatrix: Path | str | None = None,
    name: str | None = None,
    force: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Written]:
    """Convert a DFlash drafter's checkpoint to GGUF files that llama.cpp reads.

    Args:
        source: a .safetensors file, an index of shards, or a folder with one of them; config.json beside it.
            PyTorch's .bin and .pt files too, if torch is installed; or a repository `owner/name`.
        target: GGUF of the model the drafter was trained for, or its Hugging Face folder or repository, of
            which the weights are not read; its tokenizer goes into the outputs. Default: the only GGUF beside the checkpoint, or else in the Hugging Face cache, that fits.
        outdir: folder of the outputs, made if needed; default: beside the source, of a repository here.
        outfile: path of the only output, instead of `outdir`.
        outtypes: names from `types.OUTPUT_TYPES`, any case; each gives a file `<name>-<TYPE>.gguf`.
        tensor_types: `NAME=TYPE` for tensors of quantised outputs, see wishes.py.
        imatrix: importance matrix for quantised outputs, of llama-imatrix.
        name: the outputs' `<name>`; default: after the file, or its folder where the file is `model`.
        force: overwrite outputs that exist.
        threads: threads for the quantisation; default: all CPUs of the process.
        progress: called after each piece with (bytes done, bytes in all, tensor).

    Returns one Written per output type, in order. Raises UsageError for a request that makes no sense,
    ModelError or ConvertError if a file is broken, not convertible or does not fit the other, and
    ResourceError if the disk is full. Nothing is left behind then, and existing files are kept.
    """
    if outfile is not None and outdir is not None:
        text = f"both outfile {outfile} and outdir {outdir} are given; expected one of them"
        raise UsageError(text)
    kinds = find_output_types(outtypes)
    wishes = parse_wishes(tensor_types)
    check_threads(threads)
    require_quantised(kinds, wishes=bool(wishes), weighed=imatrix is not None)
    source = Path(source)
    fetched = is_repository(source)
    drafter = _read_drafter(fetch_drafter(source) if fetched else source)
    if target is not None and is_repository(Path(target)):
        target = fetch_target(Path(target))
    if target is None:
        target = find_target(drafter.checkpoint, drafter.config)
        said = f"no target was given; {target} is the only one near that fits"
        drafter = replace(drafter, warnings=(*drafter.warnings, said))
    with open_target(Path(target)) as target_file, Digests(drafter.checkpoint.files) as digests:
        drafter, model = _fit(drafter, target_file)
        granted = grant_wishes(wishes, drafter.tensors)
        importance = read_importance(Path(imatrix), drafter.tensors) if imatrix else None
        chosen = model_name(drafter.checkpoint, name)
        beside = Path() if fetched else drafter.folder
        folder = beside if outdir is None else Path(outdir)
        paths = output_paths(chosen, folder, kinds, Path(outfile) if outfile is not None else None)
        read = [*drafter.checkpoint.files, drafter.folder / "config.json", Path(target)]
        check_free(paths, [*read, Path(imatrix)] if imatrix else read, force=force)
        shared = describe_file(chosen, drafter.parameters) | model | digests.placeholder
        outputs = [
            _plan(kind, path, drafter, shared, granted, importance)
            for kind, path in zip(kinds, paths, strict=True)
        ]
        return write_outputs(
            outputs,
            drafter.tensors,
            force=force,
            threads=threads,
            progress=progress,
            importance=importance,
            late_fields=digests.fields,
        )


def _read_drafter(source: Path) -> _Drafter:
    checkpoint = find_checkpoint(source)
    config = read_config(checkpoint.folder / "config.json")
    return _Drafter(checkpoint, config, match_tensors(config, checkpoint), config.warnings)


def _fit(drafter: _Drafter, target: GgufFile) -> tuple[_Drafter, dict[str, Field]]:
    """The drafter with what it takes from its target, and the key/values that all outputs have."""
    facts = read_target(target)
    check_fit(drafter.config, str(drafter.folder / "config.json"), facts)
    tensors, lossy = complete_tensors(drafter.tensors, drafter.config, drafter.folder, target)
    origin, unread = describe_origin(drafter.folder, target)
    model = describe_model(drafter.config, facts, {tensor.name for tensor in tensors})
    fields = origin | model | copy_tokenizer(target, drafter.config.mask_token_id)
    warnings = (*drafter.warnings, *lossy, *unread)
    return replace(drafter, tensors=tensors, warnings=warnings), fields


def _plan(
    kind: OutputType,
    path: Path,
    drafter: _Drafter,
    shared: dict[str, Field],
    wishes: dict[str, TensorType],
    importance: Importance | None,
) -> Output:
    tensors = drafter.tensors
    weighed = importance is not None and kind.plain is None
    chosen = choose_types(kind, drafter.config.sizes, tensors, wishes, weighed=weighed)
    types = [
        _left(kind, tensor, drafter) if found is None else found
        for tensor, found in zip(tensors, chosen, strict=True)
    ]
    fields = shared | describe_type(kind.file_type)
    if importance is not None and weighed:
        fields |= importance.fields()
    own = [kind.warning] if kind.warning else []
    fallen = fallback_warnings(kind, types, tensors, wishes)
    return Output(path, kind.label, fields, types, (*drafter.warnings, *own, *fallen))


def _left(kind: OutputType, tensor: DraftTensor, drafter: _Drafter) -> TensorType:
    """The type of a tensor that quantising leaves as it is in the bf16 or f32 file."""
    if tensor.stays_float or tensor.type == I64:
        return I64 if tensor.type == I64 else F32
    if kind.plain is not None:
        return kind.plain
    kinds = {other.type for other in drafter.tensors if not other.stays_float}
    return BF16 if kinds <= {BF16} else F32
