"""llama.cpp's loader, which is strict about types, takes every made case."""

from __future__ import annotations

from pathlib import Path

import llama_cpp
import pytest

from dflash_gguf._native import core
from dflash_gguf.convert import convert

from .cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_llama_cpp_loads_it(case: Case, tmp_path: Path) -> None:
    core()
    draft, target = case.write(tmp_path)
    for written in convert(draft, target):
        model = llama_cpp.llama_model_load_from_file(
            str(written.path).encode(), llama_cpp.llama_model_default_params()
        )
        assert model, written.path
        try:
            assert llama_cpp.llama_model_n_layer(model) == case.config["num_hidden_layers"]
            assert llama_cpp.llama_model_n_embd(model) == case.config["hidden_size"]
        finally:
            llama_cpp.llama_model_free(model)
