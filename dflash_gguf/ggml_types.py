"""ggml's tensor types and GGUF's value types, as numbers.

Kept here, not taken from the gguf package: importing that costs a third of a second, and it lags behind the
llama.cpp we pin. tests/test_gguf_file.py compares this table with it and with llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ValueType(IntEnum):
    """Type of a GGUF metadata value."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


# struct's letter of each fixed-size value type
SCALAR_FORMATS: dict[int, str] = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "?",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}


@dataclass(frozen=True, slots=True)
class TensorType:
    """A ggml type: `block` values of a row take `size` bytes."""

    number: int
    name: str
    block: int
    size: int

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row; `columns` must be divisible by the block."""
        return columns // self.block * self.size


_TABLE = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
)

TENSOR_TYPES: dict[int, TensorType] = {row[0]: TensorType(*row) for row in _TABLE}

F32 = TENSOR_TYPES[0]
F16 = TENSOR_TYPES[1]
I64 = TENSOR_TYPES[27]
BF16 = TENSOR_TYPES[30]
