"""A drafter's GGUF to one of another type, as llama-quantize makes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ..ggml_types import TensorType
from ..gguf_file import GgufFile
from .config import Sizes
from .faults import refuse
from .fields import Field
from .importance import Importance, read_importance
from .metadata import ARCHITECTURE, describe_type
from .names import check_free
from .output import Output, Written, check_threads, write_outputs
from .reader import SourceTensor
from .stream import Progress
from .tensors import DraftTensor, llama_order
from .types import OutputType, choose_types, fallback_warnings, find_output_types, require_quantised
from .wishes import grant_wishes, parse_wishes

# of a file in parts, and of one whose padding is not the usual
_LEFT_OUT = ("split.", "general.alignment")


def quantize(
    source: Path | str,
    output: Path | str,
    type: str,
    *,
    tensor_types: Sequence[str] = (),
    imatrix: Path | str | None = None,
    allow_requantize: bool = False,
    force: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Written:
    """Write a drafter's GGUF in another type, with llama-quantize's types and bytes.

    Args:
        source: a DFlash drafter's GGUF, best in bf16 or f32.
        output: the file to write.
        type: a name from `types.OUTPUT_TYPES`, any case.
        tensor_types: `NAME=TYPE` for single tensors, see wishes.py.
        imatrix: importance matrix, of llama-imatrix.
        allow_requantize: convert tensors that are quantised already, which costs more than once.
        force: overwrite an output that exists.
        threads: threads for the quantisation; default: all CPUs of the process.
        progress: called after each piece with (bytes done, bytes in all, tensor).

    Raises UsageError for a request that makes no sense, ModelError or ConvertError for a file that is
    broken or no drafter, ResourceError if the disk is full; nothing is left behind then.
    """
    (kind,) = find_output_types([type])
    wishes = parse_wishes(tensor_types)
    check_threads(threads)
    require_quantised([kind], wishes=bool(wishes), weighed=imatrix is not None)
    with GgufFile(Path(source)) as file:
        tensors = _read_tensors(file)
        sizes = _read_sizes(file)
        granted = grant_wishes(wishes, tensors)
        importance = read_importance(Path(imatrix), tensors) if imatrix else None
        check_free(
            [Path(output)], [Path(source), *([Path(imatrix)] if imatrix else [])], force=force
        )
        chosen = choose_types(kind, sizes, tensors, granted, weighed=importance is not None)
        types = [
            tensor.type if found is None else found
            for tensor, found in zip(tensors, chosen, strict=True)
        ]
        if not allow_requantize:
            _refuse_twice(file, tensors, types)
        fallen = fallback_warnings(kind, types, tensors, granted)
        own = [kind.warning] if kind.warning else []
        plan = Output(
            Path(output), kind.label, _fields(file, kind, importance), types, [*own, *fallen]
        )
        (written,) = write_outputs(
            [plan],
            tensors,
            force=force,
            threads=threads,
            progress=progress,
            importance=importance,
        )
        return written


def _read_tensors(file: GgufFile) -> list[DraftTensor]:
    if file.architecture != ARCHITECTURE:
        _fail(file, f"architecture '{file.architecture}'", "expected a DFlash drafter's GGUF")
    tensors = []
    for info in file.tensors.values():
        if len(info.shape) > 2 and info.name.endswith(".weight"):
            _fail(
                file,
                f"the tensor {info.name} has {len(info.shape)} dimensions",
                "expected a matrix",
            )
        source = SourceTensor(
            info.name, file.path, info.type.name, info.shape[::-1], info.offset, info.length
        )
        tensors.append(DraftTensor(info.name, source, info.type, info.shape))
    if not tensors:
        _fail(file, "it holds no tensors", "expected a whole drafter")
    return sorted(tensors, key=lambda tensor: llama_order(tensor.name))


def _read_sizes(file: GgufFile) -> Sizes:
    def size(key: str) -> int:
        value = file.integer(f"{ARCHITECTURE}.{key}")
        if not 0 < value < 1 << 31:
            refuse(
                f"{file.path}: the key {ARCHITECTURE}.{key} is {value}; expected a number from 1 to 2^31 - 1: "
                "convert the drafter again"
            )
        return value

    heads = size("attention.head_count")
    return Sizes(
        n_embd=size("embedding_length"),
        n_ff=size("feed_forward_length"),
        n_layer=min(size("block_count"), 512),
        n_head=heads,
        n_head_kv=size("attention.head_count_kv"),
        head_dim=size("attention.key_length"),
    )


def _refuse_twice(
    file: GgufFile, tensors: Sequence[DraftTensor], types: Sequence[TensorType]
) -> None:
    twice = [
        tensor
        for tensor, kind in zip(tensors, types, strict=True)
        if tensor.type.block > 1 and tensor.type != kind
    ]
    if twice:
        refuse(
            f"{file.path}: {len(twice)} tensors such as {twice[0].name} are quantised already "
            f"({twice[0].type.name}), and would lose more; expected a bf16 or f32 file; use "
            "--allow-requantize to do it all the same"
        )


def _fields(file: GgufFile, kind: OutputType, importance: Importance | None) -> dict[str, Field]:
    carried = {
        key: Field(field.type, file.raw(key))
        for key, field in file.fields.items()
        if not key.startswith(_LEFT_OUT)
    }
    weighed = importance.fields() if importance is not None else {}
    return carried | describe_type(kind.file_type) | weighed


def _fail(file: GgufFile, found: str, expected: str) -> NoReturn:
    refuse(f"{file.path}: {found}; {expected}; use llama.cpp's llama-quantize for other models")
