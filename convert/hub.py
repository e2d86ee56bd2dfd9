"""Repositories of the Hugging Face Hub, or of any server that HF_ENDPOINT names, given as `owner/name`.

Downloads go into the Hub's own cache, resume, and show progress on a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .faults import refuse

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


def fetch_drafter(repository: Path) -> Path:
    """Download a drafter's checkpoint; returns its folder. Raises ConvertError if that fails."""
    return _fetch(repository.as_posix(), _DRAFTER)


def fetch_target(repository: Path) -> Path:
    """Download a target's config and tokenizer; returns their folder. Raises ConvertError if that fails."""
    return _fetch(repository.as_posix(), _TARGET)


def _fetch(repository: str, patterns: Sequence[str]) -> Path:
    try:
        import huggingface_hub
    except ModuleNotFoundError:
        refuse(
            f"{repository}: there is no such file or folder, and to fetch it as a repository "
            "huggingface_hub is needed; run 'pip install \"dflash-gguf[hub]\"'"
        )
    try:
        return Path(huggingface_hub.snapshot_download(repository, allow_patterns=list(patterns)))
    except Exception as error:  # noqa: BLE001  its HTTP client's and the cache's errors are many
        first = str(error).strip().split("\n")[0]
        refuse(
            f"{repository}: it cannot be fetched ({type(error).__name__}: {first}); expected a file or folder "
            "here, or a repository that HF_ENDPOINT serves and HF_TOKEN may read"
        )
