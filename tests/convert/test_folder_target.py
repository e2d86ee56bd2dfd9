"""A target given as a Hugging Face folder: the tokenizer mainline's converter writes, or a clear line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf.convert import convert
from dflash_gguf.errors import ConvertError
from dflash_gguf.gguf_file import GgufFile

from .cases import CASES
from .made import CHAT_TEMPLATE, EOS, VOCAB, make_checkpoint, make_config, vocabulary
from .regenerate_golden import GOLDEN, digest_keys

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN2 = (
    CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN35 = (
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def make_tokenizer(split: str = QWEN2) -> dict[str, Any]:
    tokens, merges = vocabulary()
    specials = [
        {"id": index, "content": text, "special": True}
        for index, text in enumerate(tokens)
        if index >= EOS
    ]
    return {
        "added_tokens": specials,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated"},
                {"type": "ByteLevel", "add_prefix_space": False},
            ],
        },
        "model": {
            "type": "BPE",
            "vocab": {text: index for index, text in enumerate(tokens[:EOS])},
            "merges": [merge.split(" ") for merge in merges],
        },
    }


def make_folder(
    folder: Path, tokenizer: dict[str, Any] | None = None, nested: bool = False, **changes: Any
) -> Path:
    folder.mkdir(exist_ok=True)
    inner = {"vocab_size": VOCAB, "hidden_size": 256, "num_hidden_layers": 8, **changes}
    config: dict[str, Any] = {"architectures": ["Qwen3ForCausalLM"]}
    if nested:
        config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": inner}
    else:
        config |= inner
    described = {"eos_token": "<|special_0|>", "chat_template": CHAT_TEMPLATE}
    for name, value in (
        ("config.json", {**config, "eos_token_id": EOS}),
        ("tokenizer.json", tokenizer or make_tokenizer()),
        ("tokenizer_config.json", described),
    ):
        (folder / name).write_text(json.dumps(value))
    return folder


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "small", make_config())


def test_the_same_keys_as_mainline(tmp_path: Path) -> None:
    gold = json.loads(GOLDEN.read_text())["cases"]["plain"]["keys"]
    draft, _ = CASES[0].write(tmp_path)
    (written,) = convert(draft, make_folder(tmp_path / "hf"), outtypes=["bf16"])
    assert digest_keys(written.path) == gold
    assert sorted(path.name for path in (tmp_path / "hf").iterdir()) == [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_a_nested_config(draft: Path, tmp_path: Path) -> None:  # C19
    folder = make_folder(tmp_path / "hf", make_tokenizer(QWEN35), nested=True)
    (written,) = convert(draft, folder, outtypes=["bf16"])
    with GgufFile(written.path) as file:
        assert file.string("tokenizer.ggml.pre") == "qwen35"
        assert file.array("dflash.rope.dimension_sections") == [32, 0, 0, 0]
    make_folder(folder, nested=True, hidden_size=512)
    with pytest.raises(
        ConvertError, match=r"hidden_size is 256, but the embedding_length of .*512"
    ):
        convert(draft, folder, force=True)


def test_tokens_that_are_not_there(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer["added_tokens"][1] |= {"content": "<think>", "special": False}
    tokenizer["added_tokens"][2] |= {"special": False}
    del tokenizer["added_tokens"][-1]
    draft = make_checkpoint(tmp_path / "d", make_config())
    folder = make_folder(tmp_path / "hf", tokenizer)
    (written,) = convert(draft, folder, outtypes=["bf16"])
    with GgufFile(written.path) as file:
        tokens, kinds = (file.array(f"tokenizer.ggml.{key}") for key in ("tokens", "token_type"))
    assert (tokens[EOS + 1], kinds[EOS + 1]) == ("<think>", 4)
    assert (tokens[EOS + 2], kinds[EOS + 2]) == ("<|special_2|>", 3)
    assert (tokens[-1], kinds[-1]) == (f"[PAD{VOCAB - 1}]", 5)


def test_folders_that_take_a_gguf(draft: Path, tmp_path: Path) -> None:
    bad: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (make_tokenizer("[a-z]+"), {}, "the way it splits text is not known here"),
        ({"model": {}}, {}, "it has no vocabulary of strings and numbers"),
        ({"model": {"vocab": {"a": "b"}}}, {}, "it has no vocabulary of strings and numbers"),
        (
            make_tokenizer(),
            {"vocab_size": 310},
            "it has a token 319; expected below vocab_size = 310",
        ),
        (
            make_tokenizer(),
            {"architectures": ["GemmaForCausalLM"]},
            "the architecture is 'GemmaForC",
        ),
        (make_tokenizer(), {"hidden_size": None}, "hidden_size is missing"),
    ]
    for tokenizer, changes, said in bad:
        folder = make_folder(tmp_path / "hf", tokenizer, **changes)
        with pytest.raises(ConvertError) as error:
            convert(draft, folder)
        assert said in str(error.value)
        assert str(folder) in str(error.value)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConvertError, match=r"hf: it is a folder without tokenizer\.json; give"):
        convert(draft, folder)
    assert not list(draft.glob("*.gguf"))
