"""What is on this machine to be run: the Hugging Face cache and our own cache of converted drafters.

Only headers are read. A file that is damaged, of a fork's format or no language model is told of, with why.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .convert.config import DraftConfig, read_config
from .convert.hub_cache import files, repositories, snapshots
from .convert.registry import Pair, read_registry
from .convert.target import Target, check_fit, read_target
from .draft_file import cache_folder
from .errors import DflashError, ModelError
from .gguf_file import GgufFile
from .gguf_names import is_drafter_name, models, quant_of
from .model_names import is_whole_checkpoint
from .pair import FORKS, check_draft, read_draft

CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model that can be run.

    Attributes:
        name: what to type for it: `user/repo:QUANT`, or its path.
        path: the file to open; of a drafter's checkpoint its folder.
        family: a target's architecture, or DFlash, DFlash2, DSpark.
        quant: as its name says, "?" if it does not; "checkpoint".
        bytes: of all its files.
        hidden_size, tokens: width and vocabulary, of the target it is made for in a drafter.
    """

    name: str
    path: str
    family: str
    quant: str
    bytes: int
    hidden_size: int
    tokens: int


@dataclass(frozen=True, slots=True)
class KnownPair:
    """A pair of the registry, the names of what is here of it, and the command that brings and runs it."""

    target: str
    drafters: tuple[str, ...]
    source: str
    targets_here: tuple[str, ...]
    drafters_here: tuple[str, ...]
    command: str


@dataclass(slots=True)
class LocalModels:
    """All that was found.

    Attributes:
        pairs: names of a target and a drafter that fit.
        unusable: path and why, of files that cannot be run.
        unfinished: repository and bytes that have come, of downloads that were broken off.
        known: the registry.
    """

    targets: list[LocalModel] = field(default_factory=list)
    drafters: list[LocalModel] = field(default_factory=list)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    unusable: list[tuple[str, str]] = field(default_factory=list)
    unfinished: list[tuple[str, int]] = field(default_factory=list)
    known: list[KnownPair] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        found = asdict(self)
        found["pairs"] = [{"target": target, "draft": draft} for target, draft in self.pairs]
        found["unusable"] = [{"path": path, "fault": fault} for path, fault in self.unusable]
        found["unfinished"] = [
            {"repository": name, "bytes": size} for name, size in self.unfinished
        ]
        return found


def find_local_models() -> LocalModels:
    """Look through both caches. Raises DflashError only where the extension does not load."""
    found = LocalModels()
    for name, path, size in (*_hub_files(), *_converted_files()):
        try:
            model, drafts = _read(name, path, size)
        except (DflashError, OSError) as error:
            found.unusable.append((str(path), _without_path(str(error), path)))
            continue
        (found.drafters if drafts else found.targets).append(model)
    found.unfinished = list(_unfinished())
    found.pairs = [
        (target.name, draft.name)
        for target in found.targets
        for draft in found.drafters
        if _fit(target, draft)
    ]
    found.known = [_known(pair, found) for pair in read_registry()]
    return found


def _hub_files() -> Iterator[tuple[str, Path, int]]:
    """Yield the name, path and bytes of models in the Hugging Face cache, each once."""
    for repository, folder in repositories():
        seen: set[Path] = set()
        names: set[str] = set()
        for snapshot in snapshots(folder):
            held = files(snapshot)
            for choice in models(held):
                path = snapshot / choice.first
                if path.resolve() not in seen:
                    seen.add(path.resolve())
                    name = f"{repository}:{choice.label}"
                    if name in names:  # another file of that quant, or of an older snapshot
                        name = str(path)
                    names.add(name)
                    yield name, path, sum(_bytes(snapshot / part) for part in choice.parts)
            checkpoint = is_drafter_name(repository) and is_whole_checkpoint(snapshot, held)
            if checkpoint and repository not in names:
                names.add(repository)
                weights = (name for name in held if name.endswith(".safetensors"))
                yield repository, snapshot, sum(_bytes(snapshot / name) for name in weights)


def _converted_files() -> Iterator[tuple[str, Path, int]]:
    with suppress(DflashError, OSError):  # no home, no folder
        for path in sorted(cache_folder().glob("*/*.gguf")):
            yield str(path), path, _bytes(path)


def _unfinished() -> Iterator[tuple[str, int]]:
    for repository, folder in repositories():
        parts = [_bytes(path) for path in folder.glob("blobs/*.incomplete")]
        if parts:
            yield repository, sum(parts)


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it is being removed
        return 0


def _read(name: str, path: Path, size: int) -> tuple[LocalModel, bool]:
    """Return a model, and whether it is a drafter."""
    if path.is_dir():
        return _of_config(name, path, size, read_config(path / "config.json")), True
    with GgufFile(path) as file:
        drafts = file.architecture.startswith("dflash") or file.architecture in FORKS
        if not drafts:
            return _of_target(name, path, size, read_target(file)), False
        tokens = file.count("tokenizer.ggml.tokens")
        hidden = file.integer(f"{file.architecture}.embedding_length")
    family = read_draft(path).layout.family
    return LocalModel(
        name, str(path), family, quant_of(path.name) or "?", size, hidden, tokens
    ), True


def _of_target(name: str, path: Path, size: int, target: Target) -> LocalModel:
    quant = quant_of(path.name) or "?"
    return LocalModel(
        name, str(path), target.architecture, quant, size, target.hidden_size, target.vocab_size
    )


def _of_config(name: str, path: Path, size: int, config: DraftConfig) -> LocalModel:
    return LocalModel(
        name, str(path), config.family.name, CHECKPOINT, size, config.hidden_size, config.vocab_size
    )


def _fit(target: LocalModel, draft: LocalModel) -> bool:
    """Whether the two belong together; asked of the files only where the sizes are the same."""
    if (target.hidden_size, target.tokens) != (draft.hidden_size, draft.tokens):
        return False
    try:
        with GgufFile(target.path) as file:
            if draft.quant == CHECKPOINT:
                config = read_config(Path(draft.path) / "config.json")
                check_fit(config, draft.name, read_target(file))
            else:
                check_draft(file, Path(draft.path))
    except (ModelError, OSError):
        return False
    return True


def _known(pair: Pair, found: LocalModels) -> KnownPair:
    drafters = [
        model.name
        for model in found.drafters
        if model.name.partition(":")[0].lower() in {name.lower() for name in pair.drafters}
    ]
    fits = pair.facts.get("hidden_size"), pair.facts.get("vocab_size")
    targets = [model.name for model in found.targets if (model.hidden_size, model.tokens) == fits]
    target = targets[0] if targets else "USER/REPO:QUANT"
    return KnownPair(
        target=pair.target,
        drafters=pair.drafters,
        source=pair.source,
        targets_here=tuple(targets),
        drafters_here=tuple(drafters),
        command=f"dflash-gguf run -m {target} -md {(drafters or pair.drafters)[0]}",
    )


def _without_path(text: str, path: Path) -> str:
    """Return a fault without the file it begins with."""
    return text.removeprefix(f"{path}: ")
