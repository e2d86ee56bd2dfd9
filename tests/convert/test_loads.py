"""llama.cpp's loader, which is strict about types, takes every made case."""

from __future__ import annotations

from pathlib import Path

import gguf
import llama_cpp
import pytest

from dflash_gguf._native import core
from dflash_gguf.convert import convert
from dflash_gguf.gguf_file import GgufFile

from .cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_llama_cpp_loads_it(case: Case, tmp_path: Path) -> None:
    core()
    if case.mask:
        pytest.importorskip("torch")
    draft, target = case.write(tmp_path)
    for written in convert(draft, target):
        model = llama_cpp.llama_model_load_from_file(
            str(written.path).encode(), llama_cpp.llama_model_default_params()
        )
        assert model, written.path
        try:
            assert llama_cpp.llama_model_n_layer(model) == case.whole_config["num_hidden_layers"]
            assert llama_cpp.llama_model_n_embd(model) == case.whole_config["hidden_size"]
        finally:
            llama_cpp.llama_model_free(model)


def test_gguf_py_reads_the_same(tmp_path: Path) -> None:
    draft, target = CASES[1].write(tmp_path)
    for written in convert(draft, target):
        theirs = gguf.GGUFReader(written.path)
        with GgufFile(written.path) as ours:
            assert [tensor.name for tensor in theirs.tensors] == list(ours.tensors)
            for tensor in theirs.tensors:
                info = ours.tensors[tensor.name]
                assert (tensor.tensor_type.name, tensor.data_offset) == (
                    info.type.name,
                    info.offset,
                )
                assert tuple(tensor.shape.tolist()) == info.shape
                assert tensor.data.tobytes() == ours.data(tensor.name)
            keys = [key for key in theirs.fields if not key.startswith("GGUF.")]
            assert keys == list(ours.fields)
            for key in keys:
                assert theirs.fields[key].contents() == ours.value(key), key
