"""Write a file beside its final name, then put it in place in one step.

A GGUF's header is laid out before the first byte of data, so tensors can be streamed. Whatever goes wrong, an
interrupt included, nothing stays behind: leave the `with` block without `commit` and the file is gone.
"""

from __future__ import annotations

import errno
import math
import os
import secrets
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

from ..errors import ResourceError
from ..faults import one_line
from ..ggml_types import TensorType
from .faults import refuse
from .fields import Field, encode_string

_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class Plan:
    """A tensor to be written: `shape` as ggml orders it, row length first."""

    name: str
    type: TensorType
    shape: tuple[int, ...]

    @property
    def length(self) -> int:
        """Its bytes, without padding."""
        return self.type.row_bytes(self.shape[0]) * math.prod(self.shape[1:])


class NewFile:
    """A file under a temporary name beside its own, until `commit`."""

    def __init__(self, path: Path, *, force: bool) -> None:
        """Create the temporary file. Raises ConvertError or ResourceError."""
        if path.exists() and not path.is_file():  # a device, say, which renaming would put away
            refuse(f"{path}: it is no regular file; give another place")
        self.path = path
        self._force = force
        self.temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        self._handle = _create(self.temporary)

    def append(self, data: memoryview | bytes) -> None:
        """Append bytes. Raises ConvertError or ResourceError."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._handle, view) :]
        except OSError as error:
            _fail(self.path, error)

    def sync(self) -> None:
        """Bring everything to the disk. Raises ConvertError or ResourceError."""
        try:
            os.fsync(self._handle)
        except OSError as error:
            _fail(self.path, error)

    def commit(self) -> None:
        """Give the file its final name. Raises ConvertError if one exists there now and is to be kept."""
        self.sync()
        try:
            if self._force:
                self.temporary.replace(self.path)
            else:
                _rename_new(self.temporary, self.path)
            _sync_folder(self.path.parent)
        except FileExistsError:
            refuse_existing(self.path)
        except OSError as error:
            _fail(self.path, error)

    def close(self) -> None:
        """Close the file and remove it if it was not committed; harmless if called twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        self.temporary.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class GgufWriter(NewFile):
    """Streams one GGUF file. Tensors must come in the planned order, each with its planned bytes."""

    def __init__(
        self, path: Path, fields: Mapping[str, Field], plan: Sequence[Plan], *, force: bool
    ) -> None:
        """Create the temporary file and write the header. Raises ConvertError or ResourceError."""
        self._plan = list(plan)
        self._next = 0
        self._left = 0
        self._fields = dict(fields)
        header = _header(self._fields, self._plan)
        self.size = len(header) + sum(_padded(tensor.length) for tensor in self._plan)
        super().__init__(path, force=force)
        try:
            self.append(header)
        except BaseException:
            self.close()
            raise

    def write(self, data: memoryview | bytes) -> None:
        """Append bytes of the current tensor; its last ones are followed by padding."""
        if self._left == 0:
            self._left = self._plan[self._next].length
        if len(data) > self._left:
            text = f"{self._plan[self._next].name} is {len(data) - self._left} bytes too long"
            raise ValueError(text)
        self.append(data)
        self._left -= len(data)
        if self._left == 0:
            length = self._plan[self._next].length
            self.append(bytes(_padded(length) - length))
            self._next += 1

    def replace(self, fields: Mapping[str, Field]) -> None:
        """Give keys other values of the same type and length. Raises ValueError for any other."""
        for key, field in fields.items():
            old = self._fields[key]
            if (old.type, len(old.data)) != (field.type, len(field.data)):
                text = f"{key}: another type or length"
                raise ValueError(text)
        self._fields |= fields
        try:
            os.pwrite(self._handle, _header(self._fields, self._plan), 0)
        except OSError as error:
            _fail(self.path, error)

    def sync(self) -> None:
        """Bring everything to the disk. Raises ValueError if tensors are still to come."""
        if self._next < len(self._plan) or self._left:
            text = f"{self.path}: {len(self._plan) - self._next} tensors have not been written"
            raise ValueError(text)
        super().sync()


def refuse_existing(path: Path) -> NoReturn:
    """Raise the error for an output that is there already."""
    refuse(
        f"{path}: it exists already and is kept; use --force to overwrite it or --outdir for another folder"
    )


def _header(fields: Mapping[str, Field], plan: Sequence[Plan]) -> bytes:
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(plan), len(fields))]
    for key, field in fields.items():
        parts += [encode_string(key), struct.pack("<I", field.type), field.data]
    offset = 0
    for tensor in plan:
        dims = len(tensor.shape)
        place = struct.pack(f"<I{dims}QIQ", dims, *tensor.shape, tensor.type.number, offset)
        parts += [encode_string(tensor.name), place]
        offset += _padded(tensor.length)
    header = b"".join(parts)
    return header + bytes(_padded(len(header)) - len(header))


def _padded(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def _create(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:
        _fail(path, error)


def _rename_new(temporary: Path, path: Path) -> None:
    """Rename without replacing a file that appeared meanwhile, where the file system can."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # no hard links here
        if path.exists():
            raise FileExistsError(path) from None
        temporary.replace(path)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _fail(path: Path, error: OSError) -> NoReturn:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        text = f"{path}: no space for it ({error.strerror}); free some or use --outdir"
        raise ResourceError(one_line(text)) from error
    refuse(f"{path}: it cannot be written ({error.strerror}); use --outdir for another folder")
