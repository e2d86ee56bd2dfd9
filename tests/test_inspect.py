"""`inspect`: what it says of our files, of forks' and older ones, of odd ones, and of pairs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_gguf.convert import convert
from dflash_gguf.errors import ModelError
from dflash_gguf.inspection import Report, inspect_file, render

from .convert.cases import CASES
from .convert.made import MASK, VOCAB, make_target
from .support.edited import edited

BY_NAME = {case.name: case for case in CASES}


def made(name: str, folder: Path, kind: str = "bf16") -> tuple[Path, Path]:
    """A case's drafter GGUF and target."""
    draft, target = BY_NAME[name].write(folder)
    (written,) = convert(draft, target, outtypes=[kind])
    return written.path, target


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return made("windows", tmp_path_factory.mktemp("inspect"))


def about(report: Report, part: str) -> list[str]:
    return [text for text in report.oddities if part in text]


@pytest.mark.parametrize(
    ("name", "family"),
    [("plain", "DFlash"), ("dflash2", "DFlash2"), ("dspark-reduced", "DSpark"), ("tied", "DFlash")],
)
def test_families(name: str, family: str, tmp_path: Path) -> None:
    report = inspect_file(made(name, tmp_path)[0])
    assert report.family == family
    assert (report.tokens, report.mask_token_id) == (VOCAB, MASK)
    assert not about(report, "unknown")
    assert not about(report, "missing")
    assert all(key.meaning for key in report.keys)


def test_a_layout_that_is_not_driven_is_said_without_a_target(tmp_path: Path) -> None:
    path, _ = made("dspark-reduced", tmp_path)
    changed = edited(path, tmp_path / "e.gguf", change={"dflash.hyper_connection_count": 4})
    assert about(inspect_file(changed), "DeepSeek-V4's DSpark drafters are not driven")
    assert not about(inspect_file(path), "not driven")


def test_sizes_and_types(tmp_path: Path) -> None:
    path, _ = made("plain", tmp_path, "q5_k_m")
    report = inspect_file(path)
    tensors = gguf.GGUFReader(path).tensors
    assert report.bytes == path.stat().st_size
    assert report.parameters == sum(int(tensor.n_elements) for tensor in tensors)
    assert {share.type: share.tensors for share in report.types} == {
        "Q5_K": 20,
        "Q6_K": 2,
        "F32": 14,
    }
    assert sum(share.bytes for share in report.types) == sum(int(t.n_bytes) for t in tensors)
    assert report.origin["dflash_gguf.source.files"] == ["model.safetensors"]


def test_what_each_layer_sees(pair: tuple[Path, Path]) -> None:
    report = inspect_file(pair[0])
    assert [(layer.window, layer.trained_causal) for layer in report.layers] == [
        (64, True),
        (64, True),
        (None, False),
    ]
    assert report.trained_known
    assert [layer.llama_cpp_causal for layer in report.layers] == [False] * 3
    assert about(report, "layers 0, 1 were trained causal inside the block")
    text = render(report)
    assert "0: sees the last 64 tokens, trained causal, in llama.cpp bidirectional" in text
    assert "reads the outputs of the target's layers 1, 4" in text


@pytest.mark.parametrize("causal", [True, False])
def test_one_mask_for_all_layers(causal: bool, pair: tuple[Path, Path], tmp_path: Path) -> None:
    change = {"dflash.attention.causal": causal}
    path = edited(pair[0], tmp_path / "e.gguf", change=change, drop=("dflash_gguf.layer_causal",))
    report = inspect_file(path)
    assert {(layer.trained_causal, layer.llama_cpp_causal) for layer in report.layers} == {
        (causal, causal)
    }
    assert report.trained_known
    assert not about(report, "one mask")


def test_another_converters_file(pair: tuple[Path, Path], tmp_path: Path) -> None:  # C17
    ours = ("dflash_gguf.layer_causal", "dflash_gguf.version")
    report = inspect_file(edited(pair[0], tmp_path / "e.gguf", drop=ours))
    assert not report.trained_known
    assert [layer.trained_causal for layer in report.layers] == [True, True, False]
    assert about(report, "by the reference's rule")
    assert about(report, "made by another converter")
    assert "the file does not tell" in render(report)


@pytest.mark.parametrize("fork", ["dflash-draft", "dspark"])
def test_forks_formats(fork: str, pair: tuple[Path, Path], tmp_path: Path) -> None:  # L1
    path = edited(pair[0], tmp_path / "fork.gguf", arch=fork)
    report = inspect_file(path, pair[1])
    assert report.family == f"fork's format '{fork}'"
    assert about(report, "a fork's format, which mainline llama.cpp and dflash-gguf do not read")
    assert report.fit is not None
    assert not report.fit.fits


