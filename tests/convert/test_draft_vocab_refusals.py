"""What makes no head of the drafter's own: refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from dflash_gguf.convert import convert
from dflash_gguf.errors import ConvertError, DflashError, UsageError

from ..support.edited import edited
from .made import (
    EOS,
    VOCAB,
    Weights,
    make_checkpoint,
    make_config,
    make_d2t,
    make_target,
    make_values,
    pack,
)
from .trimmed import (
    HIDDEN,
    SPECIAL,
    head_of,
    run,
    target_of,
)


def refused(kind: type[DflashError], folder: Path, size: int, **options: Any) -> str:
    with pytest.raises(kind) as error:
        run(folder, size, **options)
    assert not list(folder.rglob("*.gguf.*"))
    assert not list((folder / "d").glob("*.gguf"))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_sizes_that_cannot_be(tmp_path: Path) -> None:
    text = refused(UsageError, tmp_path, VOCAB + 1)
    assert f"--draft-vocab is {VOCAB + 1}, but {tmp_path / 't.gguf'} has {VOCAB} tokens" in text
    text = refused(UsageError, tmp_path, len(SPECIAL) - 1)
    assert f"but {len(SPECIAL)} tokens of {tmp_path / 't.gguf'} are special" in text
    assert "expected at least 1 token" in refused(UsageError, tmp_path, 0)
    changes = {
        "architectures": ["DFlash2DraftModel"],
        "dflash_config": {
            **make_config()["dflash_config"],
            "conv_kernel_size": 4,
            "conv_group_size": 64,
            "selector_rank": 32,
            "selector_top_k": 15,
        },
    }
    assert "among 15 candidates" in refused(UsageError, tmp_path, 14, changes=changes)


def test_a_target_without_weights(tmp_path: Path) -> None:
    draft = make_checkpoint(tmp_path / "d", make_config())
    target = make_target(tmp_path / "t.gguf")
    with pytest.raises(ConvertError, match=r"t\.gguf: it has no tensor output\.weight or token_em"):
        convert(draft, target, draft_vocab=100)
    tables = {
        "token_embd.weight": ("F32", (VOCAB, 128), pack(make_values("x", VOCAB * 128), "F32"))
    }
    make_target(tmp_path / "t.gguf", tensors=tables)
    with pytest.raises(ConvertError, match=r"has the shape \[128, 320\]; expected \[256, 320\]"):
        convert(draft, target, draft_vocab=100)
    scaled = edited(target_of(tmp_path), tmp_path / "s.gguf", add_tensors=("output.scale",))
    with pytest.raises(ConvertError, match=r"a scale of its own \(output\.scale\)"):
        convert(draft, scaled, draft_vocab=100)
    assert not list(draft.glob("*.gguf"))


TABLE = ("F32", (VOCAB, HIDDEN), pack(make_values("own table", VOCAB * HIDDEN), "F32"))
SPARK = {"markov_rank": 32, "block_size": 8, "sample_from_anchor": True, "draft_vocab_size": 100}


@pytest.mark.parametrize(
    ("changes", "extra", "said"),
    [
        ({}, {"lm_head.weight": TABLE}, f"one for {VOCAB} tokens"),
        (
            {"tie_word_embeddings": True},
            {"embed_tokens.weight": TABLE},
            "its embeddings are its head",
        ),
        (SPARK, make_d2t(100), "one for 100 tokens"),
    ],
)
def test_a_drafter_with_a_head_of_its_own(
    changes: dict[str, Any], extra: Weights, said: str, tmp_path: Path
) -> None:
    text = refused(ConvertError, tmp_path, 50, changes=changes, extra=extra)
    assert f"the drafter has a head of its own ({said})" in text


def test_texts_that_cannot_be(tmp_path: Path) -> None:
    draft = make_checkpoint(tmp_path / "d", make_config())
    target = target_of(tmp_path)
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(UsageError, match="expected the number of tokens too"):
        convert(draft, target, draft_vocab_text=empty)
    with pytest.raises(ConvertError, match="empty: it is empty"):
        convert(draft, target, draft_vocab=100, draft_vocab_text=empty)
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(ConvertError, match="it cannot be read"):
            convert(draft, target, draft_vocab=100, draft_vocab_text=path)
    empty.write_text("some words")
    with pytest.raises(ConvertError, match="which is read"):
        convert(
            draft,
            target,
            outtypes=["bf16"],
            outfile=empty,
            draft_vocab=100,
            draft_vocab_text=empty,
            force=True,
        )
    assert empty.read_text() == "some words"
    assert not list(draft.glob("*.gguf"))


def test_wishes_that_cannot_be(tmp_path: Path) -> None:
    text = refused(UsageError, tmp_path, 50, tensor_types=["attn_v=q8_0"])
    assert "--tensor-type is for quantised types, not F32" in text
    narrow = {"hidden_size": 192, "num_attention_heads": 3, "num_key_value_heads": 1}
    draft = make_checkpoint(tmp_path / "n", make_config(**narrow))
    table = ("F32", (VOCAB, 192), pack(make_values("t", VOCAB * 192), "F32"))
    target = make_target(
        tmp_path / "n.gguf", architecture="qwen3", hidden=192, tensors={"token_embd.weight": table}
    )
    with pytest.raises(UsageError, match="have 192 values, which Q6_K cannot hold"):
        convert(draft, target, outtypes=["bf16"], draft_vocab=50, tensor_types=["^output=q6_k"])
    (written,) = convert(draft, target, outtypes=["q5_k_m"], draft_vocab=50)
    assert head_of(written.path)[0] == "Q8_0"
    assert any("output.weight Q8_0" in text for text in written.warnings)


def test_a_head_that_is_not_finite(tmp_path: Path) -> None:
    target = target_of(tmp_path)
    reader = gguf.GGUFReader(target, "r+")
    (head,) = (tensor for tensor in reader.tensors if tensor.name == "output.weight")
    head.data[EOS, 3] = np.nan
    reader.data.flush()
    draft = make_checkpoint(tmp_path / "d", make_config())
    with pytest.raises(ConvertError, match=r"t\.gguf: output\.weight: near row .* not a number"):
        convert(draft, target, outtypes=["bf16"], draft_vocab=30)
    assert not list(draft.glob("*.gguf*"))
