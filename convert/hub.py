"""Repositories of the Hugging Face Hub, or of any server that HF_ENDPOINT names, given as `owner/name`.

Downloads go into the Hub's own cache; download.py resumes them.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..errors import DflashError
from .download import download, library
from .faults import refuse
from .hub_cache import cache_folder
from .stream import Progress

EXTRA = 'pip install "dflash-gguf[hub]"'
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_DRAFTER = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "README.md",
    "mask_embedding.pt",
)
# a target's weights are never needed
_TARGET = (
    "config.json",
    "generation_config.json",
    "tokenizer*.json",
    "chat_template*",
    "merges.txt",
)


def is_repository(given: Path) -> bool:
    """Whether a path means a repository: `owner/name`, and nothing of that name here."""
    text = given.as_posix()
    file_like = given.suffix in {".safetensors", ".gguf", ".json", ".bin", ".pt"}
    return bool(_REPOSITORY.fullmatch(text)) and not file_like and not given.parent.exists()


def can_fetch() -> bool:
    """Whether the extra that fetches is installed."""
    return importlib.util.find_spec("huggingface_hub") is not None


def fetch_drafter(repository: Path, progress: Progress | None = None) -> Path:
    """Download a drafter's checkpoint; returns its folder. Raises ConvertError if that fails."""
    return fetch(repository.as_posix(), _DRAFTER, progress)


def fetch_target(repository: Path, progress: Progress | None = None) -> Path:
    """Download a target's config and tokenizer; returns their folder. Raises ConvertError if that fails."""
    return fetch(repository.as_posix(), _TARGET, progress)


def fetch_config(repository: Path) -> Path:
    """Download a checkpoint's config.json alone; returns its folder. Raises ConvertError if that fails."""
    return fetch(repository.as_posix(), ("config.json",), None)


def repository_of(folder: Path) -> str | None:
    """Return the repository `owner/name` whose snapshot in a Hugging Face cache a folder is, if it is one."""
    snapshots = folder.absolute().parent
    kind, _, name = snapshots.parent.name.partition("--")
    if snapshots.name != "snapshots" or kind != "models" or name.count("--") != 1:
        return None
    return name.replace("--", "/")


def list_files(repository: str) -> list[str]:
    """Ask the server for the names of a repository's files. Raises ConvertError, saying why, if it does not tell."""
    _require(repository)
    try:
        told = library().HfApi().model_info(repository)
    except Exception as error:  # noqa: BLE001  its HTTP client's errors are many
        _explain(repository, error)
    return [file.rfilename for file in told.siblings or []]


def fetch(repository: str, patterns: Sequence[str], progress: Progress | None) -> Path:
    """Download what matches any pattern, unless it is in the cache; returns the snapshot's folder.

    Raises ConvertError if that fails, ResourceError if the disk is full.
    """
    _require(repository)
    try:
        _download_all(repository, patterns, progress)
        # all that is left for it is to link the files into a snapshot, or to find an older one offline
        found = library().snapshot_download(
            repository, allow_patterns=list(patterns), tqdm_class=_silent()
        )
        return Path(found)
    except DflashError:
        raise
    except Exception as error:  # noqa: BLE001  its HTTP client's and the cache's errors are many
        _explain(repository, error)


def _require(repository: str) -> None:
    if not can_fetch():
        refuse(
            f"{repository}: there is no such file or folder, and to fetch it as a repository "
            f"huggingface_hub is needed; run '{EXTRA}'"
        )


def _explain(repository: str, error: Exception) -> NoReturn:
    """Say what a server's refusal means, and what to do."""
    errors, constants = library(".errors"), library(".constants")
    page = f"{constants.ENDPOINT}/{repository}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError):
        refuse(
            f"{repository}: its authors ask for consent first ({status}); agree on {page} and set HF_TOKEN to a token "
            "of that account"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        refuse(
            f"{repository}: there is neither such a file or folder here nor such a repository on "
            f"{constants.ENDPOINT} ({status}); if it is private, set HF_TOKEN to a token that may read it"
        )
    if status in {401, 403}:
        refuse(
            f"{repository}: {constants.ENDPOINT} refuses it ({status}); set HF_TOKEN to a token that may read it"
        )
    if constants.HF_HUB_OFFLINE:
        refuse(
            f"{repository}: it is not in {cache_folder()}, and HF_HUB_OFFLINE forbids to fetch it; unset that, or give "
            "a file or folder"
        )
    first = str(error).strip().split("\n")[0]
    told = f"{type(error).__name__}: {first}"
    if status is None:
        refuse(
            f"{repository}: it is not in {cache_folder()}, and {constants.ENDPOINT} cannot be asked ({told}); look after "
            "the network, or give a file or folder"
        )
    refuse(
        f"{repository}: it cannot be fetched ({told}); expected a file or folder here, or a repository that "
        "HF_ENDPOINT serves"
    )


def _download_all(repository: str, patterns: Sequence[str], progress: Progress | None) -> None:
    try:
        told = library().HfApi().model_info(repository)
    except Exception:  # noqa: BLE001  snapshot_download will say why, or have it from before
        return
    names = [file.rfilename for file in told.siblings or []]
    for name in library(".utils").filter_repo_objects(names, allow_patterns=list(patterns)):
        if told.sha is not None:
            download(repository, name, told.sha, progress)


def _silent() -> Any:
    """No bar: what takes time has been downloaded, under a bar of our own."""
    bar = library(".utils").tqdm

    def start(self: Any, *arguments: Any, **options: Any) -> None:
        bar.__init__(self, *arguments, **{**options, "disable": True})

    return type("Silent", (bar,), {"__init__": start})
