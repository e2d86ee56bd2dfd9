"""DFlash2 and DSpark drafters, and those with embeddings or rotations of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_gguf.convert import Written, convert
from dflash_gguf.errors import ConvertError
from dflash_gguf.gguf_file import GgufFile

from .made import (
    MASK,
    VOCAB,
    Weights,
    make_checkpoint,
    make_config,
    make_d2t,
    make_mask,
    make_tables,
    make_target,
    make_values,
    make_weights,
)

SPARK: dict[str, Any] = {"markov_rank": 32, "block_size": 8, "sample_from_anchor": True}
REDUCED = {**SPARK, "draft_vocab_size": 100}


def run(
    folder: Path,
    changes: dict[str, Any],
    extra: Weights | None = None,
    tables: str | None = None,
    left_out: str | None = None,
) -> Written:
    """Convert a made checkpoint to f32; `tables` is the type of the target's weights, if it has any."""
    config = make_config(**changes)
    weights = make_weights(config, "F32") | (extra or {})
    if left_out:
        del weights[left_out]
    draft = make_checkpoint(folder / "d", config, weights=weights)
    tensors = make_tables(256, tables) if tables else None
    target = make_target(folder / "t.gguf", tensors=tensors, architecture="qwen3")
    (written,) = convert(draft, target, outtypes=["f32"], force=True)
    return written


def refused(folder: Path, *arguments: Any, **options: Any) -> str:
    with pytest.raises(ConvertError) as error:
        run(folder, *arguments, **options)
    assert not list((folder / "d").glob("*.gguf*"))
    return str(error.value)


def values_of(path: Path, name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    with GgufFile(path) as file:
        return np.frombuffer(file.data(name), "<f4").reshape(file.tensors[name].shape[::-1])


def test_d2t_is_written_as_token_ids(tmp_path: Path) -> None:
    written = run(tmp_path, REDUCED, make_d2t())
    with GgufFile(written.path) as file:
        assert file.tensors["d2t"].type.name == "I64"
        assert np.frombuffer(file.data("d2t"), "<i8").tolist() == [3 * i for i in range(100)]
        assert "t2d" not in file.tensors
        assert file.tensors["output.weight"].shape == (256, 100)


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ([0] * 99 + [VOCAB], f"points at the tokens 0 to {VOCAB + 99}; expected 0 to {VOCAB - 1}"),
        ([-1] + [0] * 99, "points at the tokens -1 to 99"),
        ([1] + [0] * 99, "points at a token twice"),
    ],
)
def test_a_d2t_that_cannot_be(offsets: list[int], said: str, tmp_path: Path) -> None:
    table = ("I64", (100,), np.array(offsets, "<i8").tobytes())
    assert said in refused(tmp_path, REDUCED, {"d2t": table})


def test_a_reduced_head_needs_its_table_and_rows(tmp_path: Path) -> None:
    assert "such as d2t" in refused(tmp_path, REDUCED)
    text = refused(tmp_path, REDUCED, make_d2t(), left_out="lm_head.weight")
    assert "such as lm_head.weight" in text
    assert "d2t has the shape [99], expected [100]" in refused(tmp_path, REDUCED, make_d2t(99))


def test_the_confidence_head_may_be_absent(tmp_path: Path) -> None:
    with GgufFile(run(tmp_path, SPARK).path) as file:
        assert file.boolean("dflash.has_confidence_head")
    config = make_config(**SPARK)
    weights = make_weights(config)
    for part in ("weight", "bias"):
        del weights[f"confidence_head.proj.{part}"]
    draft = make_checkpoint(tmp_path / "e", config, weights=weights)
    (written,) = convert(draft, tmp_path / "t.gguf", outtypes=["bf16"])
    with GgufFile(written.path) as file:
        assert not file.boolean("dflash.has_confidence_head")


@pytest.mark.parametrize("declared", [True, False, None])
@pytest.mark.parametrize("foreign", [True, False])
def test_the_anchor_layout(declared: bool | None, foreign: bool, tmp_path: Path) -> None:  # C12
    changes: dict[str, Any] = {**SPARK, "sample_from_anchor": declared}
    if foreign:
        changes |= {"aux_hidden_state_layer_ids": [2, 5], "mask_token_id": MASK}
        changes["dflash_config"] = None
    written = run(tmp_path, changes)
    with GgufFile(written.path) as file:
        found = file.boolean("dflash.sample_from_anchor")
        assert file.array("dflash.target_layers") == [2, 5]
    assert found == (declared if declared is not None else not foreign)
    assert any("sample_from_anchor is absent" in text for text in written.warnings) == (
        declared is None
    )


