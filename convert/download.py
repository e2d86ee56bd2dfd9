"""One file of a repository into the Hugging Face cache: from where an earlier try ended, and with progress.

huggingface_hub resumes within a process only: its temporary files have a name that another process does not
know, and go when the download fails. Here what has come stays as `blobs/<etag>.incomplete`; the finished file
gets the blob's own name, under which huggingface_hub then finds it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

from ..errors import ResourceError
from .faults import refuse
from .stream import Progress

_CHUNK = 1 << 20
_TRIES = 3  # in a row without a new byte
_PAUSE = 0.5  # seconds before the next one
_ETAG = re.compile(r"[\w-]+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def download(repository: str, name: str, revision: str, progress: Progress | None) -> None:
    """Bring a file of a repository's revision into the cache, unless it is there.

    `progress` is called with (bytes there, bytes in all, text). Raises ConvertError if the line breaks (what has
    come is kept then) or if the bytes are not those the server announced, ResourceError if the disk is full,
    and huggingface_hub's errors for a server that refuses.
    """
    huggingface_hub = library()
    if isinstance(huggingface_hub.try_to_load_from_cache(repository, name, revision=revision), str):
        return
    url = huggingface_hub.hf_hub_url(repository, name, revision=revision)
    told = huggingface_hub.get_hf_file_metadata(url)
    if told.etag is None or told.size is None or not _ETAG.fullmatch(told.etag):
        return  # snapshot_download says what is wrong with that
    cache = Path(library(".constants").HF_HUB_CACHE)
    blob = cache / f"models--{repository.replace('/', '--')}" / "blobs" / told.etag
    blob.parent.mkdir(parents=True, exist_ok=True)
    with _Part(blob, told.size) as part:
        # another process may have brought it while this one waited for its turn
        if not blob.exists():
            _complete(part, url, f"{repository}: {name}", progress)


def library(part: str = "") -> Any:
    """Import huggingface_hub, or a part of it, which has no types for what is used here."""
    return importlib.import_module(f"huggingface_hub{part}")


class _Part:
    """What has come of a file so far; locked, so that two processes do not write into it."""

    def __init__(self, blob: Path, size: int) -> None:
        self.blob = blob
        self.size = size
        self.path = blob.with_name(f"{blob.name}.incomplete")
        self._file: BinaryIO = self.path.open("ab+")
        with suppress(OSError):  # some file systems have no locks; the digest tells at the end
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self._file.seek(0)
        self._digest = hashlib.sha256()
        self.have = 0
        while chunk := self._file.read(_CHUNK):
            self._digest.update(chunk)
            self.have += len(chunk)

    def append(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                text = f"{self.path}: no space for it ({error.strerror}); free some or set HF_HUB_CACHE"
                raise ResourceError(text) from error
            raise
        self._digest.update(data)
        self.have += len(data)

    def clear(self) -> None:
        self._file.truncate(0)
        self._digest = hashlib.sha256()
        self.have = 0

    def is_whole(self) -> bool:
        """Whether it is what the server announced: on the Hub a large file's etag is its SHA-256."""
        known = _SHA256.fullmatch(self.blob.name)
        return self.have == self.size and (not known or self._digest.hexdigest() == self.blob.name)

    def finish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self.path.replace(self.blob)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.blob.exists():
            self.path.unlink(missing_ok=True)
        self._file.close()


def _complete(part: _Part, url: str, what: str, progress: Progress | None) -> None:
    refused = library(".errors").HfHubHTTPError
    if part.have > part.size:
        part.clear()
    failed = 0
    while part.have < part.size:
        before = part.have
        fault = "the server sent less than it announced"
        try:
            _receive(part, url, what, progress)
        except (refused, OSError, ResourceError):  # a refusal, or trouble with the disk
            raise
        except Exception as error:  # noqa: BLE001  its HTTP client has changed before and will again
            fault = str(error) or type(error).__name__
        failed = failed + 1 if part.have == before else 0
        if failed == _TRIES:
            refuse(
                f"{what} broke off at {part.have} of {part.size} bytes ({fault}); they are kept: give the same "
                "command again to go on from there"
            )
        if part.have < part.size:
            time.sleep(_PAUSE)
    if not part.is_whole():
        part.clear()
        refuse(f"{what} came with other bytes than announced; nothing is kept: fetch it again")
    part.finish()


def _receive(part: _Part, url: str, what: str, progress: Progress | None) -> None:
    utils = library(".utils")
    # compressed bytes would have other positions
    headers = {**utils.build_hf_headers(), "Accept-Encoding": "identity"}
    if part.have:
        headers["Range"] = f"bytes={part.have}-"
    timeout = library(".constants").HF_HUB_DOWNLOAD_TIMEOUT
    session = library().get_session()
    with session.stream(
        "GET", url, headers=headers, follow_redirects=True, timeout=timeout
    ) as response:
        utils.hf_raise_for_status(response)
        resumed = str(response.headers.get("Content-Range", "")).startswith(f"bytes {part.have}-")
        if part.have and not (response.status_code == 206 and resumed):
            part.clear()  # the server sends all of it again
        # as it comes: of a chunk that is gathered first, a break would cost all
        for chunk in response.iter_bytes():
            part.append(chunk)
            if progress is not None:
                progress(part.have, part.size, f"fetching {what}")
