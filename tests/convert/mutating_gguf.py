"""Mutations of GGUFs: what no GGUF may be, and keys that hold something else."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, TypeAlias

from dflash_gguf.gguf_file import GgufFile
from dflash_gguf.gguf_scan import TensorInfo

from .mutating import Files, Kind, Mutation, Refused

TARGET, DRAFTER = "target.gguf", "drafter.gguf"
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _UINT64 = 4, 5, 6, 7, 8, 9, 10

Edit: TypeAlias = Callable[[bytearray, GgufFile, int, Random], object]


def bytes_of(path: str, edit: Edit) -> Mutation:
    """Change the bytes of one of the GGUFs, with a reader of what it was at hand."""

    def mutate(files: Files, number: int, random: Random) -> None:
        if path == DRAFTER:
            files.add_drafter()
        place = files.folder / path
        data = bytearray(place.read_bytes())
        with GgufFile(place) as file:
            edit(data, file, number, random)
        place.unlink()
        place.write_bytes(data)

    return mutate


def keys_of(path: str, values: Mapping[str, list[Any]]) -> Mutation:
    """Give one of the keys one of its values (None: leave it out), of the value's own type."""
    pairs = pairs_of(values)

    def mutate(files: Files, number: int, random: Random) -> None:
        if path == DRAFTER:
            files.add_drafter()
        key, value = pairs[number]
        data = with_keys(
            (files.folder / path).read_bytes(), GgufFile(files.folder / path), {key: value}
        )
        (files.folder / path).unlink()
        (files.folder / path).write_bytes(data)

    return mutate


def pairs_of(values: Mapping[str, list[Any]]) -> list[tuple[str, Any]]:
    """Each key with each of its values."""
    return [(key, value) for key, each in values.items() for value in each]


def with_keys(data: bytes, file: GgufFile, changes: Mapping[str, Any]) -> bytes:
    """The bytes of a GGUF whose keys have other values; closes the file."""
    with file:
        raw = {
            key: struct.pack("<I", field.type) + file.raw(key) for key, field in file.fields.items()
        }
        end = max(field.offset + field.length for field in file.fields.values())
        entries = data[end : end + sum(_entry_length(info) for info in file.tensors.values())]
        body = data[file.data_offset :]
    for key, value in changes.items():
        raw.pop(key, None)
        if value is not None:
            raw[key] = typed(value)
    head = data[:16] + struct.pack("<Q", len(raw))
    head += b"".join(_text(key) + value for key, value in raw.items()) + entries
    return head + bytes(-len(head) % 32) + body


def typed(value: Any) -> bytes:
    """The bytes of a value, after its type."""
    if isinstance(value, list):
        kind = typed(value[0])[:4] if value else struct.pack("<I", _UINT32)
        items = b"".join(typed(item)[4:] for item in value)
        return struct.pack("<I", _ARRAY) + kind + struct.pack("<Q", len(value)) + items
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, float):
        return struct.pack("<If", _FLOAT32, value)
    if value < 0:
        return struct.pack("<Ii", _INT32, value)
    return (
        struct.pack("<II", _UINT32, value) if value < 2**32 else struct.pack("<IQ", _UINT64, value)
    )


def _text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _entry_length(info: TensorInfo) -> int:
    return 8 + len(info.name.encode()) + 4 + 8 * len(info.shape) + 4 + 8


def _cut_magic(data: bytearray, file: GgufFile, number: int, random: Random) -> None:
    del data[number:]


def _cut_header(data: bytearray, file: GgufFile, number: int, random: Random) -> None:
    del data[random.randrange(4, file.data_offset - 32) :]


def _cut_data(data: bytearray, file: GgufFile, number: int, random: Random) -> None:
    last = max(info.offset + info.length for info in file.tensors.values())
    del data[random.randrange(file.data_offset, last) :]


