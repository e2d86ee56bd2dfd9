"""Which target a drafter belongs to, when none is given: what lies near and fits, or a pair known by name."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelError
from ..gguf_file import GgufFile
from .config import DraftConfig
from .faults import refuse, refuse_file
from .folder_target import check_tokenizer
from .hub import EXTRA, can_fetch, fetch_target
from .hub_cache import cache_folder
from .registry import Pair, find_pair, find_pair_by_shapes
from .source import Checkpoint
from .stream import Progress
from .target import check_fit, read_target

_SHOWN = 4


@dataclass(frozen=True, slots=True)
class FoundTarget:
    """A target: its GGUF or Hugging Face folder, or (`tokenizer_only`) the drafter's own folder; and why it."""

    path: Path
    why: str
    tokenizer_only: bool = False


def find_target(
    checkpoint: Checkpoint,
    config: DraftConfig,
    repository: str | None,
    *,
    weights: bool = False,
    progress: Progress | None = None,
) -> FoundTarget:
    """Find the target of a drafter, which came from `repository` if not None.

    Looks for: a tokenizer beside the checkpoint; the one GGUF beside it, else in the Hugging Face cache, that
    fits; the pair in the registry, whose target's tokenizer is then fetched. Where the target's `weights` are
    needed, only for a GGUF.
    Raises ConvertError, saying where it looked and what to type, if there is none or more than one.
    """
    looked: list[str] = []
    if weights:
        found = _only_gguf(checkpoint, config, looked)
    else:
        found = (
            _tokenizer_beside(checkpoint, config, looked)
            or _only_gguf(checkpoint, config, looked)
            or _known_pair(find_pair(config, repository), looked, progress)
        )
    if found is None:
        refuse(
            f"{checkpoint.origin}: no target is given, {', '.join(looked)}; give it: "
            f"dflash-gguf convert {shlex.quote(repository or str(checkpoint.origin))} --target TARGET.gguf"
        )
    return found


def require_config(checkpoint: Checkpoint) -> None:
    """Raise ConvertError if config.json is missing and the registry knows whose it would be."""
    path = checkpoint.folder / "config.json"
    if os.path.lexists(path):
        return
    if pair := find_pair_by_shapes(checkpoint):
        refuse_file(
            path,
            "it cannot be read, for it is not there",
            "expected the drafter's config beside its weights; the tensors have the shapes of "
            f"{pair.drafters[0]}: if they come from there, hf download {pair.drafters[0]} config.json "
            f"--local-dir {shlex.quote(str(checkpoint.folder))}",
        )


def _tokenizer_beside(
    checkpoint: Checkpoint, config: DraftConfig, looked: list[str]
) -> FoundTarget | None:
    path = checkpoint.folder / "tokenizer.json"
    if not path.is_file():
        looked.append("there is no tokenizer.json beside it")
        return None
    try:
        architecture = check_tokenizer(checkpoint.folder, config)
    except ModelError as error:
        looked.append(f"the tokenizer beside it is not taken ({error})")
        return None
    return FoundTarget(
        checkpoint.folder,
        f"{path} is taken for the tokenizer of its target, a {architecture} model",
        tokenizer_only=True,
    )


def _only_gguf(
    checkpoint: Checkpoint, config: DraftConfig, looked: list[str]
) -> FoundTarget | None:
    hub = cache_folder()
    fitting = _fitting(checkpoint.folder, "*.gguf", config)
    if not fitting and hub is not None:
        fitting = _fitting(hub, "models--*/snapshots/**/*.gguf", config)
    if not fitting:
        places = f"{checkpoint.folder}" if hub is None else f"{checkpoint.folder} or {hub}"
        looked.append(f"no GGUF in {places} fits this drafter")
        return None
    if len(fitting) > 1:
        names = ", ".join(str(path) for path in fitting[:_SHOWN])
        refuse(
            f"{checkpoint.origin}: no target is given and {len(fitting)} fit it ({names}); give one: "
            f"dflash-gguf convert {shlex.quote(str(checkpoint.origin))} --target {shlex.quote(str(fitting[0]))}"
        )
    return FoundTarget(fitting[0], f"{fitting[0]} is the only one near that fits")


def _known_pair(
    pair: Pair | None, looked: list[str], progress: Progress | None
) -> FoundTarget | None:
    if pair is None:
        looked.append("no pair is known for it")
        return None
    if not can_fetch():
        looked.append(f"and to fetch the tokenizer of its target {pair.target} run '{EXTRA}'")
        return None
    try:
        folder = fetch_target(Path(pair.target), progress)
    except ModelError as error:
        looked.append(f"the tokenizer of its target could not be fetched ({error})")
        return None
    return FoundTarget(
        folder, f"{pair.target} is known as the target of {pair.drafters[0]} ({pair.source})"
    )


def _fitting(folder: Path, pattern: str, config: DraftConfig) -> list[Path]:
    # a cache holds a file once and links to it from every snapshot
    found = {path.resolve(): path for path in sorted(folder.glob(pattern)) if path.is_file()}
    return [path for path in found.values() if _fits(config, path)]


def _fits(config: DraftConfig, path: Path) -> bool:
    try:
        with GgufFile(path) as file:
            check_fit(config, "config.json", read_target(file))
    except ModelError:
        return False
    return True
