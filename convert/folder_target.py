"""A target without a GGUF: its config and tokenizer, written down as a GGUF without tensors.

They come from its Hugging Face folder; or the tokenizer alone lies beside the drafter's checkpoint, and the
drafter's config says the rest. Never its weights. The way a tokenizer splits text is known by the regular expression in tokenizer.json; of a
target whose expression is not listed here, the GGUF is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..gguf_file import GgufFile
from .config import DraftConfig
from .faults import refuse, refuse_file
from .files import read_json
from .gguf_package import gguf_package
from .hub import repository_of
from .keys import Keys

_ARCHITECTURES = {
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3moe",
    "Qwen3_5ForCausalLM": "qwen35",
    "Qwen3_5ForConditionalGeneration": "qwen35",
    "Qwen3_5MoeForCausalLM": "qwen35moe",
    "Qwen3_5MoeForConditionalGeneration": "qwen35moe",
}

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

# tokenizer.json's expression, and llama.cpp's name for it
_SPLITS = {
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}": "qwen2",
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|"
    rf"{_SPACES}": "qwen35",
}

# Of the targets that split text so, llama.cpp lets a drafter read layers of these (and of their kin with the
# same position encoding) only.
_ARCHITECTURE_BY_SPLIT = {"qwen2": "qwen3", "qwen35": "qwen35"}

_MAX_UNNAMED = 1 / 8  # of a vocabulary: its padding is far less

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # llama.cpp's kinds of tokens
_GIVE_GGUF = "give the target's GGUF"


@dataclass(frozen=True, slots=True)
class _Model:
    """What a description says besides the tokenizer; `name` has what is known of whose it is."""

    architecture: str
    layers: int
    hidden_size: int
    vocab_size: int
    name: dict[str, str]


@contextmanager
def open_target(target: Path, drafter: DraftConfig | None = None) -> Iterator[GgufFile]:
    """Open a target's GGUF, or a description of a folder's model as one.

    With `drafter` the folder holds that drafter and its target's tokenizer.
    Raises ModelError or ConvertError if it is neither, or a kind of model that takes its GGUF.
    """
    if not target.is_dir():
        with GgufFile(target) as file:
            yield file
        return
    for name in ("config.json", "tokenizer.json"):
        if not (target / name).exists():
            refuse_file(
                target,
                f"it is a folder without {name}",
                "give the target's GGUF, or a Hugging Face folder with config.json and tokenizer.json",
            )
    model = _read_model(target) if drafter is None else _guess_model(target, drafter)
    with TemporaryDirectory(prefix="dflash-gguf-") as folder:
        path = Path(folder) / "target.gguf"
        _write_description(target, model, path)
        with GgufFile(path) as file:
            # for errors
            file.path = target / ("config.json" if drafter is None else "tokenizer.json")
            yield file


def check_tokenizer(folder: Path, drafter: DraftConfig) -> str:
    """Return the architecture of the target whose tokenizer lies beside a drafter's checkpoint.

    Raises ConvertError if it is not understood, or cannot be that of this drafter's target.
    """
    path = folder / "tokenizer.json"
    tokenizer = read_json(path)
    split = _split(path, tokenizer)
    _tokens(path, tokenizer, drafter.vocab_size)
    return _ARCHITECTURE_BY_SPLIT[split]


def _read_model(folder: Path) -> _Model:
    config = read_json(folder / "config.json")
    architecture = _architecture(folder, config)
    inner = config.get("text_config", config)
    if not isinstance(inner, dict):
        refuse(f"{folder / 'config.json'}: text_config is no object; {_GIVE_GGUF}")
    keys = Keys(inner, str(folder / "config.json"))
    return _Model(
        architecture=architecture,
        vocab_size=keys.count("vocab_size", keys.top("vocab_size"), limit=1 << 22),
        layers=keys.count("num_hidden_layers", keys.top("num_hidden_layers")),
        hidden_size=keys.count("hidden_size", keys.top("hidden_size")),
        name=_name(folder),
    )


def _guess_model(folder: Path, drafter: DraftConfig) -> _Model:
    """The target by what its drafter takes from it; the last tap is read at the next layer's input."""
    return _Model(
        architecture=check_tokenizer(folder, drafter),
        vocab_size=drafter.vocab_size,
        layers=drafter.num_target_layers or max(drafter.target_layer_ids) + 2,
        hidden_size=drafter.hidden_size,
        name={},
    )


