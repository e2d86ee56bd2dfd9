"""What the names of a repository's files say: quants, parts, and files that are no model."""

from __future__ import annotations

import pytest

from dflash_gguf.gguf_names import asked_for, is_drafter_name, models, quant_of


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("Qwen3.5-9B-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", "Q4_K_M"),
        ("Model.Q8_0.gguf", "Q8_0"),
        ("UD-Q4_K_XL/Model-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("BF16/Model-BF16-00001-of-00003.gguf", "BF16"),
        ("F16-tuned-IQ3_XXS.gguf", "IQ3_XXS"),
        ("Model.gguf", None),
        ("Q4all.gguf", None),
    ],
)
def test_quants_of_names(name: str, quant: str | None) -> None:
    assert quant_of(name) == quant


def test_models_among_files() -> None:
    names = [
        "b-Q8_0.gguf",
        "a/x-Q4_0-00002-of-00002.gguf",
        "a/x-Q4_0-00001-of-00002.gguf",
        "README.md",
    ]
    names += [
        "half-Q5_0-00001-of-00002.gguf",
        "mmproj-F16.gguf",
        "x.mmproj-f16.gguf",
        "x-imatrix.gguf",
        "mtp-x.gguf",
    ]
    found = models(names)
    assert [choice.parts for choice in found] == [
        ("a/x-Q4_0-00001-of-00002.gguf", "a/x-Q4_0-00002-of-00002.gguf"),
        ("b-Q8_0.gguf",),
    ]
    for asked in ("q8_0", "Q8_0", "b-q8_0", "B-Q8_0.GGUF"):
        assert asked_for(found, asked) == [found[1]]
    assert asked_for(found, "q8") == []
    assert asked_for(models(["m-UD-Q4_K_XL.gguf"]), "q4_k_xl")


@pytest.mark.parametrize(
    "name", ["z-lab/Qwen3.5-9B-DFlash", "dflash-Qwen-Q8_0.gguf", "a/my.draft.gguf", "lab/x-dspark"]
)
def test_names_of_drafters(name: str) -> None:
    assert is_drafter_name(name)
    assert not is_drafter_name("draughts/Qwen3.5-9B-GGUF")
    assert not is_drafter_name("dflash/target.gguf")
