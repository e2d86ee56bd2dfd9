"""Mutated inputs: an error that names file and fault with nothing left behind, or a sound output."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_gguf.convert import convert
from dflash_gguf.errors import ModelError
from dflash_gguf.gguf_file import GgufFile

from .made import make_checkpoint, make_config, make_target

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-2, 400), max_size=4),
    st.dictionaries(st.sampled_from(["rope_theta", "rope_type", "factor", "x"]), st.integers(0, 9)),
)
KEYS = sorted({*make_config(), "rope_scaling", "rope_parameters", "layer_types", "sliding_window"})
KEYS += [
    "use_sliding_window",
    "is_causal",
    "max_window_layers",
    "partial_rotary_factor",
    "model_type",
]
KEYS += ["transformer_layer_config", "aux_hidden_state_layer_ids", "output_multiplier"]
NESTED = ["mask_token_id", "target_layer_ids", "block_size", "use_swa", "swa_window_size", "causal"]

Pair = tuple[Path, Path, bytes]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("mutations")
    config = make_config(hidden_size=64, intermediate_size=64, num_hidden_layers=1, head_dim=32)
    config |= {"num_attention_heads": 2, "num_key_value_heads": 1}
    draft = make_checkpoint(folder / "draft", config)
    target = make_target(folder / "target" / "t.gguf", hidden=64)
    return draft, target, (draft / "model.safetensors").read_bytes()


def refused_or_sound(draft: Path, target: Path) -> None:
    try:
        (written,) = convert(draft, target, outtypes=["q5_k_m"], outdir=draft.parent / "out")
    except ModelError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert str(draft.parent) in str(error)  # noqa: PT017
    else:
        with GgufFile(written.path) as file:
            assert file.architecture == "dflash"
        written.path.unlink()
        written.path.parent.rmdir()
    assert not (draft.parent / "out").exists()


@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_any_value_under_any_key(pair: Pair, data: st.DataObject) -> None:
    draft, target, whole = pair
    (draft / "model.safetensors").write_bytes(whole)
    path = draft / "config.json"
    original = path.read_text()
    config: dict[str, Any] = json.loads(original)
    for key in data.draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2)):
        config[key] = data.draw(VALUES)
    if isinstance(config["dflash_config"], dict) and data.draw(st.booleans()):
        config["dflash_config"][data.draw(st.sampled_from(NESTED))] = data.draw(VALUES)
    path.write_text(json.dumps(config))
    try:
        refused_or_sound(draft, target)
    finally:
        path.write_text(original)


@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_any_bytes_in_the_checkpoint(pair: Pair, data: st.DataObject) -> None:
    draft, target, whole = pair
    changed = bytearray(whole)
    length = 8 + struct.unpack_from("<Q", whole)[0]
    end = data.draw(st.sampled_from([8, length, len(whole)]))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del changed[data.draw(st.integers(0, len(changed))) :]
    (draft / "model.safetensors").write_bytes(changed)
    refused_or_sound(draft, target)