def test_a_markov_rank_that_is_not_the_tensors(tmp_path: Path) -> None:
    config = make_config(**SPARK)
    draft = make_checkpoint(
        tmp_path / "d", {**config, "markov_rank": 16}, weights=make_weights(config)
    )
    with pytest.raises(ConvertError, match=r"markov_w1.weight has the shape \[320, 32\]"):
        convert(draft, make_target(tmp_path / "t.gguf"))


NESTED = {"mask_token_id": MASK, "target_layer_ids": [1, 4]}
SELECTOR = {"conv_kernel_size": 4, "conv_group_size": 64, "selector_rank": 16, "selector_top_k": 8}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("conv_group_size", 96, "conv_group_size is 96; expected a divisor of hidden_size = 256"),
        ("selector_top_k", 16, "selector_top_k is 16; expected k with k * (k + 1) at most"),
        ("selector_rank", None, "selector_rank is missing"),
        ("conv_kernel_size", 0, "conv_kernel_size is 0; expected an integer from 1"),
    ],
)
def test_a_selector_that_cannot_be(key: str, value: Any, said: str, tmp_path: Path) -> None:
    inner = {k: v for k, v in {**NESTED, **SELECTOR, key: value}.items() if v is not None}
    draft = make_checkpoint(tmp_path / "d", make_config(), weights=make_weights(make_config()))
    config = make_config(dflash_config=inner)
    make_checkpoint(draft, config, weights=make_weights(make_config()))
    with pytest.raises(ConvertError) as error:
        convert(draft, make_target(tmp_path / "t.gguf"))
    assert said in str(error.value)


def test_a_convolution_missing_in_one_layer(tmp_path: Path) -> None:
    changes = {"dflash_config": {**NESTED, **SELECTOR}}
    name = "layers.1.mlp_conv.base_kernel"
    assert f"such as {name}" in refused(tmp_path, changes, left_out=name)


def rotate(x: np.ndarray[Any, Any], angles: np.ndarray[Any, Any], *, interleaved: bool) -> Any:
    half = len(x) // 2
    a, b = (x[0::2], x[1::2]) if interleaved else (x[:half], x[half:])
    return (a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles))


def test_deinterleaved_heads_rotate_alike(tmp_path: Path) -> None:
    config = make_config(rope_is_neox_style=False)
    weights = make_weights(config, "F32")
    path = run(tmp_path, {"rope_is_neox_style": False}).path
    x, angles = make_values("x", 256, 2.0), np.linspace(0.1, 3.0, 32)
    for part, heads in (("q", 4), ("k", 2)):
        raw = np.frombuffer(weights[f"layers.1.self_attn.{part}_proj.weight"][2], "<f4")
        theirs = (raw.reshape(-1, 256) @ x).reshape(heads, 64)
        ours = (values_of(path, f"blk.1.attn_{part}.weight") @ x).reshape(heads, 64)
        norm = np.frombuffer(weights[f"layers.1.self_attn.{part}_norm.weight"][2], "<f4")
        own_norm = values_of(path, f"blk.1.attn_{part}_norm.weight")
        for a, b in zip(theirs, ours, strict=True):
            before = rotate(a * norm, angles, interleaved=True)
            after = rotate(b * own_norm, angles, interleaved=False)
            np.testing.assert_allclose(before, after, rtol=1e-6)
    v = np.frombuffer(weights["layers.1.self_attn.v_proj.weight"][2], "<f4")
    assert np.array_equal(values_of(path, "blk.1.attn_v.weight").reshape(-1), v)


TABLE: Weights = {
    "embed_tokens.weight": ("F32", (VOCAB, 256), make_values("own", VOCAB * 256).tobytes())
}


def test_own_embeddings_get_the_targets_head(tmp_path: Path) -> None:
    path = run(tmp_path, {}, TABLE, tables="F32").path
    assert values_of(path, "token_embd.weight").tobytes() == TABLE["embed_tokens.weight"][2]
    head = make_tables(256, "F32")["output.weight"]
    assert values_of(path, "output.weight").tobytes() == head[2]


