"""Mutated targets, GGUFs and Hugging Face folders: KINDS states beforehand what comes of each kind."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dflash_gguf.gguf_file import GgufFile

from .made import vocabulary
from .mutating import Change, Files, Kind, Refused, Sound, check_kind, named
from .mutating_gguf import TARGET, bytes_of, common, keys_of, pairs_of, with_keys
from .mutating_process import check_process

WRONG_KEYS: dict[str, list[Any]] = {
    "general.architecture": [None, 3, "dflash", "dflash-draft", "dspark", "x"],
    "qwen35.embedding_length": [None, "256", -256, 0, 512, [256], 2**40, True, 256.0],
    "qwen35.block_count": [None, "8", 0, 7, 9, -8, [8], 8.0, 2**63],
    "qwen35.nextn_predict_layers": [1, "1", -1, 2**63],
    "tokenizer.ggml.tokens": [None, "x", ["a"], [1, 2], 320, []],
    "tokenizer.ggml.model": [None],
}


def token(files: Files, number: int, random: Random) -> Change:
    """A bit of the first token, which is one byte: the tokenizer is carried over as it stands."""
    data = bytearray(files.target.read_bytes())
    key = "tokenizer.ggml.tokens"
    with GgufFile(files.target) as file:
        field = file.fields[key]
    data[field.offset + 12 + 8] ^= 1 << number
    files.target.write_bytes(data)
    return Change(keys={key: bytes(data[field.offset : field.offset + field.length])})


def weights(data: bytearray, file: GgufFile, number: int, random: Random) -> None:
    info = file.tensors["output.weight"]
    for _ in range(100):
        data[random.randrange(info.offset, info.offset + info.length)] ^= 1 << random.randrange(8)


def version_2(data: bytearray, file: GgufFile, number: int, random: Random) -> None:
    data[4] = 2


def more_keys(files: Files, number: int, random: Random) -> None:
    more = {"general.file_type": 99, "qwen35.rope.freq_base": 1.0, "x" * 1000: [1, 2, 3], "y": ""}
    files.target.write_bytes(with_keys(files.target.read_bytes(), GgufFile(files.target), more))


def drafter_as_target(files: Files, number: int, random: Random) -> None:
    files.target.write_bytes(files.add_drafter())


FOLDERS: list[tuple[str, str, Any]] = [
    ("config.json", "", b""),
    ("config.json", "", b"[]"),
    ("config.json", "", b"\xff"),
    ("tokenizer.json", "", b""),
    ("tokenizer.json", "", b"[1]"),
    ("tokenizer.json", "", b"[" * 100_000),
    ("config.json", "architectures", None),
    ("config.json", "architectures", [["x"]]),
    ("config.json", "vocab_size", 2**62),
    ("config.json", "vocab_size", -1),
    ("config.json", "vocab_size", "320"),
    ("config.json", "vocab_size", 1),
    ("config.json", "text_config", 1),
    ("config.json", "hidden_size", None),
    ("config.json", "num_hidden_layers", 1e9),
    ("tokenizer.json", "model", None),
    ("tokenizer.json", "model", {"vocab": {}}),
    ("tokenizer.json", "model", {"vocab": {"a": -1}}),
    ("tokenizer.json", "model", {"vocab": {"a": "b"}}),
    ("tokenizer.json", "model", {"vocab": [1]}),
    ("tokenizer.json", "added_tokens", [{"id": 2**40, "content": "x"}]),
    ("tokenizer.json", "added_tokens", [{"id": [1], "content": "x"}]),
    ("tokenizer.json", "added_tokens", 3),
    ("tokenizer.json", "pre_tokenizer", [1]),
    ("tokenizer.json", "pre_tokenizer", {"pretokenizers": 1}),
    ("tokenizer.json", "pre_tokenizer", {"pretokenizers": [1, {"pattern": {"Regex": []}}]}),
]


def folder(files: Files, number: int, random: Random) -> None:
    """A target's Hugging Face folder with a file or a value that is something else."""
    tokens, merges = vocabulary()
    vocab = {each: index for index, each in enumerate(tokens)}
    texts: dict[str, Any] = {
        "config.json": {
            "architectures": ["Qwen3ForCausalLM"],
            "vocab_size": len(tokens),
            "hidden_size": 256,
            "num_hidden_layers": 8,
        },
        "tokenizer.json": {"model": {"type": "BPE", "vocab": vocab, "merges": merges}},
    }
    name, key, value = FOLDERS[number]
    if key:
        texts[name][key] = value
    files.target.unlink()
    files.target.mkdir()
    for each, content in texts.items():
        (files.target / each).write_text(json.dumps(content))
    if not key:
        (files.target / name).write_bytes(value)


KINDS = (
    *common(TARGET, "convert"),
    Kind(
        "key of the target",
        Refused("is missing|the key .* is|, but the|it is a drafter|no tokenizer", TARGET),
        keys_of(TARGET, WRONG_KEYS),
        len(pairs_of(WRONG_KEYS)),
    ),
    Kind("drafter as target", Refused("it is a drafter", TARGET), drafter_as_target),
    Kind(
        "folder of the target",
        Refused(r"/(config|tokenizer)\.json: .+; .", TARGET),
        folder,
        len(FOLDERS),
    ),
    Kind("bit of a token", Sound(), token, 8),
    Kind("bits of the target's weights", Sound(), bytes_of(TARGET, weights), 2),
    Kind("version 2", Sound(), bytes_of(TARGET, version_2)),
    Kind("more keys", Sound(), more_keys),
)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_outcome(kind: Kind, tmp_path: Path) -> None:
    check_kind(kind, tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.real], ids=named)
def test_outcome_of_a_process(kind: Kind, tmp_path: Path) -> None:
    check_process(kind, tmp_path)
