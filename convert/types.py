"""Output types: their names, llama.cpp's number for the file, and the type of each tensor in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .._native import core
from ..errors import UsageError
from ..ggml_types import BF16, F16, F32, I64, TENSOR_TYPES, TensorType
from .config import DraftConfig
from .metadata import ARCHITECTURE
from .tensors import DraftTensor


@dataclass(frozen=True, slots=True)
class OutputType:
    """A type of file: `file_type` is llama.cpp's number; `plain` the type of its matrices, if it is one."""

    name: str
    file_type: int
    plain: TensorType | None = None
    warning: str = ""

    @property
    def label(self) -> str:
        """The name in upper case, as in file names."""
        return self.name.upper()


_F16_WARNING = (
    "f16 holds no value above 65504, which drafters can exceed while they run and then draft nonsense; "
    "prefer bf16"
)

OUTPUT_TYPES: dict[str, OutputType] = {
    kind.name: kind
    for kind in (
        OutputType("f32", 0, F32),
        OutputType("bf16", 32, BF16),
        OutputType("f16", 1, F16, _F16_WARNING),
        OutputType("q8_0", 7),
        OutputType("q6_k", 18),
        OutputType("q5_k_m", 17),
        OutputType("q5_k_s", 16),
        OutputType("q4_k_m", 15),
        OutputType("q4_k_s", 14),
        OutputType("q4_0", 2),
    )
}


def find_output_types(names: Sequence[str]) -> list[OutputType]:
    """Return the output types of these names, any case, each once. Raises UsageError for an unknown one."""
    found: dict[str, OutputType] = {}
    for name in names:
        key = name.strip().lower()
        if key not in OUTPUT_TYPES:
            text = f"unknown output type '{name}'; expected one of {', '.join(OUTPUT_TYPES)}"
            raise UsageError(text)
        found[key] = OUTPUT_TYPES[key]
    if not found:
        text = f"no output type given; expected one of {', '.join(OUTPUT_TYPES)}"
        raise UsageError(text)
    return list(found.values())


def choose_types(
    output: OutputType, config: DraftConfig, tensors: Sequence[DraftTensor]
) -> list[TensorType]:
    """Return each tensor's type, in order. Mixes are llama.cpp's own choice."""
    if output.plain is not None:
        return [_fixed(tensor) or output.plain for tensor in tensors]
    numbers = core().quantized_types(
        ARCHITECTURE,
        output.file_type,
        n_embd=config.hidden_size,
        n_ff=config.intermediate_size,
        n_layer=config.n_layers,
        n_head=config.n_heads,
        n_head_kv=config.n_kv_heads,
        head_dim=config.head_dim,
        tensors=[(tensor.name, list(tensor.shape)) for tensor in tensors],
    )
    # what llama-quantize does not touch keeps the type it has in the bf16 or f32 file
    untouched = BF16 if all(_fixed(tensor) or tensor.type == BF16 for tensor in tensors) else F32
    chosen = [TENSOR_TYPES[number] for number in numbers]
    return [
        _fixed(tensor) or (untouched if kind == F32 else kind)
        for tensor, kind in zip(tensors, chosen, strict=True)
    ]


def _fixed(tensor: DraftTensor) -> TensorType | None:
    """The type a tensor has in every file, if there is one."""
    if tensor.type == I64:
        return I64
    return F32 if tensor.stays_float else None


def fallback_warnings(
    output: OutputType, types: Sequence[TensorType], tensors: Sequence[DraftTensor]
) -> list[str]:
    """Say which tensors got another type because their rows are not divisible by a K-quant's 256."""
    if output.plain is not None:
        return []
    block = 32 if output.name in {"q8_0", "q4_0"} else 256
    odd = [
        (tensor, kind)
        for tensor, kind in zip(tensors, types, strict=True)
        if kind not in (F32, BF16, I64) and tensor.columns % block
    ]
    if not odd:
        return []
    listed = ", ".join(f"{tensor.name} {kind.name}" for tensor, kind in odd)
    return [
        f"{output.label}: rows not divisible by {block}, so llama.cpp's fall-back types: {listed}"
    ]
