"""SHA-256 of the checkpoint's files, computed in a thread of its own while they are converted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Self

from .faults import refuse_file
from .fields import Field, string_array

_CHUNK = 1 << 20
_FILES, _DIGESTS = "dflash_gguf.source.files", "dflash_gguf.source.sha256"


class Digests:
    """Hashes files in the background; leaving the `with` block stops it."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = list(files)
        self._stop = Event()
        self._pool = ThreadPoolExecutor(1)
        self._jobs: list[Future[str]] = [self._pool.submit(self._hash, file) for file in files]

    @property
    def placeholder(self) -> dict[str, Field]:
        """The key/values that name the files, with digests still to come."""
        return self._fields(["0" * 64] * len(self._files))

    def fields(self) -> dict[str, Field]:
        """Wait, and return the key/values. Raises ConvertError if a file cannot be read any more."""
        return self._fields([job.result() for job in self._jobs])

    def by_name(self) -> dict[str, str]:
        """Wait, and return each file's digest by its name. Raises as `fields` does."""
        return {file.name: job.result() for file, job in zip(self._files, self._jobs, strict=True)}

    def _fields(self, digests: Sequence[str]) -> dict[str, Field]:
        return {
            _FILES: string_array([file.name for file in self._files]),
            _DIGESTS: string_array(digests),
        }

    def _hash(self, path: Path) -> str:
        digest = hashlib.sha256()
        buffer = bytearray(_CHUNK)
        try:
            with path.open("rb", buffering=0) as file:
                while not self._stop.is_set() and (count := file.readinto(buffer)):
                    digest.update(memoryview(buffer)[:count])
        except OSError as error:
            refuse_file(path, f"it cannot be read ({error.strerror})", "expected it to stay there")
        return digest.hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
