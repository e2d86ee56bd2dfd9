"""A validating reader of GGUF files.

The header is walked once and every bound is checked before it is used; values are decoded only when asked
for, so a file with a quarter of a million tokens opens in well under 0.3 s. Each value's raw bytes stay
within reach (`raw`), which lets the converter carry a tokenizer over untouched and the loader compare two
of them without decoding either.
"""

from __future__ import annotations

import mmap
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn, Self, TypeAlias

from .ggml_types import SCALAR_FORMATS, ValueType
from .gguf_scan import Field, Scanner, TensorInfo, fail

Scalar: TypeAlias = int | float | bool | str
Value: TypeAlias = Scalar | list[Scalar]


class GgufFile:
    """An open GGUF file, versions 2 and 3, little-endian. Use as a context manager or `close` it.

    `fields` and `tensors` map names to Field and TensorInfo in file order. Raises ModelError, in one line
    with the file's name, for anything that is not a whole, consistent GGUF.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._map = _map_file(self.path)
        try:
            scan = Scanner(self.path, self._map)
            self.version = scan.version
            self.fields: Mapping[str, Field] = MappingProxyType(scan.fields)
            self.alignment = scan.alignment
            self.data_offset = scan.data_offset
            self.tensors: Mapping[str, TensorInfo] = MappingProxyType(scan.tensors)
        except BaseException:
            self._map.close()
            raise

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self._map)

    @property
    def architecture(self) -> str:
        """The value of general.architecture."""
        if "general.architecture" not in self.fields:
            self._fail(
                "the key general.architecture is missing",
                "expected a model; of a file split in parts, give the first",
            )
        return self.string("general.architecture")

    def integer(self, key: str, default: int | None = None) -> int:
        """Return an integer value; `default` if the key is absent, else ModelError."""
        value = self._typed(key, default, int)
        return value if isinstance(value, int) else 0

    def number(self, key: str, default: float | None = None) -> float:
        """Return an integer or float value as a float."""
        value = self._typed(key, default, (int, float))
        return float(value) if isinstance(value, int | float) else 0.0

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """Return a boolean value."""
        return bool(self._typed(key, default, bool))

    def string(self, key: str, default: str | None = None) -> str:
        """Return a string value; bytes that are not UTF-8 come as surrogates."""
        return str(self._typed(key, default, str))

    def array(self, key: str, default: list[Scalar] | None = None) -> list[Scalar]:
        """Return an array's elements; `default` if the key is absent, else ModelError."""
        if key not in self.fields and default is not None:
            return default
        value = self.value(key)
        if not isinstance(value, list):
            self._fail(f"the key {key} is {self.fields[key].type.name}", "expected an array")
        return value

    def value(self, key: str) -> Value:
        """Decode and return any value. Raises ModelError if the key is absent."""
        field = self._field(key)
        if field.element is None:
            return self._scalar(field.type, field.offset)
        if field.element == ValueType.STRING:
            return self._strings(field)
        # 12: the element type and the count stand before the elements
        code = f"<{field.count}{SCALAR_FORMATS[field.element]}"
        return list(struct.unpack_from(code, self._map, field.offset + 12))

    def count(self, key: str) -> int:
        """Return an array's length without decoding it. Raises ModelError if it is absent or no array."""
        field = self._field(key)
        if field.element is None:
            self._fail(f"the key {key} is {field.type.name}", "expected an array")
        return field.count

    def raw(self, key: str) -> bytes:
        """Copy out a value's bytes as they stand in the file, without the type tag before them."""
        field = self._field(key)
        return self._map[field.offset : field.offset + field.length]

    def data(self, name: str) -> bytes:
        """Copy out a tensor's bytes. Raises ModelError if there is no such tensor."""
        if name not in self.tensors:
            self._fail(f"there is no tensor {name}", "expected one; convert the model again")
        info = self.tensors[name]
        return self._map[info.offset : info.offset + info.length]

    def close(self) -> None:
        """Unmap the file; harmless if called twice."""
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _field(self, key: str) -> Field:
        if key not in self.fields:
            self._fail(f"the key {key} is missing", "expected a complete model; convert it again")
        return self.fields[key]

    def _typed(
        self, key: str, default: Scalar | None, kinds: type | tuple[type, ...]
    ) -> Value | None:
        if key not in self.fields and default is not None:
            return default
        value = self.value(key)
        wanted_bool = kinds is bool
        if not isinstance(value, kinds) or isinstance(value, bool) != wanted_bool:
            found = self.fields[key].type.name
            names = kinds.__name__ if isinstance(kinds, type) else "number"
            self._fail(f"the key {key} is {found}", f"expected {names}; convert the model again")
        return value

    def _scalar(self, kind: ValueType, offset: int) -> Scalar:
        if kind == ValueType.STRING:
            (length,) = struct.unpack_from("<Q", self._map, offset)
            return self._map[offset + 8 : offset + 8 + length].decode("utf-8", "surrogateescape")
        (value,) = struct.unpack_from(f"<{SCALAR_FORMATS[kind]}", self._map, offset)
        return value  # type: ignore[no-any-return]

    def _strings(self, field: Field) -> list[Scalar]:
        position = field.offset + 12
        unpack = struct.Struct("<Q").unpack_from
        values: list[Scalar] = []
        for _ in range(field.count):
            (length,) = unpack(self._map, position)
            position += 8 + length
            text = self._map[position - length : position]
            values.append(text.decode("utf-8", "surrogateescape"))
        return values

    def _fail(self, fault: str, remedy: str) -> NoReturn:
        fail(self.path, fault, remedy)


def _map_file(path: Path) -> mmap.mmap:
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            # opening a pipe would block, and a device may have no end
            fail(path, "it is not a regular file", "expected a GGUF model file")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:  # of mmap, or for a name that no file can have
        fault = "its name holds a NUL" if "\0" in str(path) else "it is empty"
        fail(path, fault, "expected a GGUF model file")
    except IsADirectoryError:
        fail(path, "it is a folder", "expected a GGUF model file; give the file in it")
    except OSError as error:
        fail(path, f"it cannot be read ({error.strerror})", "expected a GGUF model file")