def test_a_target_is_told_apart(pair: tuple[Path, Path]) -> None:
    report = inspect_file(pair[1])
    assert report.family == "not a drafter"
    assert about(report, "this may be a target")


MISSING = ["dflash.target_layers", "dflash.rope.freq_base", "tokenizer.ggml.mask_token_id"]


@pytest.mark.parametrize("key", [*MISSING, "dflash.attention.sliding_window_pattern"])
def test_missing_keys(key: str, pair: tuple[Path, Path], tmp_path: Path) -> None:  # C17
    report = inspect_file(edited(pair[0], tmp_path / "e.gguf", drop=(key,)))
    assert about(report, f"the key {key} is missing")


def test_several_faults_are_all_told(pair: tuple[Path, Path], tmp_path: Path) -> None:
    path = edited(
        pair[0],
        tmp_path / "e.gguf",
        drop=tuple(MISSING[:2]),
        change={"dflash.rope.dimension_count": 16, "tokenizer.ggml.mask_token_id": VOCAB},
        add_tensors=("token_embd.weight", "blk.7.attn_q.weight"),
    )
    report = inspect_file(path)
    for part in (*MISSING[:2], "only 16 of 64 values of a head rotate", "1 tensors are unknown"):
        assert about(report, part), part
    assert about(report, f"the mask token {VOCAB} is outside the vocabulary")
    assert about(report, "takes the embeddings for the head too")


def test_a_missing_tensor(pair: tuple[Path, Path], tmp_path: Path) -> None:
    path = edited(pair[0], tmp_path / "e.gguf", change={"dflash.block_count": 4})
    assert about(inspect_file(path), "10 tensors are missing, such as blk.3.attn_k.weight")


def test_pairs_that_fit_and_do_not(pair: tuple[Path, Path], tmp_path: Path) -> None:  # L5
    fit = inspect_file(*pair).fit
    assert fit is not None
    assert (fit.fits, fit.reason) == (True, "")
    other = make_target(tmp_path / "wide.gguf", hidden=512)
    fit = inspect_file(pair[0], other).fit
    assert fit is not None
    assert not fit.fits
    assert "hidden size 256, but" in fit.reason
    assert "512" in fit.reason


def test_only_a_file_that_is_no_gguf_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"nothing")
    with pytest.raises(ModelError, match="expected b'GGUF'"):
        inspect_file(path)
    with pytest.raises(ModelError):
        inspect_file(tmp_path / "none.gguf")


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.integers(0, 2**31 - 1),
    st.floats(width=32),
    st.text(max_size=5),
    st.lists(st.integers(-5, 5), min_size=1, max_size=5),
)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_value_under_any_key_is_reported(pair: tuple[Path, Path], data: st.DataObject) -> None:
    names = [key.key for key in inspect_file(pair[0]).keys]
    key = data.draw(st.sampled_from([*names, "dflash.attention.causal", "dflash.unheard_of"]))
    path = pair[0].parent / "drawn.gguf"
    value = data.draw(VALUES)
    edited(pair[0], path, drop=(key,), change={})
    edited(path, path.with_suffix(".2"), change={key: value})
    report = inspect_file(path.with_suffix(".2"), pair[1])
    assert json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert key in render(report)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dflash_gguf", "inspect", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")


def test_the_command_line(pair: tuple[Path, Path], tmp_path: Path) -> None:
    done = run(pair[0], "--target", pair[1])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == render(inspect_file(*pair))
    done = run(pair[0], "--target", make_target(tmp_path / "t.gguf", hidden=512), "--json")
    assert (done.returncode, done.stderr) == (3, "")
    document = json.loads(done.stdout)
    assert document["family"] == "DFlash"
    assert document["layers"][2] == {
        "index": 2,
        "window": None,
        "trained_causal": False,
        "llama_cpp_causal": False,
    }
    assert document["fit"]["fits"] is False
    done = run(tmp_path / "none.gguf")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_file_without_tensors(tmp_path: Path) -> None:
    path = tmp_path / "bare.gguf"
    writer = gguf.GGUFWriter(path, "dflash")
    writer.add_tensor("fc.weight", np.zeros((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    report = inspect_file(path)
    assert about(report, "the key dflash.block_count is missing")
    assert about(report, "2 tensors are missing, such as enc.output_norm.weight")
    assert report.layers == []