def _flip_magic(data: bytearray, file: GgufFile, number: int, random: Random) -> None:
    data[number // 8] ^= 1 << number % 8


_VERSIONS = [0, 1, 4, 7, 3 << 24, 2**32 - 1]


def _other_version(data: bytearray, file: GgufFile, number: int, random: Random) -> None:
    struct.pack_into("<I", data, 4, _VERSIONS[number])


_MORE = [-1, 1, 2, 1000, 10**9, 2**62]


def _counts(at: int) -> Edit:
    """Another number of tensors or keys than there are."""

    def edit(data: bytearray, file: GgufFile, number: int, random: Random) -> None:
        (count,) = struct.unpack_from("<Q", data, at)
        struct.pack_into("<Q", data, at, count + _MORE[number])

    return edit


def _put(key: str, code: str, values: list[int], shift: int = 0) -> Edit:
    """Put a number at the place of a key's value, `shift` bytes from it."""

    def edit(data: bytearray, file: GgufFile, number: int, random: Random) -> None:
        struct.pack_into(f"<{code}", data, file.fields[key].offset + shift, values[number])

    return edit


_HUGE = [2**63, 2**64 - 1, 2**62, 2**40, 10**8]

# of a matrix's entry behind its name: how many dimensions, two of them, type, offset
_ENTRIES: list[tuple[int, str, int]] = [
    *((0, "I", dims) for dims in (0, 5, 2**32 - 1)),
    *((4, "Q", size) for size in (0, 2**63, 2**40)),
    (12, "Q", 2**61),
    *((20, "I", kind) for kind in (4, 99, 2**31)),
    *((24, "Q", offset) for offset in (1, 2**40, 2**64 - 32)),
]


def _entry(data: bytearray, file: GgufFile, number: int, random: Random) -> None:
    name = next(name for name, info in file.tensors.items() if len(info.shape) == 2)
    shift, code, value = _ENTRIES[number]
    struct.pack_into(f"<{code}", data, entry_of(data, name) + shift, value)


def _overlap(data: bytearray, file: GgufFile, number: int, random: Random) -> None:
    """A tensor begins where the one before it does, or a little later."""
    first, second = sorted(file.tensors.values(), key=lambda info: info.offset)[:2]
    at = entry_of(data, second.name) + 4 + 8 * len(second.shape) + 4
    struct.pack_into("<Q", data, at, first.offset - file.data_offset + number * file.alignment)


def entry_of(data: bytes | bytearray, name: str) -> int:
    """Where a tensor's entry goes on behind its name."""
    text = _text(name)
    return data.index(text) + len(text)


_MISREAD = "it ends within|cannot fit|dimensions|bytes|unknown type|is not text|not empty"

_COMMON: list[tuple[str, str, Edit, int]] = [
    ("empty", "it is empty; expected", _cut_magic, 1),
    ("cut within the magic", "it is empty|it begins with b'G*U*F*'|it ends within", _cut_magic, 5),
    ("cut within the header", "it ends within|cannot fit in|bytes behind the end", _cut_header, 16),
    ("cut within the data", "ends [0-9]+ bytes behind the end of the file", _cut_data, 8),
    ("bit of the magic", "it begins with .*; expected b'GGUF'", _flip_magic, 32),
    ("other version", "GGUF version|it is big-endian", _other_version, len(_VERSIONS)),
    (
        "entry of a tensor",
        "dimensions|the shape|type|overlap|multiple|end of",
        _entry,
        len(_ENTRIES),
    ),
    ("overlapping tensors", "the tensors .+ and .+ overlap", _overlap, 2),
    ("number of tensors", _MISREAD, _counts(8), len(_MORE)),
    (
        "number of keys",
        _MISREAD,
        _counts(16),
        len(_MORE),
    ),
    (
        "length of a string",
        "it ends within the key general.architecture",
        _put("general.architecture", "Q", _HUGE),
        len(_HUGE),
    ),
    ("type of a key", "unknown type", _put("general.architecture", "I", [13, 99, 2**31], -4), 3),
    (
        "length of an array",
        r"values of the key tokenizer\.ggml\.tokens cannot fit in",
        _put("tokenizer.ggml.tokens", "Q", _HUGE, 4),
        len(_HUGE),
    ),
    ("arrays of arrays", "array of arrays", _put("tokenizer.ggml.tokens", "I", [_ARRAY]), 1),
    (
        "length of a token",
        "it ends within the key tokenizer.ggml.tokens",
        _put("tokenizer.ggml.tokens", "Q", _HUGE, 12),
        len(_HUGE),
    ),
    ("alignment", "general.alignment is", _put("general.alignment", "I", [0, 3, 33, 2**32 - 1]), 4),
]


def common(path: str, command: str) -> list[Kind]:
    """What no GGUF may be, for a command that reads it."""
    real = {"empty", "cut within the data", "length of an array", "number of keys"}
    return [
        *(
            Kind(
                f"{command} {path} {name}",
                Refused(says, path),
                _aligned(path, edit) if name == "alignment" else bytes_of(path, edit),
                count,
                command,
                real=name in real,
            )
            for name, says, edit, count in _COMMON
        ),
        Kind(
            f"{command} {path} no file",
            Refused(_NO_FILE, path),
            _no_file(path),
            6,
            command,
            real=True,
        ),
    ]


def _aligned(path: str, edit: Edit) -> Mutation:
    """Give the GGUF an alignment of its own, then change that."""

    def mutate(files: Files, number: int, random: Random) -> None:
        if path == DRAFTER:
            files.add_drafter()
        place = files.folder / path
        data = bytearray(with_keys(place.read_bytes(), GgufFile(place), {"general.alignment": 32}))
        place.unlink()
        place.write_bytes(data)
        with GgufFile(place) as file:
            edit(data, file, number, random)
        place.unlink()
        place.write_bytes(data)

    return mutate


_NO_FILE = "it is a folder|it cannot be read|not a regular file|it begins with|without config.json"


def _no_file(path: str) -> Mutation:
    """A pipe, a loop, nothing, a folder, a device without end, or a terabyte of zeros in a GGUF's place."""

    def mutate(files: Files, number: int, random: Random) -> None:
        if path == DRAFTER:
            files.add_drafter()
        place = files.folder / path
        place.unlink()
        if number == 0:
            os.mkfifo(place)
        elif number == 1:
            place.symlink_to(place.name)
        elif number == 3:
            place.mkdir()
        elif number == 4:
            place.symlink_to("/dev/zero")
        elif number == 5:
            with place.open("wb") as file:
                file.truncate(1 << 40)

    return mutate
