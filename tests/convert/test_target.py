"""The target: what is taken from it, and drafters that do not fit it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dflash_gguf.convert import convert
from dflash_gguf.errors import ConvertError, ModelError
from dflash_gguf.gguf_file import GgufFile

from .made import VOCAB, make_checkpoint, make_config, make_target, vocabulary


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "draft", make_config())


@pytest.mark.parametrize(("architecture", "tokenizer"), [("llama", "llama"), ("gemma4", "gemma4")])
def test_any_familys_tokenizer_is_carried_over(
    architecture: str, tokenizer: str, draft: Path, tmp_path: Path
) -> None:  # C8
    target = make_target(tmp_path / "t.gguf", architecture=architecture, tokenizer=tokenizer)
    (written,) = convert(draft, target, outtypes=["bf16"])
    with GgufFile(target) as a, GgufFile(written.path) as b:
        theirs = {key: a.raw(key) for key in a.fields if key.startswith("tokenizer.")}
        ours = {key: b.raw(key) for key in b.fields if key.startswith("tokenizer.")}
        assert ours.pop("tokenizer.ggml.mask_token_id")
        assert ours == theirs
        assert b.string("tokenizer.ggml.model") == tokenizer


MISMATCHES: list[tuple[dict[str, Any], str]] = [
    ({"hidden": 512}, "hidden_size is 256, but the embedding_length of {} is 512"),
    (
        {"tokens": vocabulary()[0][:-1]},
        f"vocab_size is {VOCAB}, but the vocabulary of {{}} is {VOCAB - 1}",
    ),
    (
        {"tokens": vocabulary()[0] + ["[PAD320]"]},
        f"vocab_size is {VOCAB}, but the vocabulary of {{}} is {VOCAB + 1}",
    ),
    ({"layers": 9}, "num_target_layers is 8, but the layer count of {} is 9"),
]


@pytest.mark.parametrize(("changes", "said"), MISMATCHES)
def test_a_pair_that_does_not_fit(
    changes: dict[str, Any], said: str, draft: Path, tmp_path: Path
) -> None:  # L5
    target = make_target(tmp_path / "t.gguf", **changes)
    with pytest.raises(ConvertError) as error:
        convert(draft, target)
    assert said.format(target) in str(error.value)
    assert not list(draft.glob("*.gguf"))


def test_extra_prediction_layers_do_not_count(draft: Path, tmp_path: Path) -> None:
    target = make_target(tmp_path / "t.gguf", layers=9, qwen35__nextn_predict_layers=1)
    assert convert(draft, target, outtypes=["bf16"])


@pytest.mark.parametrize(("taps", "fits"), [([0, 6], True), ([0, 7], False), ([0, 30], False)])
def test_taps_must_lie_in_the_target(taps: list[int], fits: bool, tmp_path: Path) -> None:
    config = make_config(dflash_config={"mask_token_id": 301, "target_layer_ids": taps})
    draft = make_checkpoint(tmp_path / "d", config)
    target = make_target(tmp_path / "t.gguf")
    if fits:
        assert convert(draft, target, outtypes=["bf16"])
    else:
        with pytest.raises(
            ConvertError, match=rf"target_layer_ids has {taps[1]}, but .* has 8 layers"
        ):
            convert(draft, target)


@pytest.mark.parametrize("architecture", ["dflash", "dflash-draft", "dspark"])
def test_a_drafter_as_target(architecture: str, draft: Path, tmp_path: Path) -> None:  # L1
    target = make_target(tmp_path / "t.gguf", architecture=architecture)
    with pytest.raises(ConvertError, match="it is a drafter"):
        convert(draft, target)


def test_a_target_that_is_none(draft: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"missing.gguf: it cannot be read"):
        convert(draft, tmp_path / "missing.gguf")
    with pytest.raises(ModelError, match="expected b'GGUF'"):
        convert(draft, draft / "model.safetensors")
    with pytest.raises(
        ModelError, match=r"it is a folder without config\.json; give the target's GGUF"
    ):
        convert(draft, tmp_path)


def test_a_truncated_target(draft: Path, tmp_path: Path) -> None:
    target = make_target(tmp_path / "t.gguf")
    target.write_bytes(target.read_bytes()[:2000])
    with pytest.raises(ModelError, match=str(target)):
        convert(draft, target)
