"""GGUF metadata values as bytes, with the types llama.cpp insists on."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ..ggml_types import SCALAR_FORMATS, ValueType


@dataclass(frozen=True, slots=True)
class Field:
    """A metadata value ready to be written: its type and, without that tag, its bytes."""

    type: ValueType
    data: bytes


def u32(value: int) -> Field:
    """Encode an unsigned integer."""
    return Field(ValueType.UINT32, struct.pack("<I", value))


def f32(value: float) -> Field:
    """Encode a float."""
    return Field(ValueType.FLOAT32, struct.pack("<f", value))


def boolean(value: bool) -> Field:
    """Encode a boolean."""
    return Field(ValueType.BOOL, struct.pack("<?", value))


def string(value: str) -> Field:
    """Encode a string."""
    return Field(ValueType.STRING, encode_string(value))


def i32_array(values: Sequence[int]) -> Field:
    """Encode an array of integers."""
    return _array(ValueType.INT32, values)


def boolean_array(values: Sequence[bool]) -> Field:
    """Encode an array of booleans."""
    return _array(ValueType.BOOL, values)


def string_array(values: Sequence[str]) -> Field:
    """Encode an array of strings."""
    head = struct.pack("<IQ", ValueType.STRING, len(values))
    return Field(ValueType.ARRAY, head + b"".join(encode_string(value) for value in values))


def encode_string(value: str) -> bytes:
    """Return a string's length and bytes as GGUF stores them."""
    raw = value.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _array(kind: ValueType, values: Sequence[int]) -> Field:
    head = struct.pack("<IQ", kind, len(values))
    return Field(
        ValueType.ARRAY, head + struct.pack(f"<{len(values)}{SCALAR_FORMATS[kind]}", *values)
    )
