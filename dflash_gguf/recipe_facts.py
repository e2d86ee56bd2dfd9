"""What a launch line needs to know of a pair, from its files: block, windows, family, and repositories' names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .convert.config import DraftConfig, read_config
from .convert.files import read_json
from .convert.hub import fetch_config, is_repository, repository_of
from .convert.registry import Pair, find_pair, read_registry
from .convert.target import check_fit, read_target
from .draft_layers import effective_layers
from .errors import ModelError
from .gguf_file import GgufFile
from .pair import check_draft, read_draft

_HUB = "https://huggingface.co/"
_DRAFTERS = ("dflash", "dspark")  # in the name of a repository that holds one
_CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class Named:
    """What an engine that reads Hugging Face checkpoints is given: a repository or folder, and who says so."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class DraftFacts:
    """A drafter.

    Attributes:
        gguf: its GGUF, None if it is a checkpoint.
        family: DFlash, DFlash2 or DSpark.
        block: rows of the widest verify: the anchor and the most tokens that a block drafts.
        windows: by layer, in tokens; None: the layer sees all.
        checkpoint: where its weights are for engines that read checkpoints, None if the file does not tell.
    """

    gguf: Path | None
    family: str
    block: int
    windows: tuple[int | None, ...]
    checkpoint: Named | None


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """A target; `recurrent`: some of its layers keep a state in place of keys and values."""

    gguf: Path | None
    recurrent: bool
    checkpoint: Named | None


@dataclass(frozen=True, slots=True)
class _Draft:
    """A drafter with what it says of its target: the pair it is known as, the model its GGUF names."""

    facts: DraftFacts
    known: Pair | None
    based_on: Named | None = None
    config: DraftConfig | None = None


def read_pair(target: Path, draft: Path) -> tuple[TargetFacts, DraftFacts]:
    """Read both: GGUFs, folders of Hugging Face checkpoints, or repositories (whose config.json is fetched).

    Raises ModelError for what is none of these, and where a target's GGUF and the drafter do not fit.
    """
    found = _draft_of_gguf(draft) if draft.suffix == ".gguf" else _draft_of_checkpoint(draft)
    if target.suffix == ".gguf":
        return _target_of_gguf(target, found, draft), found.facts
    config = read_json(_folder(target) / _CONFIG)
    return TargetFacts(None, _is_recurrent(config), _given(target)), found.facts


def need(named: Named | None, option: str, engine: str) -> Named:
    """Return what is named. Raises ModelError, saying what to give, if the file does not tell."""
    if named is None:
        text = (
            f"{engine} reads Hugging Face checkpoints, and the GGUF does not say which one it was made from; give that "
            f"one's folder or repository as {option}"
        )
        raise ModelError(text)
    return named


def _draft_of_checkpoint(given: Path) -> _Draft:
    given = given.parent if given.is_file() else given
    named = _given(given)
    config = read_config(_folder(given) / _CONFIG)
    from_anchor = config.dspark is not None and config.dspark.sample_from_anchor
    facts = DraftFacts(
        gguf=None,
        family=config.family.name,
        block=config.block_size + 1 if from_anchor else config.block_size,
        windows=tuple(layer.window for layer in config.attention.layers),
        checkpoint=named,
    )
    return _Draft(facts, find_pair(config, named.name), config=config)


def _draft_of_gguf(path: Path) -> _Draft:
    draft = read_draft(path)
    with GgufFile(path) as file:
        windows = tuple(layer.window for layer in effective_layers(file)[0])
        names = _repositories(file)
        known = _known(file)
    own = [name for name in names if _is_drafter(name.name)]
    others = [name for name in names if not _is_drafter(name.name)]
    if known is not None:
        own.append(Named(known.drafters[0], "known by the drafter's sizes"))
    facts = DraftFacts(path, draft.layout.family, draft.block, windows, next(iter(own), None))
    return _Draft(facts, known, next(iter(others), None))


def _target_of_gguf(path: Path, found: _Draft, draft: Path) -> TargetFacts:
    with GgufFile(path) as file:
        if found.config is None:
            check_draft(file, draft)
        else:
            check_fit(found.config, str(draft), read_target(file))
        names = _repositories(file)
        recurrent = f"{file.architecture}.ssm.conv_kernel" in file.fields
    # first what is said of the drafter's target: a target's base model may be what it was fine-tuned from
    if found.known is not None:
        names.insert(0, Named(found.known.target, "known by the drafter's sizes"))
    elif found.based_on is not None:
        names.insert(0, found.based_on)
    return TargetFacts(path, recurrent, next(iter(names), None))


def _folder(given: Path) -> Path:
    return fetch_config(given) if is_repository(given) else given


def _given(given: Path) -> Named:
    name = given.as_posix() if is_repository(given) else repository_of(given) or str(given)
    return Named(name, "as given")


def _repositories(file: GgufFile) -> list[Named]:
    """Return the repositories of checkpoints that a GGUF names, the one it was made from first."""
    found = []
    for part in ("source.repo_url", "repo_url", "base_model.0.repo_url"):
        key = f"general.{part}"
        if key in file.fields and file.fields[key].element is None:
            name = str(file.value(key)).removeprefix(_HUB).strip("/")
            if name.count("/") == 1 and ":" not in name and "gguf" not in name.lower():
                found.append(Named(name, f"{key} of {file.path.name}"))
    return found


def _known(file: GgufFile) -> Pair | None:
    """Return the registry's pair that has a drafter's sizes, as far as its GGUF tells them."""
    sizes = {
        "hidden_size": file.integer("dflash.embedding_length"),
        "vocab_size": file.count("tokenizer.ggml.tokens"),
        "mask_token_id": file.integer("tokenizer.ggml.mask_token_id"),
    }
    return next(
        (pair for pair in read_registry() if sizes == {key: pair.facts.get(key) for key in sizes}),
        None,
    )


def _is_drafter(name: str) -> bool:
    return any(word in name.lower() for word in _DRAFTERS)


def _is_recurrent(config: dict[str, Any]) -> bool:
    text = config.get("text_config")
    layers = (text if isinstance(text, dict) else config).get("layer_types")
    return isinstance(layers, list) and "linear_attention" in layers
