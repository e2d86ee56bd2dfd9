"""What a person types for a model: a file or folder, or `user/repo[:QUANT]` of the Hugging Face Hub.

An existing path wins. A repository's files go into the ordinary Hugging Face cache (HF_HOME, HF_HUB_CACHE), and what
is there already is taken as it is, without a network. QUANT is what a file's name ends with, in any case, or a
file's name. Without one:

- of a target: Q4_K_M, else Q8_0, else the only GGUF;
- of a drafter: BF16, else F16, Q8_0, the only GGUF; where there is none, the checkpoint, which `find_draft` converts.

What is in the cache is asked first, then the server. Where several are left they are named, and none is taken.
"""

from __future__ import annotations

import glob
import json
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from .convert.hub import fetch, fetch_drafter, is_repository, list_files
from .convert.hub_cache import files, repositories, repository_folder, snapshots
from .convert.stream import Progress
from .errors import ModelError, UsageError
from .faults import one_line
from .gguf_names import GgufChoice, asked_for, is_drafter_name, models, preferred

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::(.*))?")
_SHOWN = 12
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class ModelName:
    """A repository, the quant or file asked for, and what kind of model is wanted."""

    repository: str
    asked: str | None
    drafter: bool

    @property
    def text(self) -> str:
        """As it is typed."""
        return self.repository if self.asked is None else f"{self.repository}:{self.asked}"

    @property
    def order(self) -> tuple[str, ...]:
        """Quants that are taken unasked, the first one first."""
        return ("BF16", "F16", "Q8_0") if self.drafter else ("Q4_K_M", "Q8_0")

    def suitable(self, names: Sequence[str]) -> list[GgufChoice]:
        """Return the models of that kind among a repository's files; all where one is asked for by its name."""
        found = models(names)
        if self.asked is not None and self.asked.lower().endswith(".gguf"):
            return found
        if self.drafter and is_drafter_name(self.repository):
            return found
        return [choice for choice in found if is_drafter_name(choice.first) == self.drafter]


def find_target(given: Path, progress: Progress | None = None) -> Path:
    """Return the GGUF that `--target` means: a path as it is, of `user/repo[:QUANT]` the file in the cache.

    `progress` is called with (bytes there, bytes in all, text) while files are fetched. Raises ModelError, naming
    what there is, if a repository has no such quant or several, and as `fetch` does if it cannot be had.
    """
    name = read_name(given, drafter=False)
    return given if name is None else _said(name, _cached(name) or _fetched(name, progress))


def find_drafter(given: Path, progress: Progress | None = None) -> Path:
    """Return the path that `--draft` means, as `find_target` does; for a checkpoint its folder in the cache."""
    name = read_name(given, drafter=True)
    return given if name is None else _said(name, _cached(name) or _fetched(name, progress))


def is_name(given: Path) -> bool:
    """Whether this means a repository, not a path."""
    return read_name(given, drafter=False) is not None


def read_name(given: Path, *, drafter: bool) -> ModelName | None:
    """Return what a name means; None for a path. Raises UsageError for a colon with nothing behind."""
    text = given.as_posix()
    parts = _NAME.fullmatch(text)
    if parts is None or os.path.lexists(given):
        return None
    if parts[2] is None:
        return ModelName(text, None, drafter) if is_repository(given) else None
    if not parts[2]:
        fault = f"{text}: expected a quant behind the colon, such as {text}Q4_K_M"
        raise UsageError(fault)
    return ModelName(parts[1], parts[2], drafter)


def cached_names() -> list[str]:
    """Return `user/repo:QUANT` of all that is in the Hugging Face cache, by file names alone."""
    found: dict[str, None] = {}
    for repository, folder in repositories():
        for snapshot in snapshots(folder):
            held = files(snapshot)
            choices = models(held)
            found.update({f"{repository}:{choice.label}": None for choice in choices})
            if not choices and is_drafter_name(repository) and is_whole_checkpoint(snapshot, held):
                found[repository] = None
    return list(found)


def _said(name: ModelName, path: Path) -> Path:
    _LOG.info("%s: %s is %s", "draft" if name.drafter else "target", name.text, path)
    return path


def _cached(name: ModelName) -> Path | None:
    """Return what the cache holds of that name, as far as that can be told without the repository's list."""
    folder = repository_folder(name.repository)
    for snapshot in [] if folder is None else snapshots(folder):
        held = files(snapshot)
        choices = name.suitable(held)
        if not choices and name.drafter and name.asked is None:
            if is_whole_checkpoint(snapshot, held):
                return snapshot
        elif found := _matching(name, choices):
            if len(found) > 1:
                _several(name, found, f"the cache ({snapshot}) has")
            return snapshot / found[0].first
    return None


def _fetched(name: ModelName, progress: Progress | None) -> Path:
    listed = list_files(name.repository)
    choices = name.suitable(listed)
    if not choices and name.drafter and any(file.endswith(".safetensors") for file in listed):
        if name.asked is not None:
            _fail(
                f"{name.text}: the repository holds a checkpoint, which has no quants; give it as {name.repository}, "
                "it is converted once"
            )
        return fetch_drafter(Path(name.repository), progress)
    found = _matching(name, choices)
    if not found:
        _none(name, choices, models(listed))
    if len(found) > 1:
        _several(name, found, "the repository has")
    folder = fetch(name.repository, [glob.escape(part) for part in found[0].parts], progress)
    return folder / found[0].first


def _matching(name: ModelName, choices: Sequence[GgufChoice]) -> list[GgufChoice]:
    if name.asked is not None:
        return asked_for(choices, name.asked)
    return preferred(choices, name.order)


def is_whole_checkpoint(snapshot: Path, held: Sequence[str]) -> bool:
    """Whether a snapshot has a config and all shards that its index names."""
    if "config.json" not in held:
        return False
    if _INDEX not in held:
        return any(name.endswith(".safetensors") for name in held)
    try:
        shards = json.loads((snapshot / _INDEX).read_text(encoding="utf-8"))["weight_map"].values()
        return set(held).issuperset(shards)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _none(name: ModelName, choices: Sequence[GgufChoice], others: Sequence[GgufChoice]) -> NoReturn:
    kind = "drafter's" if name.drafter else "target's"
    if choices:
        _fail(
            f"{name.text}: the repository has no such quant; there are {_listed(choices)}; give one of them as "
            f"{name.repository}:{choices[0].label}"
        )
    there = (
        f"; there are {_listed(others)}, which may be asked for by a file's name" if others else ""
    )
    remedy = "a repository of GGUF files" + (" or with a drafter's checkpoint" * name.drafter)
    _fail(f"{name.text}: the repository holds no {kind} GGUF{there}; expected {remedy}")


def _several(name: ModelName, found: Sequence[GgufChoice], where: str) -> NoReturn:
    # the same quant twice can only be told apart by the files
    alike = len({choice.label for choice in found}) < len(found)
    labels = [choice.first if alike else choice.label for choice in found]
    _fail(
        f"{name.text}: {where} {len(found)} that this may mean: {_shortened(labels)}; give one of them, such as "
        f"{name.repository}:{labels[0]}"
    )


def _listed(choices: Sequence[GgufChoice]) -> str:
    return _shortened(list(dict.fromkeys(choice.label for choice in choices)))


def _shortened(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else ""
    return ", ".join(labels[:_SHOWN]) + more


def _fail(text: str) -> NoReturn:
    raise ModelError(one_line(text))
