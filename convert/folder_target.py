"""A target given as a Hugging Face folder: its config and tokenizer, written down as a GGUF without tensors.

Never its weights. The way a tokenizer splits text is known by the regular expression in tokenizer.json; of a
target whose expression is not listed here, the GGUF is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..gguf_file import GgufFile
from .faults import refuse, refuse_file
from .files import read_json
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

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5  # llama.cpp's kinds of tokens
_GIVE_GGUF = "give the target's GGUF"


@contextmanager
def open_target(target: Path) -> Iterator[GgufFile]:
    """Open a target's GGUF, or a description of a folder's model as one.

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
    with TemporaryDirectory(prefix="dflash-gguf-") as folder:
        path = Path(folder) / "target.gguf"
        _write_description(target, path)
        with GgufFile(path) as file:
            file.path = target / "config.json"  # for errors
            yield file


def _write_description(folder: Path, path: Path) -> None:
    import gguf

    config = read_json(folder / "config.json")
    architecture = _architecture(folder, config)
    inner = config.get("text_config", config)
    if not isinstance(inner, dict):
        refuse(f"{folder / 'config.json'}: text_config is no object; {_GIVE_GGUF}")
    keys = Keys(inner, str(folder / "config.json"))
    tokenizer = read_json(folder / "tokenizer.json")
    size = keys.count("vocab_size", keys.top("vocab_size"), limit=1 << 22)
    tokens, kinds = _tokens(folder / "tokenizer.json", tokenizer, size)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(keys.count("num_hidden_layers", keys.top("num_hidden_layers")))
    writer.add_embedding_length(keys.count("hidden_size", keys.top("hidden_size")))
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
