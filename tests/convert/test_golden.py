"""Byte for byte what mainline's converter and llama-quantize write, but for the differences listed."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf.convert import convert

from .cases import CASES, OURS, Case
from .regenerate_golden import CONVERTED, GOLDEN, digest_keys, digest_tensors

GOLD: dict[str, Any] = json.loads(GOLDEN.read_text())

# K-quants are sums of floats: another architecture's compiler may contract them otherwise
needs_same_machine = pytest.mark.skipif(
    platform.machine() != GOLD["machine"], reason=f"golden K-quants are from {GOLD['machine']}"
)

# mainline's converter writes these with numpy and falls back otherwise than llama-quantize does
FALLS_BACK_APART = {("rows", "q8_0")}

# in q8_0 mainline's converter quantises this single row, llama-quantize does not
SINGLE_ROW = {"conf_proj.weight"}


def outputs(case: Case, folder: Path, types: Collection[str]) -> dict[str, Path]:
    if case.mask:
        pytest.importorskip("torch")
    draft, target = case.write(folder)
    written = convert(draft, target, outdir=folder / "out", outtypes=list(types))
    return {output.type.lower(): output.path for output in written}


def differing(ours: dict[str, str], theirs: dict[str, str]) -> set[str]:
    return {name for name in ours | theirs if ours.get(name) != theirs.get(name)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_as_mainlines_converter(case: Case, tmp_path: Path) -> None:
    gold = GOLD["cases"][case.name]
    for kind, path in outputs(case, tmp_path, CONVERTED).items():
        if (case.name, kind) not in FALLS_BACK_APART:
            theirs = gold["converted"][kind]
            known = SINGLE_ROW & theirs.keys() if kind == "q8_0" else set()
            tensors = differing(digest_tensors(path), theirs)
            assert tensors == set(case.tensor_differences) | known, kind
        assert differing(digest_keys(path), gold["keys"]) == set(case.differences), kind


# a mix depends on which tensors there are; where they differ, test_quantize.py compares the same ones
SAME = [case for case in CASES if not case.tensor_differences]


@needs_same_machine
@pytest.mark.parametrize("case", SAME, ids=lambda case: case.name)
def test_same_as_llama_quantize(case: Case, tmp_path: Path) -> None:
    gold = GOLD["cases"][case.name]["quantised"]
    for kind, path in outputs(case, tmp_path, gold).items():
        assert differing(digest_tensors(path), gold[kind]) == set(), kind


def test_every_key_of_ours_is_listed(tmp_path: Path) -> None:
    from dflash_gguf.gguf_file import GgufFile

    draft, target = CASES[0].write(tmp_path)
    (written,) = convert(draft, target, outtypes=["bf16"])
    with GgufFile(written.path) as file:
        others = {
            key for key in file.fields if not key.startswith(("dflash.", "tokenizer.", "general."))
        }
    assert others == set(OURS)
