"""One walk over a GGUF header: where its values and tensors lie, every bound checked before it is used."""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from .errors import ModelError
from .faults import one_line
from .ggml_types import SCALAR_FORMATS, TENSOR_TYPES, TensorType, ValueType

_MAX_KEY = 65535
_MAX_NAME = 63  # llama.cpp keeps names in 64 bytes
_MAX_DIMS = 4
_MAX_PADDING = 4096  # of it are looked at
_MIN_KV = 8 + 1 + 4 + 1  # key length, key, type, value
_MIN_TENSOR = 8 + 1 + 4 + 8 + 4 + 8
_AGAIN = "get the file again, it may be cut off or damaged"


@dataclass(frozen=True, slots=True)
class Field:
    """A metadata value that is not decoded yet.

    `offset` and `length` span its bytes without the type tag; an array's span begins at its elements' type.
    """

    type: ValueType
    offset: int
    length: int
    element: ValueType | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor's place in the file; `shape` as ggml orders it (row length first), `offset` absolute."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int
    length: int


class Scanner:
    """Walks a header; afterwards its attributes hold what was found. Raises ModelError for any fault."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.position = 0
        self.version, tensor_count, field_count = self._header()
        self.fields: dict[str, Field] = {}
        for _ in range(field_count):
            self._read_field()
        self.alignment = self._alignment()
        self.tensors: dict[str, TensorInfo] = {}
        for _ in range(tensor_count):
            self._read_tensor()
        self.data_offset = -(-self.position // self.alignment) * self.alignment
        # where there should be padding, the header may go on: a count that is too small would shift all data
        if any(self.data[self.position : min(self.data_offset, self.position + _MAX_PADDING)]):
            self._fail(
                f"the bytes between its header and its data, from {self.position}, are not empty"
            )
        self._place_tensors()

    def _fail(self, fault: str, remedy: str = _AGAIN) -> NoReturn:
        fail(self.path, fault, remedy)

    def _take(self, code: str, what: str) -> int:
        length = struct.calcsize(code)
        if self.position + length > self.size:
            self._fail(f"it ends within {what}, at byte {self.size}")
        (value,) = struct.unpack_from(code, self.data, self.position)
        self.position += length
        return int(value)

    def _text(self, limit: int, what: str) -> str:
        length = self._take("<Q", f"the length of {what}")
        if not 0 < length <= limit:
            self._fail(f"{what} has {length} bytes, expected 1 to {limit}")
        if length > self.size - self.position:
            self._fail(f"it ends within {what}, at byte {self.size}")
        raw = self.data[self.position : self.position + length]
        self.position += length
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            self._fail(f"{what} is not text: {raw[:40]!r}")

    def _header(self) -> tuple[int, int, int]:
        magic = self.data[:4]
        if magic != b"GGUF":
            self._fail(f"it begins with {magic!r}", "expected b'GGUF'; give a GGUF model file")
        self.position = 4
        version = self._take("<I", "the version")
        if version & 0xFFFF == 0:
            self._fail("it is big-endian", "expected little-endian; convert it on this machine")
        if version not in {2, 3}:
            self._fail(f"it has GGUF version {version}", "expected 2 or 3; convert the model again")
        tensors = self._take("<Q", "the tensor count")
        fields = self._take("<Q", "the key count")
        room = self.size - self.position
        if tensors * _MIN_TENSOR + fields * _MIN_KV > room:
            self._fail(
                f"{tensors} tensors and {fields} keys cannot fit in the {room} bytes that follow"
            )
        return version, tensors, fields

    def _read_field(self) -> None:
        key = self._text(_MAX_KEY, f"key {len(self.fields)}")
        if key in self.fields:
            self._fail(f"the key {key} stands twice", "expected it once; convert the model again")
        kind = self._kind(key)
        start = self.position
        element, count = None, 1
        if kind == ValueType.ARRAY:
            element = self._kind(key)
            count = self._take("<Q", f"the length of {key}")
            if element == ValueType.ARRAY:
                self._fail(f"the key {key} is an array of arrays", "expected plain values")
            self._skip(key, element, count)
        else:
            self._skip(key, kind, 1)
        self.fields[key] = Field(kind, start, self.position - start, element, count)

    def _kind(self, key: str) -> ValueType:
        number = self._take("<I", f"the type of {key}")
        try:
            return ValueType(number)
        except ValueError:
            self._fail(f"the key {key} has the unknown type {number}")

    def _skip(self, key: str, kind: ValueType, count: int) -> None:
        room = self.size - self.position
        least = 8 if kind == ValueType.STRING else struct.calcsize(f"<{SCALAR_FORMATS[kind]}")
        if count > room // least:
            self._fail(
                f"{count} values of the key {key} cannot fit in the {room} bytes that follow"
            )
        if kind != ValueType.STRING:
            self.position += count * least
            return
        position, data, size = self.position, self.data, self.size
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(count):  # hot: half a million strings in a real model
            if position + 8 > size:
                break
            position += 8 + unpack(data, position)[0]
        if position > size or size - position < 0:
            self._fail(f"it ends within the key {key}, at byte {size}")
        self.position = position

    def _alignment(self) -> int:
        field = self.fields.get("general.alignment")
        if field is None:
            return 32
        if field.type != ValueType.UINT32:
            self._fail(
                f"general.alignment is {field.type.name}", "expected UINT32; convert it again"
            )
        (value,) = struct.unpack_from("<I", self.data, field.offset)
        if value == 0 or value & (value - 1):
            self._fail(f"general.alignment is {value}", "expected a power of two; convert it again")
        return int(value)

    def _read_tensor(self) -> None:
        name = self._text(_MAX_NAME, f"the name of tensor {len(self.tensors)}")
        if name in self.tensors:
            self._fail(
                f"the tensor {name} stands twice", "expected it once; convert the model again"
            )
        dims = self._take("<I", f"the shape of {name}")
        if not 1 <= dims <= _MAX_DIMS:
            self._fail(f"the tensor {name} has {dims} dimensions, expected 1 to {_MAX_DIMS}")
        shape = tuple(self._take("<Q", f"the shape of {name}") for _ in range(dims))
        number = self._take("<I", f"the type of {name}")
        kind = TENSOR_TYPES.get(number)
        if kind is None:
            self._fail(f"the tensor {name} has the unknown type {number}")
        if min(shape) == 0 or math.prod(shape) >= 2**62:
            self._fail(f"the tensor {name} has the shape {shape}")
        if shape[0] % kind.block:
            self._fail(
                f"rows of {name} have {shape[0]} values, expected a multiple of {kind.block}"
            )
        offset = self._take("<Q", f"the offset of {name}")
        length = kind.row_bytes(shape[0]) * math.prod(shape[1:])
        self.tensors[name] = TensorInfo(name, kind, shape, offset, length)

    def _place_tensors(self) -> None:
        """Turn offsets absolute; check that tensors are aligned, in the file and apart."""
        end, before = 0, ""
        for info in sorted(self.tensors.values(), key=lambda info: info.offset):
            if info.offset % self.alignment:
                self._fail(
                    f"the tensor {info.name} is at {info.offset}, not a multiple of {self.alignment}"
                )
            if info.offset < end:
                self._fail(f"the tensors {before} and {info.name} overlap")
            end, before = info.offset + info.length, info.name
            if self.data_offset + end > self.size:
                short = self.data_offset + end - self.size
                self._fail(f"the tensor {info.name} ends {short} bytes behind the end of the file")
        self.tensors = {
            info.name: TensorInfo(
                info.name, info.type, info.shape, info.offset + self.data_offset, info.length
            )
            for info in self.tensors.values()
        }


def fail(path: Path, fault: str, remedy: str) -> NoReturn:
    """Raise the one-line ModelError for a fault of a file."""
    raise ModelError(one_line(f"{path}: {fault}; {remedy}"))
