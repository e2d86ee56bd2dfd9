"""Names and shapes of tensors, and those that do not belong."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_gguf.convert import convert
from dflash_gguf.convert.config import parse_config
from dflash_gguf.convert.tensors import expected_tensors, llama_order
from dflash_gguf.errors import ConvertError
from dflash_gguf.gguf_file import GgufFile

from .made import (
    make_checkpoint,
    make_config,
    make_target,
    make_weights,
    shapes_of,
    write_safetensors,
)


def test_names_map_one_to_one() -> None:
    config = make_config(num_hidden_layers=12)
    listed = list(expected_tensors(parse_config(config, "config.json"), 0))
    assert {item.source: item.shape for item in listed if item.required} == shapes_of(config)
    assert len({item.name for item in listed}) == len(listed)


def test_the_order_is_llama_cpps() -> None:
    names = ["blk.10.attn_k.weight", "output_norm.weight", "blk.2.ffn_up.weight", "fc.weight"]
    expected = ["fc.weight", "output_norm.weight", "blk.2.ffn_up.weight", "blk.10.attn_k.weight"]
    assert sorted(names, key=llama_order) == expected


def refusal(folder: Path, changes: dict[str, tuple[str, tuple[int, ...], bytes] | None]) -> str:
    weights = make_weights(make_config())
    for name, tensor in changes.items():
        if tensor is None:
            del weights[name]
        else:
            weights[name] = tensor
    draft = make_checkpoint(folder / "d", make_config(), weights=weights)
    with pytest.raises(ConvertError) as error:
        convert(draft, make_target(folder / "t.gguf"))
    assert sorted(path.name for path in draft.iterdir()) == ["config.json", "model.safetensors"]
    return str(error.value)


VECTOR = ("BF16", (4,), bytes(8))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("markov_w1.weight", "DSpark"),
        ("d2t", "DSpark"),
        ("layers.0.attention_conv.base_kernel", "DFlash2"),
        ("candidate_selector.hidden_projection.weight", "DFlash2"),
        ("layers.1.self_attn.q_proj.bias", "no place for biases"),
        ("layers.1.self_attn.q_proj.weight_scale", "quantised"),
        ("layers.3.mlp.up_proj.weight", "no part of a DFlash drafter"),
        ("something.else", "no part of a DFlash drafter"),
    ],
)
def test_an_unknown_tensor_stops(name: str, hint: str, tmp_path: Path) -> None:  # C11
    text = refusal(tmp_path, {name: VECTOR})
    assert f"unknown tensor {name}; " in text
    assert hint in text


def test_a_missing_tensor(tmp_path: Path) -> None:
    text = refusal(tmp_path, {"layers.2.mlp.up_proj.weight": None})
    assert "1 tensors are missing, such as layers.2.mlp.up_proj.weight" in text


def test_a_tensor_twice(tmp_path: Path) -> None:
    text = refusal(tmp_path, {"model.norm.weight": ("BF16", (256,), bytes(512))})
    assert "norm.weight and model.norm.weight are the same tensor" in text


def test_another_shape(tmp_path: Path) -> None:
    text = refusal(tmp_path, {"fc.weight": ("BF16", (256, 768), bytes(2 * 256 * 768))})
    assert "fc.weight has the shape [256, 768], expected [256, 512]" in text
    text = refusal(tmp_path, {"norm.weight": ("BF16", (1, 256), bytes(512))})
    assert "norm.weight has the shape [1, 256], expected [256]" in text


def test_computed_frequencies_are_left_out(tmp_path: Path) -> None:
    weights = make_weights(make_config())
    weights["layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", (32,), bytes(128))
    draft = make_checkpoint(tmp_path / "d", make_config(), weights=weights)
    (written,) = convert(draft, make_target(tmp_path / "t.gguf"), outtypes=["bf16"])
    with GgufFile(written.path) as file:
        assert len(file.tensors) == len(shapes_of(make_config()))


def test_rows_not_divisible_by_256(tmp_path: Path) -> None:  # C15
    import llama_cpp

    config = make_config(
        hidden_size=192, intermediate_size=1000, num_attention_heads=3, num_key_value_heads=1
    )
    draft = make_checkpoint(tmp_path / "d", config)
    target = make_target(tmp_path / "t.gguf", hidden=192)
    (written,) = convert(draft, target, outtypes=["q5_k_m"])
    types = {tensor.name: tensor.type for tensor in written.tensors}
    assert types["blk.0.ffn_up.weight"] == "Q5_1"
    assert types["blk.0.ffn_down.weight"] == "F16"  # 1000 is not divisible by 32 either
    (warning,) = written.warnings
    assert "blk.0.ffn_up.weight Q5_1" in warning
    assert "blk.0.ffn_down.weight F16" in warning
    model = llama_cpp.llama_model_load_from_file(
        str(written.path).encode(), llama_cpp.llama_model_default_params()
    )
    assert model
    llama_cpp.llama_model_free(model)


def test_a_row_too_large_for_f16(tmp_path: Path) -> None:  # C14
    weights = make_weights(make_config(), "F32")
    dtype, shape, data = weights["layers.0.mlp.up_proj.weight"]
    import numpy as np

    values = np.frombuffer(data, dtype="<f4").copy()
    values[:256] *= 1e6
    weights["layers.0.mlp.up_proj.weight"] = (dtype, shape, values.tobytes())
    draft = make_checkpoint(tmp_path / "d", make_config(), weights=weights)
    target = make_target(tmp_path / "t.gguf")
    with pytest.raises(ConvertError, match=r"exceed f16's 65504; expected smaller: use"):
        convert(draft, target, outtypes=["f16"])
    write_safetensors(draft / "model.safetensors", make_weights(make_config()))
    (written,) = convert(draft, target, outtypes=["f16"])
    assert "prefer bf16" in written.warnings[0]
