"""Shapes of every type: the tensors, types and bytes that llama.cpp's own tools would make, and that they load."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import pytest

import dflash_gguf
from dflash_gguf.convert.types import OUTPUT_TYPES
from dflash_gguf.gguf_file import GgufFile
from dflash_gguf.shapes import Shape, write_shape

from .support.shapes import MINI

# layers enough for a mix to give some of them other types than the rest
DEEP = replace(MINI, name="deep", layers=12)
UNTIED = replace(DEEP, name="untied", tied=False)
MTP = replace(DEEP, name="deep", mtp=True)
QUANTISED = ("q8_0", "q4_0", "q4_k_m", "q5_k_m")
EXTRA = f"blk.{DEEP.layers}."


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[Shape, Path]:
    folder = tmp_path_factory.mktemp("plain")
    return {
        shape: write_shape(shape, folder, outtype="f32").target_path
        for shape in (DEEP, UNTIED, MTP)
    }


@pytest.mark.parametrize("shape", [DEEP, UNTIED, MTP], ids=["tied", "untied", "mtp"])
@pytest.mark.parametrize("kind", QUANTISED)
def test_the_file_is_what_llama_cpp_quantises_the_f32_one_to(
    tmp_path: Path, plain: dict[Shape, Path], shape: Shape, kind: str
) -> None:
    ours = write_shape(shape, tmp_path, outtype=kind).target_path
    theirs = tmp_path / "theirs.gguf"
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = OUTPUT_TYPES[kind].file_type
    params.nthread = 2
    names = (str(plain[shape]).encode(), str(theirs).encode())
    assert llama_cpp.llama_model_quantize(*names, params) == 0
    with GgufFile(ours) as a, GgufFile(theirs) as b:
        assert list(a.tensors) == list(b.tensors)
        for name, info in a.tensors.items():
            assert info.type == b.tensors[name].type, name
            assert a.data(name) == b.data(name), name
        other = {key for key in a.fields if a.raw(key) != b.raw(key)}
        assert other == {"dflash_gguf.shape"}  # which says the type
        types = {info.type.name for info in a.tensors.values()}
    if kind.endswith("_m"):
        assert len(types) > 2, types


def test_a_bf16_file_keeps_in_f32_what_the_converter_keeps(tmp_path: Path) -> None:
    target = write_shape(MTP, tmp_path).target_path
    with GgufFile(target) as file:
        for name, info in file.tensors.items():
            matrix = len(info.shape) > 1 and "norm" not in name and "conv1d" not in name
            assert info.type.name == ("BF16" if matrix else "F32"), name


def test_a_next_token_layer_stands_behind_the_others(tmp_path: Path) -> None:
    with GgufFile(write_shape(MTP, tmp_path).target_path) as file:
        assert file.path.name == "deep-shape-mtp-BF16.gguf"
        assert file.integer("qwen35.block_count") == 13
        assert file.integer("qwen35.nextn_predict_layers") == 1
        recurrent = file.array("qwen35.attention.recurrent_layers")
        assert recurrent == [True, True, True, False] * 3 + [False]
        extra = {name.removeprefix(EXTRA) for name in file.tensors if name.startswith(EXTRA)}
        tables = [name for name in file.tensors if "embed_tokens" in name or "head_head" in name]
        assert file.tensors[f"{EXTRA}nextn.eh_proj.weight"].shape == (512, 256)
    assert extra == {
        *("attn_norm.weight", "attn_q.weight", "attn_k.weight", "attn_v.weight"),
        *("attn_output.weight", "attn_q_norm.weight", "attn_k_norm.weight"),
        *("post_attention_norm.weight", "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"),
        *("nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight"),
        "nextn.shared_head_norm.weight",
    }
    assert tables == []  # it shares the target's


def test_tensors_are_named_as_llama_cpps_converter_names_them(tmp_path: Path) -> None:
    """Against the list that the package `gguf`, with which the converter writes, has for the architecture."""
    known = {gguf.TENSOR_NAMES[kind] for kind in gguf.MODEL_TENSORS[gguf.MODEL_ARCH.QWEN35]}
    known |= {gguf.TENSOR_NAMES[kind] for kind in gguf.MODEL_TENSOR if "NEXTN" in kind.name}
    with GgufFile(write_shape(MTP, tmp_path).target_path) as file:
        for name in file.tensors:
            bare = re.sub(r"^blk\.\d+\.", "blk.{bid}.", re.sub(r"\.(weight|bias)$", "", name))
            assert bare in known, name


@pytest.mark.parametrize("outtype", ["bf16", "q4_0"])  # mixes depend on the number of layers
def test_an_engine_runs_beside_a_next_token_layer_as_without(tmp_path: Path, outtype: str) -> None:
    """The layer is not used: the same text as from the same file without it."""
    texts = []
    for shape in (MTP, DEEP):
        made = write_shape(shape, tmp_path, outtype=outtype)
        with dflash_gguf.load(
            made.target_path, made.draft.path, threads=1, context=512, block=8, max_block=8
        ) as engine:
            assert engine.plan is not None
            weights = engine.plan.of("target weights")
            answer = engine.generate([3, 77, 150, 9], max_tokens=40, ignore_end=True)
        assert answer.stats is not None
        assert answer.stats.drafted > 0
        texts.append(
            (answer.tokens, weights, engine.plan.of("target cache", "states", "snapshots"))
        )
    assert texts[0] == texts[1]


def test_a_next_token_layers_rows_are_its_own(tmp_path: Path) -> None:
    reader = gguf.GGUFReader(write_shape(MTP, tmp_path, outtype="f32").target_path)
    found = {tensor.name: np.array(tensor.data) for tensor in reader.tensors}
    for name in ("attn_q.weight", "ffn_up.weight"):
        assert (found[f"{EXTRA}{name}"] != found[f"blk.11.{name}"]).any()
    for name in ("enorm", "hnorm", "shared_head_norm"):
        assert abs(found[f"{EXTRA}nextn.{name}.weight"].mean() - 1) < 0.05