def test_own_embeddings_without_any_head(tmp_path: Path) -> None:
    text = refused(tmp_path, {}, TABLE)
    assert "it has no tensor token_embd.weight, which a drafter with its own embeddings" in text


def test_embeddings_the_config_leaves_out(tmp_path: Path) -> None:
    with GgufFile(run(tmp_path, {"has_embed_tokens": False}, TABLE).path) as file:
        assert not {"token_embd.weight", "output.weight"} & set(file.tensors)


def test_an_own_head_alone(tmp_path: Path) -> None:
    head = {"lm_head.weight": TABLE["embed_tokens.weight"]}
    with GgufFile(run(tmp_path, {}, head).path) as file:
        assert "token_embd.weight" not in file.tensors
        assert "output.weight" in file.tensors


def masked(folder: Path, tables: str = "F32", **changes: Any) -> tuple[Path, Path]:
    pytest.importorskip("torch")
    draft = make_checkpoint(folder / "m", make_config())
    make_mask(draft / "mask_embedding.pt", 256, **changes)
    return draft, make_target(folder / "t.gguf", tensors=make_tables(256, tables))


def test_a_learned_mask_row(tmp_path: Path) -> None:
    draft, target = masked(tmp_path)
    (written,) = convert(draft, target, outtypes=["f32"])
    table = make_tables(256, "F32")["token_embd.weight"]
    expected = np.frombuffer(table[2], "<f4").reshape(VOCAB, 256).copy()
    expected[MASK] = make_values("mask row", 256)
    assert np.array_equal(values_of(written.path, "token_embd.weight"), expected)
    assert written.warnings == ()


def test_a_learned_mask_row_in_a_quantised_target(tmp_path: Path) -> None:
    draft, _ = masked(tmp_path)
    plain = make_tables(256, "F32")
    from dflash_gguf._native import core

    packed: Weights = {}
    for name, (_, shape, data) in plain.items():
        out = bytearray(VOCAB * 272)
        core().convert_rows(data, 0, out, 8, VOCAB, 256)
        packed[name] = ("Q8_0", shape, bytes(out))
    target = make_target(tmp_path / "q.gguf", tensors=packed)
    (written,) = convert(draft, target, outtypes=["f32"])
    found = values_of(written.path, "token_embd.weight")
    assert np.array_equal(found[MASK], make_values("mask row", 256))
    wanted = np.frombuffer(plain["token_embd.weight"][2], "<f4").reshape(VOCAB, 256)
    assert np.abs(np.delete(found - wanted, MASK, axis=0)).max() < 1e-3
    assert sum("goes into the drafter as it is there, Q8_0" in w for w in written.warnings) == 2


def test_a_mask_row_that_is_not_this_drafters(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for changes, said in (
        ({"mask_token_id": 7}, f"its mask_token_id is 7, in config.json it is {MASK}"),
        ({"embedding": torch.zeros(9)}, r"its embedding has the shape \[9\]; expected \[256\]"),
        ({"embedding": torch.full((256,), torch.inf)}, "its embedding is not finite"),
        ({"embedding": "x"}, "it has no tensor 'embedding'"),
    ):
        draft, target = masked(tmp_path, **changes)
        with pytest.raises(ConvertError, match=said):
            convert(draft, target)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("evil"),))


def test_a_pickle_is_never_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draft, target = masked(tmp_path, embedding=Evil())
    with pytest.raises(ConvertError, match="torch does not read it as weights"):
        convert(draft, target)
    assert not Path("evil").exists()
    for damaged in (b"", b"PK\x03\x04", bytes(100)):
        (draft / "mask_embedding.pt").write_bytes(damaged)
        with pytest.raises(ConvertError, match=r"mask_embedding\.pt: torch does not read it"):
            convert(draft, target)


def test_a_mask_row_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = make_checkpoint(tmp_path / "m", make_config())
    (draft / "mask_embedding.pt").write_bytes(b"anything")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConvertError, match=r"only PyTorch reads it.*run 'pip install torch'"):
        convert(draft, make_target(tmp_path / "t.gguf"))
