"""Output types: their names, llama.cpp's number for the file, and the type of each tensor in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from .._native import core
from ..errors import UsageError
from ..ggml_types import BF16, F16, F32, I64, TENSOR_TYPES, TensorType
from .config import Sizes
from .metadata import ARCHITECTURE
from .tensors import DraftTensor


@dataclass(frozen=True, slots=True)
class OutputType:
    """A type of file: `file_type` is llama.cpp's number; `plain` the type of its matrices, if it is one.

    `block` is how many values the blocks of its main quantised type have.
    """

    name: str
    file_type: int
    plain: TensorType | None = None
    warning: str = ""
    block: int = 256

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
        OutputType("q8_0", 7, block=32),
        OutputType("q6_k", 18),
        OutputType("q5_k_m", 17),
        OutputType("q5_k_s", 16),
        OutputType("q5_1", 9, block=32),
        OutputType("q5_0", 8, block=32),
        OutputType("q4_k_m", 15),
        OutputType("q4_k_s", 14),
        OutputType("q4_1", 3, block=32),
        OutputType("q4_0", 2, block=32),
        OutputType("q3_k_l", 13),
        OutputType("q3_k_m", 12),
        OutputType("q3_k_s", 11),
        OutputType("q2_k", 10),
    )
}

# llama-quantize's short names
_ALIASES = {"q5_k": "q5_k_m", "q4_k": "q4_k_m", "q3_k": "q3_k_m"}

# what llama-quantize gives the first eighth of the layers instead, if it has an imatrix
_WITH_IMPORTANCE = {"q4_0": "Q4_1", "q5_0": "Q5_1"}


def find_output_types(names: Sequence[str]) -> list[OutputType]:
    """Return the output types of these names, any case, each once. Raises UsageError for an unknown one."""
    found: dict[str, OutputType] = {}
    for name in names:
        key = name.strip().lower()
        key = _ALIASES.get(key, key)
        if key not in OUTPUT_TYPES:
            text = f"unknown output type '{name}'; expected one of {', '.join(OUTPUT_TYPES)}"
            raise UsageError(text)
        found[key] = OUTPUT_TYPES[key]
    if not found:
        text = f"no output type given; expected one of {', '.join(OUTPUT_TYPES)}"
        raise UsageError(text)
    return list(found.values())


def require_quantised(kinds: Sequence[OutputType], *, wishes: bool, weighed: bool) -> None:
    """Raise UsageError if types or an imatrix are given that no output would make use of."""
    given = "--tensor-type" if wishes else "--imatrix" if weighed else ""
    if given and all(kind.plain is not None for kind in kinds):
        labels = ", ".join(kind.label for kind in kinds)
        text = f"{given} is for quantised types, not {labels}; expected one such as q5_k_m"
        raise UsageError(text)


def choose_types(
    output: OutputType,
    sizes: Sizes,
    tensors: Sequence[DraftTensor],
    wishes: Mapping[str, TensorType],
    *,
    weighed: bool,
    everywhere: Collection[str] = (),
) -> list[TensorType | None]:
    """Return each tensor's type, in order; None for one that llama-quantize leaves as it is.

    Mixes are llama.cpp's own choice, but for those in `wishes` by tensor name, which hold in plain outputs
    for the tensors of `everywhere` only; `weighed` tells that there is an imatrix.
    """
    if output.plain is not None:
        held = {name: kind for name, kind in wishes.items() if name in everywhere}
        return [
            None if _is_left(tensor) else held.get(tensor.name, output.plain) for tensor in tensors
        ]
    if weighed:
        wishes = {**wishes, **_with_importance(output, sizes, tensors, wishes)}
    numbers = core().quantized_types(
        ARCHITECTURE,
        output.file_type,
        **asdict(sizes),
        tensors=[(tensor.name, list(tensor.shape)) for tensor in tensors],
        wishes={name: kind.number for name, kind in wishes.items()},
    )
    return [
        None if _is_left(tensor) else TENSOR_TYPES[number]
        for tensor, number in zip(tensors, numbers, strict=True)
    ]


def fallback_warnings(
    output: OutputType,
    types: Sequence[TensorType],
    tensors: Sequence[DraftTensor],
    wishes: Mapping[str, TensorType],
) -> list[str]:
    """Say which tensors got another type because their rows are not divisible by the type's block."""
    if output.plain is not None:
        return []
    odd = [
        (tensor, kind)
        for tensor, kind in zip(tensors, types, strict=True)
        if not _is_left(tensor)
        and kind != wishes.get(tensor.name)
        and tensor.columns % _block(output, wishes.get(tensor.name))
    ]
    if not odd:
        return []
    listed = ", ".join(f"{tensor.name} {kind.name}" for tensor, kind in odd)
    text = f"{output.label}: rows not divisible by their type's block, so llama.cpp's fall-back types: {listed}"
    return [text]


def _block(output: OutputType, wish: TensorType | None) -> int:
    return output.block if wish is None else wish.block


def _is_left(tensor: DraftTensor) -> bool:
    """Whether llama-quantize leaves a tensor as it is."""
    return tensor.stays_float or tensor.type == I64 or tensor.rows == 1


def _with_importance(
    output: OutputType,
    sizes: Sizes,
    tensors: Sequence[DraftTensor],
    wishes: Mapping[str, TensorType],
) -> dict[str, TensorType]:
    # llama_quant_compute_types, unlike llama-quantize, does not know of the imatrix
    wanted = _WITH_IMPORTANCE.get(output.name)
    kind = next((kind for kind in TENSOR_TYPES.values() if kind.name == wanted), None)
    # it counts those without a wish
    names = [tensor.name for tensor in tensors if tensor.name not in wishes]
    downs = [name for name in names if "ffn_down" in name]
    return dict.fromkeys(downs[: sizes.n_layer // 8], kind) if kind is not None else {}