def _name(folder: Path) -> dict[str, str]:
    metadata = gguf_package().Metadata
    repository = repository_of(folder)
    if repository is None:
        return {"name": metadata.id_to_title(folder.absolute().name)}
    organization, name = repository.split("/")
    return {
        "name": metadata.id_to_title(name),
        "organization": metadata.id_to_title(organization),
        "repo_url": f"https://huggingface.co/{repository}",
    }


def _write_description(folder: Path, model: _Model, path: Path) -> None:
    gguf = gguf_package()
    tokenizer = read_json(folder / "tokenizer.json")
    tokens, kinds = _tokens(folder / "tokenizer.json", tokenizer, model.vocab_size)
    writer = gguf.GGUFWriter(path, model.architecture)
    for key, value in model.name.items():
        writer.add_string(f"general.{key}", value)
    writer.add_block_count(model.layers)
    writer.add_embedding_length(model.hidden_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_split(folder / "tokenizer.json", tokenizer))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    try:
        gguf.SpecialVocab(folder, load_merges=True).add_to_gguf(writer)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  it reads files that may hold anything
        refuse_file(
            folder, f"its tokenizer is not understood ({type(error).__name__}: {error})", _GIVE_GGUF
        )
    finally:
        writer.close()


def _architecture(folder: Path, config: dict[str, Any]) -> str:
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        refuse(
            f"{folder / 'config.json'}: the architecture is {name!r}; expected one of "
            f"{', '.join(_ARCHITECTURES)}; {_GIVE_GGUF}"
        )
    return _ARCHITECTURES[name]


def _split(path: Path, tokenizer: dict[str, Any]) -> str:
    outer = tokenizer.get("pre_tokenizer")
    steps = outer.get("pretokenizers", [outer]) if isinstance(outer, dict) else []
    steps = steps if isinstance(steps, list) else []
    patterns = [step.get("pattern") for step in steps if isinstance(step, dict)]
    expressions = [str(found.get("Regex")) for found in patterns if isinstance(found, dict)]
    known = [_SPLITS[expression] for expression in expressions if expression in _SPLITS]
    if not known:
        refuse_file(path, "the way it splits text is not known here", _GIVE_GGUF)
    return known[0]


def _tokens(path: Path, tokenizer: dict[str, Any], size: int) -> tuple[list[str], list[int]]:
    try:
        plain: dict[str, int] = tokenizer["model"]["vocab"]
        added = {entry["id"]: entry for entry in tokenizer.get("added_tokens", [])}
        named = {index: token for token, index in plain.items()}
        named |= {index: entry["content"] for index, entry in added.items()}
        highest = max(named)
        whole = all(
            isinstance(token, str) and isinstance(index, int) and index >= 0
            for index, token in named.items()
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        highest, whole = 0, False
    if not whole:
        refuse_file(path, "it has no vocabulary of strings and numbers", _GIVE_GGUF)
    if highest >= size:
        refuse_file(
            path, f"it has a token {highest}", f"expected below vocab_size = {size}; {_GIVE_GGUF}"
        )
    if len(named) < size * (1 - _MAX_UNNAMED):
        fault = f"it has {len(named)} tokens, and vocab_size is {size}"
        refuse_file(path, fault, f"expected the tokenizer of the same model; {_GIVE_GGUF}")
    tokens = [named.get(index, f"[PAD{index}]") for index in range(size)]
    return tokens, [_kind(index, named, added) for index in range(size)]


def _kind(index: int, named: dict[int, str], added: dict[int, Any]) -> int:
    if index not in named:
        return _UNUSED
    if index not in added:
        return _NORMAL
    text = named[index]
    # some models mark control tokens as ordinary ones
    looks = text in {"<pad>", "<mask>"} or (text.startswith("<|") and text.endswith("|>"))
    return _CONTROL if added[index].get("special") or looks else _USER_DEFINED
