"""A kept prefix as a file: token ids and states of target and draft, checked before anything uses them.

Layout: magic, length of the header (u32), header (JSON), token ids (i32), the target's state, the draft's,
the moving parts of each point, and the SHA-256 of all that; integers little-endian. A file is refused unless
its checksum holds and it names this pair, this llama.cpp and contexts of the same kind. The checksum guards
against damage, not against a forger: load what you have saved yourself.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ._native import LLAMA_CPP_PYTHON, core
from .errors import ModelError, ResourceError
from .gguf_file import GgufFile

if TYPE_CHECKING:
    from . import _core

_MAGIC = b"DFGPFX\r\n"
_FORMAT = 1
_LENGTH = struct.Struct("<I")
_DIGEST = 32
_SAMPLE = 4096  # bytes of each tensor that identify a model


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model's file as it was when it was loaded."""

    path: Path
    size: int
    changed: int  # nanoseconds

    @classmethod
    def of(cls, path: Path) -> ModelFile:
        """Look at a file now."""
        found = path.stat()
        return cls(path, found.st_size, found.st_mtime_ns)

    def identity(self) -> dict[str, Any]:
        """Return size and SHA-256 of the header and of the first 4096 bytes of every tensor.

        Takes milliseconds where hashing all weights takes seconds; models that were trained apart differ in
        some tensor's beginning. Raises ModelError if the file has been changed since it was loaded.
        """
        if not self.path.exists() or ModelFile.of(self.path) != self:
            text = f"{self.path}: the file was changed after it was loaded; load the pair again"
            raise ModelError(text)
        digest = hashlib.sha256()
        with GgufFile(self.path) as model, self.path.open("rb") as file:
            digest.update(file.read(model.data_offset))
            for tensor in model.tensors.values():
                file.seek(tensor.offset)
                digest.update(file.read(min(tensor.length, _SAMPLE)))
        return {"size": self.size, "sha256": digest.hexdigest()}


@dataclass(frozen=True, slots=True)
class Origin:
    """What the states of an engine belong to; `context`: what their layout depends on."""

    target: ModelFile
    draft: ModelFile | None
    context: dict[str, Any]

    def identity(self) -> dict[str, Any]:
        """Return it as a file's header has it. Raises as ModelFile.identity does."""
        return {
            "target": self.target.identity(),
            "draft": None if self.draft is None else self.draft.identity(),
            "llama_cpp_python": LLAMA_CPP_PYTHON,
            "context": self.context,
        }


def write_prefix(path: Path, origin: Origin, kept: _core.KeptPrefix) -> None:
    """Write a kept prefix; an older file of that name stays until the new one is whole.

    Raises ResourceError if it cannot be written.
    """
    tokens = struct.pack(f"<{len(kept.tokens)}i", *kept.tokens)
    points = kept.points
    parts = [tokens, kept.target, kept.draft]
    parts += [part for _, *moving in points for part in moving]
    header = {
        "format": _FORMAT,
        **origin.identity(),
        "fed": kept.fed,
        "least_cut": kept.least_cut,
        "points": [count for count, _, _ in points],
        "lengths": [len(part) for part in parts],
    }
    text = json.dumps(header).encode()
    _write(path, [_MAGIC, _LENGTH.pack(len(text)), text, *parts])


def read_prefix(path: Path, origin: Origin) -> _core.KeptPrefix:
    """Read and check such a file. Raises ModelError, in one line, for any other, damaged or unfitting one."""
    try:
        data = memoryview(path.read_bytes())
    except (OSError, ValueError) as error:
        text = f"{path}: it cannot be read ({_why(error)}); expected a file that save_prefix wrote"
        raise ModelError(text) from error
    header, body = _open(path, data)
    _check_identity(path, header, origin)
    parts = _parts(path, header, body)
    tokens = [token for (token,) in struct.iter_unpack("<i", parts[0])]
    counts = header["points"]
    points = [(n, parts[3 + 2 * i], parts[4 + 2 * i]) for i, n in enumerate(counts)]
    draft = parts[2] if origin.draft is not None else b""
    kept: _core.KeptPrefix = core().KeptPrefix(
        tokens, parts[1], draft, header["fed"], header["least_cut"], points
    )
    return kept


def _write(path: Path, parts: Sequence[bytes]) -> None:
    digest = hashlib.sha256()
    try:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        if path.exists() and not path.is_file():  # a device, say, which renaming would put away
            text = f"{path}: it is no regular file; give another place"
            raise ResourceError(text)
        try:
            with temporary.open("xb") as file:
                for part in parts:
                    digest.update(part)
                    file.write(part)
                file.write(digest.digest())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        text = f"{path}: it cannot be written ({_why(error)}); give another place"
        raise ResourceError(text) from error


def _why(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _open(path: Path, data: memoryview) -> tuple[dict[str, Any], memoryview]:
    """Return the header and what follows it, once the checksum holds."""
    start = len(_MAGIC) + _LENGTH.size
    if bytes(data[: len(_MAGIC)]) != _MAGIC or len(data) < start + _DIGEST:
        _refuse(path, "it is no saved prefix", "expected a file that save_prefix wrote")
    if hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
        _refuse(path, "it is damaged (its checksum differs)", "save the prefix again")
    (length,) = _LENGTH.unpack(data[len(_MAGIC) : start])
    try:
        header = json.loads(bytes(data[start : start + length]))
        version = header["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        _refuse(path, "its header makes no sense", "save the prefix again")
    if version != _FORMAT:
        _refuse(path, f"it has format {version!r}, expected {_FORMAT}", "save the prefix again")
    return header, data[start + length : -_DIGEST]


def _check_identity(path: Path, header: dict[str, Any], origin: Origin) -> None:
    own = origin.identity()
    if own["draft"] is None:  # without a drafter its part is left out
        own["draft"] = header.get("draft")
    names = {"target": "another target", "draft": "another drafter or none"}
    for key, name in names.items():
        if header.get(key) != own[key]:
            _refuse(path, f"it was saved with {name}", "load that pair or save the prefix again")
    key = "llama_cpp_python"
    if header.get(key) != own[key]:
        found = f"it was saved with llama-cpp-python {header.get(key)}, here is {own[key]}"
        _refuse(path, found, "save the prefix again")
    saved = header.get("context")
    for key, value in own["context"].items():
        then = saved.get(key) if isinstance(saved, dict) else None
        if then != value:
            _refuse(path, f"it was saved with {key} {then}, here it is {value}", "load as then")


def _parts(path: Path, header: dict[str, Any], body: memoryview) -> list[bytes]:
    def sane() -> Iterator[bool]:
        counts, lengths = header["points"], header["lengths"]
        for numbers in (counts, lengths, [header["fed"], header["least_cut"]]):
            yield all(isinstance(n, int) and 0 <= n < 2**62 for n in numbers)
        yield len(lengths) == 3 + 2 * len(counts)
        yield sum(lengths) == len(body)
        yield lengths[0] % 4 == 0
        most = lengths[0] // 4
        yield all(n <= most for n in [*counts, header["fed"], header["least_cut"]])

    try:
        fits = all(sane())
    except (KeyError, TypeError):
        fits = False
    if not fits:
        _refuse(path, "its parts do not fit its header", "save the prefix again")
    parts, at = [], 0
    for length in header["lengths"]:
        parts.append(bytes(body[at : at + length]))
        at += length
    return parts


def _refuse(path: Path, found: str, remedy: str) -> NoReturn:
    text = f"{path}: {found}; {remedy}"
    raise ModelError(text)
