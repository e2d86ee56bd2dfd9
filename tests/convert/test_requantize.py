"""`quantize`, wished types and importance matrices: llama-quantize's types and bytes, and what is refused."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dflash_gguf.convert import convert, quantize
from dflash_gguf.errors import ConvertError, ModelError, UsageError
from dflash_gguf.gguf_file import GgufFile

from ..support.edited import edited
from .cases import CASES, RUNS, Run
from .made import make_checkpoint, make_config, make_imatrix, make_target
from .regenerate_golden import GOLDEN, digest_tensors, imatrix_keys, imatrix_of, source_of

GOLD: dict[str, Any] = json.loads(GOLDEN.read_text())

needs_same_machine = pytest.mark.skipif(
    platform.machine() != GOLD["machine"], reason=f"golden K-quants are from {GOLD['machine']}"
)


@needs_same_machine
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_same_as_llama_quantize(run: Run, tmp_path: Path) -> None:
    gold = GOLD["runs"][run.name]
    source = source_of(run, tmp_path)
    imatrix = imatrix_of(run, tmp_path, source) if run.imatrix else None
    written = quantize(
        source,
        tmp_path / "ours.gguf",
        run.kind.upper(),
        tensor_types=run.tensor_types,
        imatrix=imatrix,
        allow_requantize=True,
    )
    assert digest_tensors(written.path) == gold["tensors"]
    assert imatrix_keys(written.path) == gold["keys"]
    with GgufFile(source) as old, GgufFile(written.path) as new:
        changed = {
            key for key in new.fields if key not in old.fields or old.raw(key) != new.raw(key)
        }
        assert {key for key in changed if not key.startswith("quantize.")} <= {"general.file_type"}
        assert not set(old.fields) - set(new.fields)


@needs_same_machine
def test_converting_directly_gives_the_same(tmp_path: Path) -> None:
    for run in RUNS:
        if run.after or run.name == "spark":
            continue
        folder = tmp_path / run.name
        source = source_of(run, folder)
        (written,) = convert(
            folder / run.case.name,
            folder / "target.gguf",
            outfile=folder / "direct.gguf",
            outtypes=[run.kind],
            tensor_types=run.tensor_types,
            imatrix=imatrix_of(run, folder, source) if run.imatrix else None,
        )
        assert digest_tensors(written.path) == GOLD["runs"][run.name]["tensors"], run.name


@pytest.fixture
def source(tmp_path: Path) -> Path:
    draft, target = CASES[0].write(tmp_path)
    (written,) = convert(draft, target, outtypes=["bf16"], outdir=tmp_path / "in")
    return written.path


def left_over(source: Path) -> set[str]:
    return {path.name for path in source.parent.iterdir()} - {source.name}


def test_quantised_tensors_are_kept_from_more_loss(source: Path, tmp_path: Path) -> None:
    first = quantize(source, source.parent / "q8.gguf", "q8_0")
    with pytest.raises(ConvertError, match=r"22 tensors such as fc\.weight are quantised already"):
        quantize(first.path, source.parent / "q4.gguf", "q4_k_m")
    assert left_over(source) == {"q8.gguf"}
    assert quantize(first.path, source.parent / "again.gguf", "q8_0").tensors == first.tensors


def test_the_source_and_existing_files_are_kept(source: Path) -> None:
    before = source.read_bytes()
    with pytest.raises(ConvertError, match="the output would overwrite"):
        quantize(source, source, "q8_0", force=True)
    other = source.parent / "other.gguf"
    other.write_bytes(b"precious")
    with pytest.raises(ConvertError, match="it exists already and is kept"):
        quantize(source, other, "q8_0")
    assert (source.read_bytes(), other.read_bytes()) == (before, b"precious")
    quantize(source, other, "q8_0", force=True)
    assert other.read_bytes()[:4] == b"GGUF"


def test_only_drafters_are_quantised(tmp_path: Path) -> None:
    target = make_target(tmp_path / "t.gguf")
    with pytest.raises(ConvertError, match=r"expected a DFlash drafter's GGUF; use llama\.cpp's"):
        quantize(target, tmp_path / "out.gguf", "q8_0")


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("fc", "expected NAME=TYPE"),
        ("=q8_0", "expected NAME=TYPE"),
        ("fc=", "unknown type ''"),
        ("fc=q8", "unknown type 'q8'; expected one of f32"),
        ("fc=i64", "unknown type 'i64'"),
        ("fc=iq2_xxs", "unknown type 'iq2_xxs'"),
        ("a(b=q8_0", "is no regular expression"),
        ("attn_x=q8_0", "no matrix of the drafter has that name"),
        ("output_norm=q8_0", "no matrix of the drafter has that name"),
    ],
)
def test_wishes_that_cannot_be(wish: str, said: str, source: Path) -> None:
    with pytest.raises(UsageError) as error:
        quantize(source, source.parent / "out.gguf", "q5_k_m", tensor_types=[wish])
    assert said in str(error.value)
    assert f"--tensor-type '{wish}'" in str(error.value)
    assert not left_over(source)


def test_wishes_and_weights_are_for_quantised_types(source: Path) -> None:
    with pytest.raises(UsageError, match="--tensor-type is for quantised types, not BF16"):
        quantize(source, source.parent / "out.gguf", "bf16", tensor_types=["fc=q8_0"])
    with pytest.raises(UsageError, match="--imatrix is for quantised types, not F16"):
        quantize(source, source.parent / "out.gguf", "f16", imatrix="x")


def test_a_wish_whose_blocks_do_not_fit(tmp_path: Path) -> None:  # C15
    config = make_config(
        hidden_size=192, intermediate_size=1000, num_attention_heads=3, num_key_value_heads=1
    )
    draft = make_checkpoint(tmp_path / "d", config)
    target = make_target(tmp_path / "t.gguf", hidden=192)
    wishes = ["ffn_down=q4_k", "ffn_up=q8_0"]
    (written,) = convert(draft, target, outtypes=["q8_0"], tensor_types=wishes)
    types = {tensor.name: tensor.type for tensor in written.tensors}
    assert types["blk.0.ffn_down.weight"] == "F16"
    assert types["blk.0.ffn_up.weight"] == "Q8_0"
    (warning,) = written.warnings
    assert "blk.0.ffn_down.weight F16" in warning
    assert "ffn_up" not in warning


def test_importance_of_another_model(source: Path, tmp_path: Path) -> None:
    small = make_config(hidden_size=128, num_attention_heads=2, num_key_value_heads=1)
    other = make_checkpoint(tmp_path / "other", small)
    target = make_target(tmp_path / "t.gguf", hidden=128)
    (written,) = convert(other, target, outtypes=["bf16"])
    imatrix = make_imatrix(tmp_path / "i.gguf", written.path)
    with pytest.raises(
        ConvertError, match=r"it has \d+ values for .*; expected \d+: is it of another"
    ):
        quantize(source, source.parent / "out.gguf", "q5_k_m", imatrix=imatrix)
    assert not left_over(source)


def test_damaged_importance(source: Path, tmp_path: Path) -> None:
    whole = make_imatrix(tmp_path / "i.gguf", source)
    legacy = make_imatrix(tmp_path / "i.dat", source, legacy=True).read_bytes()
    path = tmp_path / "bad"
    bad: list[tuple[bytes, str]] = [
        (b"", "neither a GGUF nor a whole .dat"),
        (b"\x00" * 4, "neither a GGUF nor a whole .dat"),
        (b"\xff" * 64, "neither a GGUF nor a whole .dat"),
        (legacy[:500], "neither a GGUF nor a whole .dat"),
        (whole.read_bytes()[:5000], "bad: "),
        (source.read_bytes(), "the key imatrix.datasets is missing"),
    ]
    for data, said in bad:
        path.write_bytes(data)
        with pytest.raises(ModelError) as error:
            quantize(source, source.parent / "out.gguf", "q5_k_m", imatrix=path)
        assert said in str(error.value)
        assert not left_over(source)
    with pytest.raises(ConvertError, match="it cannot be read"):
        quantize(source, source.parent / "out.gguf", "q5_k_m", imatrix=tmp_path / "none")


def test_importance_that_is_not_finite(source: Path, tmp_path: Path) -> None:
    path = make_imatrix(tmp_path / "i.gguf", source)
    with GgufFile(path) as file:
        at = file.tensors["fc.weight.in_sum2"].offset
    data = bytearray(path.read_bytes())
    data[at : at + 4] = np.float32("nan").tobytes()
    path.write_bytes(data)
    with pytest.raises(ConvertError, match=r"a value for fc\.weight is infinite or not a number"):
        quantize(source, source.parent / "out.gguf", "q5_k_m", imatrix=path)


def test_keys_that_cannot_be(source: Path, tmp_path: Path) -> None:
    for key, value in (("dflash.block_count", 0), ("dflash.embedding_length", 0)):
        path = edited(source, tmp_path / "edited.gguf", change={key: value})
        with pytest.raises(ConvertError, match=f"the key {key} is 0"):
            quantize(path, tmp_path / "out.gguf", "q5_k_m")
