"""What config.json says and what comes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf.convert import convert
from dflash_gguf.errors import ConvertError
from dflash_gguf.gguf_file import GgufFile

from .made import MASK, VOCAB, make_checkpoint, make_config, make_target

SLIDING, FULL = "sliding_attention", "full_attention"
PATTERN = "dflash.attention.sliding_window_pattern"
WINDOW = "dflash.attention.sliding_window"


def keys_of(folder: Path, config: dict[str, Any], architecture: str = "qwen3") -> dict[str, Any]:
    """Convert a made checkpoint; returns the dflash* keys and the mask, and the warnings as 'warnings'."""
    draft = make_checkpoint(folder / "d", config)
    target = make_target(folder / "t.gguf", architecture=architecture)
    (written,) = convert(draft, target, outtypes=["bf16"], outdir=folder, force=True)
    with GgufFile(written.path) as file:
        keys = {key: file.value(key) for key in file.fields if key.startswith("dflash")}
        keys["mask"] = file.integer("tokenizer.ggml.mask_token_id")
    return keys | {"warnings": list(written.warnings)}


def refusal(folder: Path, config: dict[str, Any]) -> str:
    with pytest.raises(ConvertError) as error:
        keys_of(folder, config)
    assert not list(folder.glob("*BF16*"))
    text = str(error.value)
    assert "\n" not in text
    assert str(folder) in text
    return text


def nested(**changes: Any) -> dict[str, Any]:
    inner = {"mask_token_id": MASK, "target_layer_ids": [1, 4], **changes}
    return make_config(
        dflash_config={key: value for key, value in inner.items() if value is not None}
    )


def test_taps_are_shifted_once(tmp_path: Path) -> None:  # C1
    assert keys_of(tmp_path, make_config())["dflash.target_layers"] == [2, 5]


def test_speculators_taps_are_shifted_already(tmp_path: Path) -> None:  # C1
    config = make_config(dflash_config=None, mask_token_id=MASK, aux_hidden_state_layer_ids=[2, 5])
    assert keys_of(tmp_path, config)["dflash.target_layers"] == [2, 5]


def test_missing_taps_are_an_error(tmp_path: Path) -> None:  # C3
    assert "target_layer_ids is missing" in refusal(tmp_path, nested(target_layer_ids=None))
    assert "target_layer_ids is []" in refusal(tmp_path, nested(target_layer_ids=[]))


def test_the_drafters_mask_wins(tmp_path: Path) -> None:  # C4
    draft = make_checkpoint(tmp_path / "d", make_config())
    target = make_target(tmp_path / "t.gguf", tokenizer__ggml__mask_token_id=7)
    (written,) = convert(draft, target, outtypes=["bf16"])
    with GgufFile(written.path) as file:
        assert file.integer("tokenizer.ggml.mask_token_id") == MASK


def test_a_mask_must_be_there_and_in_the_vocabulary(tmp_path: Path) -> None:  # C4
    assert "mask_token_id is missing" in refusal(tmp_path, nested(mask_token_id=None))
    text = refusal(tmp_path, nested(mask_token_id=VOCAB))
    assert f"mask_token_id is {VOCAB}; expected below vocab_size = {VOCAB}" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": None, "rope_parameters": {"rope_theta": 5e6}},
        {"rope_theta": None, "rope_parameters": {"full_attention": {"rope_theta": 5e6}}},
        {"rope_theta": None, "rope_scaling": {"rope_type": "default", "rope_theta": 5e6}},
        {"rope_theta": 5e6, "rope_parameters": None, "rope_scaling": None},
    ],
)
def test_rope_base_wherever_it_stands(changes: dict[str, Any], tmp_path: Path) -> None:  # C5
    config = make_config(**changes)
    assert keys_of(tmp_path, config) == keys_of(tmp_path, make_config(rope_theta=5e6))


def test_no_rope_base_is_an_error(tmp_path: Path) -> None:  # C5
    assert "rope_theta" in refusal(tmp_path, make_config(rope_theta=None))


def test_one_base_for_all_layers(tmp_path: Path) -> None:
    both = {"full_attention": {"rope_theta": 1e7}, "sliding_attention": {"rope_theta": 1e4}}
    text = refusal(tmp_path, make_config(rope_theta=None, rope_parameters=both))
    assert "sliding_attention.rope_theta is 10000.0; expected 10000000.0" in text


@pytest.mark.parametrize("where", ["top", "rope_parameters"])
def test_a_leaked_partial_rotation_is_not_written(where: str, tmp_path: Path) -> None:  # C6
    leaked = {"partial_rotary_factor": 0.25}
    changes = leaked if where == "top" else {"rope_parameters": {"rope_theta": 1e7, **leaked}}
    keys = keys_of(tmp_path, make_config(**changes))
    assert "dflash.rope.dimension_count" not in keys
    assert any("partial_rotary_factor 0.25" in text for text in keys["warnings"])


def test_mimo_really_rotates_a_part(tmp_path: Path) -> None:  # C6
    keys = keys_of(tmp_path, make_config(model_type="mimo_v2", partial_rotary_factor=0.5))
    assert keys["dflash.rope.dimension_count"] == 32


@pytest.mark.parametrize(
    ("architecture", "sections"),
    [("qwen35", [32, 0, 0, 0]), ("qwen35moe", [32, 0, 0, 0]), ("qwen3", None), ("glm4", None)],
)
def test_sections_follow_the_target(
    architecture: str, sections: list[int] | None, tmp_path: Path
) -> None:
    keys = keys_of(tmp_path, make_config(), architecture)
    assert keys.get("dflash.rope.dimension_sections") == sections


WINDOWS = {"layer_types": [SLIDING, SLIDING, FULL], "sliding_window": 64, "max_window_layers": 3}


def test_windows_in_use(tmp_path: Path) -> None:  # C7
    keys = keys_of(tmp_path, make_config(**WINDOWS, use_sliding_window=True))
    assert (keys[WINDOW], keys[PATTERN]) == (64, [True, True, False])
    assert keys["dflash_gguf.layer_causal"] == [True, True, False]
    assert keys["warnings"] == []


@pytest.mark.parametrize("flag", [False, None])
def test_windows_dropped(flag: bool | None, tmp_path: Path) -> None:  # C7
    keys = keys_of(tmp_path, make_config(**WINDOWS, use_sliding_window=flag))
    assert WINDOW not in keys
    assert PATTERN not in keys
    assert keys["dflash_gguf.layer_causal"] == [True, True, False]
    assert any("layers 0, 1 are sliding_attention" in text for text in keys["warnings"])


def test_windows_by_use_swa(tmp_path: Path) -> None:  # C7
    keys = keys_of(tmp_path, nested(use_swa=True, swa_window_size=32))
    assert (keys[WINDOW], keys[PATTERN]) == (32, [True, True, True])
    config = nested(use_swa=True) | {"sliding_window": 48}
    assert keys_of(tmp_path, config)[WINDOW] == 48


def test_layer_types_made_up_as_the_reference_does(tmp_path: Path) -> None:  # C7
    config = make_config(use_sliding_window=True, sliding_window=64, max_window_layers=1)
    keys = keys_of(tmp_path, config)
    assert keys[PATTERN] == [False, True, True]
    assert any("layer_types is absent" in text for text in keys["warnings"])


@pytest.mark.parametrize("causal", [True, False])
def test_is_causal_holds_for_every_layer(causal: bool, tmp_path: Path) -> None:
    keys = keys_of(tmp_path, make_config(**WINDOWS, use_sliding_window=True, is_causal=causal))
    assert keys["dflash.attention.causal"] is causal
    assert keys["dflash_gguf.layer_causal"] == [causal] * 3


def test_flat_and_nested_are_the_same(tmp_path: Path) -> None:  # C18
    inner = {"mask_token_id": MASK, "target_layer_ids": [1, 4], "block_size": 8}
    flat = make_config(dflash_config=None, **inner)
    speculators = {
        key: flat[key]
        for key in ("architectures", "block_size", "mask_token_id", "target_layer_ids")
    }
    speculators["transformer_layer_config"] = {
        key: value for key, value in flat.items() if key not in speculators
    } | {"architectures": ["Qwen3ForCausalLM"]}
    deep = make_config(dflash_config=inner, block_size=None)
    assert keys_of(tmp_path, flat) == keys_of(tmp_path, deep)
    draft = make_checkpoint(tmp_path / "s", flat)
    (draft / "config.json").write_text(json.dumps(speculators))
    (written,) = convert(draft, tmp_path / "t.gguf", outtypes=["bf16"], outdir=tmp_path)
    with GgufFile(written.path) as file:
        ours = {key: file.value(key) for key in file.fields if key.startswith("dflash")}
    assert ours == {k: v for k, v in keys_of(tmp_path, deep).items() if k.startswith("dflash")}


def test_no_block_size_is_an_error(tmp_path: Path) -> None:  # C18
    assert "block_size is missing" in refusal(tmp_path, make_config(block_size=None))


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}


def test_yarn(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, make_config(rope_scaling=YARN | {"beta_fast": 32.0}))
    assert keys["dflash.rope.scaling.type"] == "yarn"
    assert keys["dflash.rope.scaling.factor"] == 4.0
    assert keys["dflash.rope.scaling.original_context_length"] == 256
    assert keys["dflash.rope.scaling.yarn_beta_fast"] == 32.0


def test_yarn_with_an_attention_factor_llama_cpp_ignores(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, make_config(rope_scaling=YARN | {"attention_factor": 1.5}))
    assert any("attention_factor is 1.5" in text for text in keys["warnings"])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"architectures": ["DFlash2DraftModel"]}, "conv_kernel_size is missing"),
    ({"architectures": ["Gemma4DSparkModel"]}, "Gemma4DSparkModel drafters are not converted here"),
    ({"architectures": ["Qwen3ForCausalLM"]}, "not a DFlash drafter's"),
    ({"architectures": None}, "architectures is None"),
    ({"markov_head_type": "gated"}, "markov_head_type is 'gated'; expected vanilla"),
    (
        {"architectures": ["DFlash2DraftModel"], "markov_rank": 8},
        "DFlash2DraftModel is a DFlash2 drafter, but it has keys of a DSpark one",
    ),
    ({"markov_rank": 8, "draft_vocab_size": VOCAB + 1}, f"at most vocab_size = {VOCAB}"),
    ({"markov_rank": 0}, "markov_rank is 0; expected an integer from 1"),
    (
        {"rope_is_neox_style": False, "model_type": "mimo_v2", "partial_rotary_factor": 0.5},
        "rope_is_neox_style is False; expected true where only a part of a head rotates",
    ),
    ({"quantization_config": {"quant_method": "fp8"}}, "unquantised checkpoint"),
    ({"attention_bias": True}, "no place for biases"),
    ({"rope_is_neox_style": 0}, "rope_is_neox_style is 0; expected true or false"),
    ({"hidden_act": ["silu"]}, "expected silu, gelu"),
    ({"hidden_act": "relu"}, "expected silu, gelu"),
    ({"hidden_size": None}, "hidden_size is missing"),
    ({"hidden_size": "256"}, "hidden_size is '256'; expected an integer"),
    ({"hidden_size": True}, "hidden_size is True; expected an integer"),
    ({"hidden_size": 0}, "hidden_size is 0; expected an integer from 1"),
    ({"hidden_size": 10**30}, "expected an integer from 1"),
    ({"num_hidden_layers": 513}, "expected an integer from 1 to 512"),
    ({"num_key_value_heads": 3}, "expected a divisor of num_attention_heads = 4"),
    ({"num_attention_heads": None}, "num_attention_heads is missing"),
    ({"intermediate_size": None}, "intermediate_size is missing"),
    ({"max_position_embeddings": None}, "max_position_embeddings is missing"),
    ({"rms_norm_eps": None}, "rms_norm_eps is missing"),
    ({"rms_norm_eps": "1e-6"}, "rms_norm_eps is '1e-6'; expected a number"),
    ({"rms_norm_eps": float("nan")}, "expected a finite number"),
    ({"rope_theta": 10**400}, "rope_theta is 1000000"),
    ({"rope_theta": -1.0}, "expected a finite number above 0"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, "rope_type is 'llama3'"),
    ({"rope_scaling": {"rope_type": ["yarn"]}}, "rope_type is ['yarn']"),
    ({"rope_scaling": "yarn"}, "rope_scaling is 'yarn'; expected an object"),
    (
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        "original_max_position_embeddings is missing",
    ),
    ({"layer_types": [FULL]}, "expected a list of num_hidden_layers = 3 entries"),
    ({"layer_types": [FULL, FULL, "chunked"]}, "layer_types is 'chunked'"),
    ({"layer_types": [FULL, FULL, ["x"]]}, "layer_types is ['x']"),
    (
        {"use_sliding_window": 1, "sliding_window": 8},
        "use_sliding_window is 1; expected true or false",
    ),
    ({"block_size": 1}, "block_size is 1; expected an integer from 2"),
    ({"head_dim": 63}, "head_dim is 63; expected an even number"),
    ({"dflash_config": [1]}, "dflash_config is [1]; expected an object"),
    ({"transformer_layer_config": "x"}, "transformer_layer_config is 'x'; expected an object"),
]


@pytest.mark.parametrize(("changes", "said"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused_by_key_and_value(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    config = make_config() | changes
    draft = make_checkpoint(tmp_path / "d", make_config())
    (draft / "config.json").write_text(
        json.dumps({key: value for key, value in config.items() if value is not None})
    )
    target = make_target(tmp_path / "t.gguf")
    with pytest.raises(ConvertError) as error:
        convert(draft, target)
    assert said in str(error.value)
    assert "config.json" in str(error.value)
    assert not list(draft.glob("*.gguf")) + list(draft.glob("*.part"))
