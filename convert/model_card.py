"""README.md beside the outputs, for people who publish a drafter: front matter the Hub knows, files, commands."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import __version__
from .card import MARK
from .config import DraftConfig
from .families import DFLASH, DSPARK

_HUB = "https://huggingface.co/"
_TAGS = ("dflash", "speculative-decoding", "draft-model", "block-diffusion", "llama.cpp", "gguf")
_NOT_OURS = {"safetensors", "transformers", "text-generation"}  # tags of the checkpoint's card
_PIPELINE = "text-generation"
# what needs no quotes in YAML, but for words of its own
_PLAIN = re.compile(r"[A-Za-z][\w.-]*(/[\w.-]+)*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


@dataclass(frozen=True, slots=True)
class CardFile:
    """A file of the table: its output type, its size in bytes and its SHA-256."""

    name: str
    type: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What the card tells of besides the files.

    `repository` is the checkpoint's, if it came from one; `origin` holds general.* keys as card.py reads
    them; `command` is the command line that made the files.
    """

    name: str
    repository: str | None
    config: DraftConfig
    origin: Mapping[str, Any]
    command: Sequence[str]


def write_card(facts: CardFacts, files: Sequence[CardFile], sources: Mapping[str, str]) -> str:
    """Return the text; `sources` are the SHA-256 of the checkpoint's files by name."""
    parts = (
        _front_matter(facts),
        MARK,
        f"# {facts.name}: GGUF",
        _introduction(facts),
        "## Files",
        _table(
            ("file", "type", "size", "SHA-256"),
            [(file.name, file.type, _size(file.bytes), f"`{file.sha256}`") for file in files],
        ),
        "## Use",
        _use(facts, files),
        "## How it was made",
        f"dflash-gguf {__version__} read the checkpoint once and wrote all of these files:",
        _shell([facts.command]),
        _table(("source", "SHA-256"), [(name, f"`{value}`") for name, value in sources.items()]),
    )
    return "\n\n".join(parts) + "\n"


def command_line(source: Path | str, target: Path | str | None, **options: object) -> list[str]:
    """Return the command line of a conversion; of files only their names, for their places are private."""
    words = ["dflash-gguf", "convert", _label(source)]
    if target is not None:
        words += ["--target", _label(target)]
    for key, value in options.items():
        values = value if isinstance(value, list | tuple) else [] if value is None else [value]
        for item in values:
            words += [f"--{key.replace('_', '-')}", _label(item)]
    return words


def _label(value: object) -> str:
    return value.name if isinstance(value, Path) else str(value)


def base_models(facts: CardFacts) -> list[str]:
    """Return the Hub repositories the files derive from: the drafter's, else those its origin names."""
    if facts.repository is not None:
        return [facts.repository]
    return _named_bases(facts.origin)


def _named_bases(origin: Mapping[str, Any]) -> list[str]:
    count = origin.get("general.base_model.count", 0)
    found = [str(origin.get(f"general.base_model.{i}.repo_url", "")) for i in range(count)]
    return [url.removeprefix(_HUB) for url in found if url.startswith(_HUB)]


def _front_matter(facts: CardFacts) -> str:
    origin = facts.origin
    tags = [tag for tag in _strings(origin.get("general.tags")) if tag not in _NOT_OURS]
    own = [*_TAGS, *([] if facts.config.family is DFLASH else [facts.config.family.name.lower()])]
    bases = base_models(facts)
    entries: dict[str, str | list[str]] = {
        "license": str(origin.get("general.license", "")),
        "license_name": str(origin.get("general.license.name", "")),
        "license_link": str(origin.get("general.license.link", "")),
        "base_model": bases,
        # of the drafter these are the quantised files; of a target they would not be
        "base_model_relation": "quantized" if facts.repository is not None else "",
        "language": _strings(origin.get("general.languages")),
        "library_name": "gguf",
        "pipeline_tag": _PIPELINE,
        "tags": list(dict.fromkeys([*own, *tags])),
    }
    lines = ["---"]
    for key, value in entries.items():
        if isinstance(value, str) and value:
            lines.append(f"{key}: {_yaml(value)}")
        elif value:
            lines += [f"{key}:", *(f"- {_yaml(item)}" for item in value)]
    return "\n".join([*lines, "---"])


def _introduction(facts: CardFacts) -> str:
    config = facts.config
    source = facts.name if facts.repository is None else _link(facts.repository)
    return (
        f"GGUF files of {source}, a {config.family.name} drafter for {_target(facts)}. It is no language model "
        f"of its own: in one pass it proposes a block of {config.block_size} tokens, which the target then "
        "verifies, so that the text stays the target's and comes sooner."
    )


def _target(facts: CardFacts) -> str:
    bases = _named_bases(facts.origin)
    if bases:
        return ", ".join(_link(base) for base in bases)
    return str(facts.origin.get("general.base_model.0.name", "its target"))


def _use(facts: CardFacts, files: Sequence[CardFile]) -> str:
    config = facts.config
    draft = min(files, key=lambda file: file.bytes).name
    kind = "draft-dspark" if config.family is DSPARK else "draft-dflash"
    anchored = config.dspark is not None and config.dspark.sample_from_anchor
    most = config.block_size if anchored else config.block_size - 1
    flags = [
        "-m",
        "TARGET.gguf",
        "-md",
        draft,
        "--spec-type",
        kind,
        "--spec-draft-n-max",
        str(most),
    ]
    text = (
        "`TARGET.gguf` stands for a GGUF of the target, in any type. With llama.cpp, which drafts at most "
        f"{most} tokens at once here (fewer may be faster):\n\n"
        f"{_shell([['llama-server', *flags], ['llama-cli', *flags]])}"
    )
    if config.family is not DFLASH:
        return text
    ours = ["dflash-gguf", "run", "--target", "TARGET.gguf", "--draft", draft]
    return f"{text}\n\nWith dflash-gguf:\n\n{_shell([ours])}"


def _shell(commands: Sequence[Sequence[str]]) -> str:
    return "\n".join(["```sh", *(shlex.join(command) for command in commands), "```"])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _link(repository: str) -> str:
    return f"[{repository}]({_HUB}{repository})"


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _yaml(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text)  # JSON is YAML
