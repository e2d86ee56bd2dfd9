"""Inputs mutated by hypothesis. What is to come of them is told by safetensors and by package gguf, not by us."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError

from dflash_gguf.convert import convert, quantize
from dflash_gguf.errors import ModelError
from dflash_gguf.gguf_file import GgufFile
from dflash_gguf.inspection import inspect_file

from . import (
    test_mutations,
    test_mutations_config,
    test_mutations_drafter,
    test_mutations_header,
    test_mutations_places,
    test_mutations_target,
)
from .mutating import NAMES, Files, Values, joined, small_config, split, text_of, weights_of

TABLES = (
    test_mutations.KINDS,
    test_mutations_header.KINDS,
    test_mutations_config.KINDS,
    test_mutations_places.KINDS,
    test_mutations_target.KINDS,
    test_mutations_drafter.KINDS,
)

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-2, 400), max_size=4),
    st.dictionaries(st.sampled_from(["rope_theta", "rope_type", "factor", "x"]), st.integers(0, 9)),
)
KEYS = sorted({*small_config(), *test_mutations_config.TAKES, "max_window_layers", "model_type"})
KEYS += ["aux_hidden_state_layer_ids", "conv_kernel_size", "markov_rank", "draft_vocab_size"]
NESTED = ["mask_token_id", "target_layer_ids", "block_size", "use_swa", "swa_window_size", "causal"]

steady = settings(max_examples=120, deadline=None, derandomize=True, database=None)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    made = Files(tmp_path_factory.mktemp("mutations") / "case")
    made.add_drafter()
    return made


def test_there_are_300_cases() -> None:
    assert sum(kind.count for kinds in TABLES for kind in kinds) >= 300


def converted(files: Files) -> dict[str, bytes] | None:
    """The tensors of the bf16 output, or None if it was refused; nothing may be left behind then."""
    out = files.folder / "out"
    try:
        (written,) = convert(files.draft, files.target, outtypes=["bf16"], outdir=out)
    except ModelError as error:
        assert str(error).isprintable()  # noqa: PT017
        assert str(files.folder) in str(error)  # noqa: PT017
        assert not out.exists()
        return None
    with GgufFile(written.path) as file:
        assert file.architecture == "dflash"
        tensors = {name: file.data(name) for name in file.tensors}
    written.path.unlink()
    out.rmdir()
    return tensors


def mainlines(values: dict[str, Values]) -> dict[str, bytes]:
    """What mainline's converter writes of a checkpoint's values in bf16."""
    return {
        NAMES[name]: gguf.quants.quantize(
            each, gguf.GGMLQuantizationType["BF16" if each.ndim == 2 else "F32"]
        ).tobytes()
        for name, each in values.items()
    }


def sound(data: bytes, whole: dict[str, Values]) -> dict[str, Values] | None:
    """The values by name if safetensors reads the file and all tensors are as they must be."""
    try:
        found = {name.removeprefix("model."): each for name, each in weights_of(data).items()}
    except (SafetensorError, KeyError):
        return None
    if {name: each.shape for name, each in found.items()} != {
        name: each.shape for name, each in whole.items()
    }:
        return None
    return found if all(np.isfinite(each).all() for each in found.values()) else None


@steady
@given(data=st.data())
def test_any_bytes_in_the_checkpoint(files: Files, data: st.DataObject) -> None:
    whole = files.weights.read_bytes()
    _, body = split(whole)
    changed = bytearray(whole)
    end = data.draw(st.sampled_from([8, len(whole) - len(body), len(whole)]))
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del changed[data.draw(st.integers(0, len(changed))) :]
    files.weights.write_bytes(changed)
    try:
        wanted = sound(bytes(changed), weights_of(whole))
        assert converted(files) == (None if wanted is None else mainlines(wanted))
    finally:
        files.weights.write_bytes(whole)


@steady
@given(data=st.data())
def test_any_header_of_the_checkpoint(files: Files, data: st.DataObject) -> None:
    whole = files.weights.read_bytes()
    header, body = split(whole)
    for _ in range(data.draw(st.integers(1, 2))):
        entry = header[data.draw(st.sampled_from(sorted(NAMES)))]
        other = header[data.draw(st.sampled_from(sorted(NAMES)))]
        key = data.draw(st.sampled_from(sorted(entry)))
        entry[key] = other[key] if data.draw(st.booleans()) else data.draw(VALUES)
    changed = joined(text_of(header), body)
    files.weights.write_bytes(changed)
    try:
        wanted = sound(changed, weights_of(whole))
        assert converted(files) == (None if wanted is None else mainlines(wanted))
    finally:
        files.weights.write_bytes(whole)


@steady
@given(data=st.data())
def test_any_value_under_any_key(files: Files, data: st.DataObject) -> None:
    def change(config: dict[str, Any]) -> None:
        for key in data.draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2)):
            config[key] = data.draw(VALUES)
        if isinstance(config["dflash_config"], dict) and data.draw(st.booleans()):
            config["dflash_config"][data.draw(st.sampled_from(NESTED))] = data.draw(VALUES)

    try:
        files.edit_config(change)
        config = json.loads(files.config.read_text())
        # whatever the config says otherwise, the weights are what they are
        wanted = mainlines(weights_of(files.weights.read_bytes()))
        tensors = converted(files)
        if config.get("rope_is_neox_style") is not False:
            assert tensors in (None, wanted)
    finally:
        files.edit_config(lambda config: None)


def changed_gguf(path: Path, data: st.DataObject) -> bytes:
    """Change bytes of a GGUF, mostly of its header, or cut it off; returns what it was."""
    whole = path.read_bytes()
    with GgufFile(path) as file:
        header = file.data_offset
    changed = bytearray(whole)
    end = data.draw(st.sampled_from([32, 600, header, len(whole)]))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.integers(0, 3)) == 0:
        del changed[data.draw(st.integers(0, len(changed))) :]
    path.write_bytes(changed)
    return whole


@steady
@given(data=st.data())
def test_any_bytes_in_the_target(files: Files, data: st.DataObject) -> None:
    whole = changed_gguf(files.target, data)
    try:
        # it gives the outputs keys, never weights
        wanted = mainlines(weights_of(files.weights.read_bytes()))
        assert converted(files) in (None, wanted)
    finally:
        files.target.write_bytes(whole)


@steady
@given(data=st.data())
def test_any_bytes_in_a_drafter(files: Files, data: st.DataObject) -> None:
    whole = changed_gguf(files.drafter, data)
    out = files.folder / "out.gguf"
    before = {path.name for path in files.folder.iterdir()}
    try:
        for run in (
            lambda: inspect_file(files.drafter),
            lambda: quantize(files.drafter, out, "q8_0"),
        ):
            try:
                run()
            except ModelError as error:
                assert str(error).isprintable()  # noqa: PT017
                assert str(files.drafter) in str(error)  # noqa: PT017
        if out.exists():
            with GgufFile(out) as file:
                assert file.architecture == "dflash"
            out.unlink()
        assert {path.name for path in files.folder.iterdir()} == before
    finally:
        files.drafter.write_bytes(whole)
