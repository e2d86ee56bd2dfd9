"""Mutated config.json files: KINDS states beforehand what comes of each kind."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from .mutating import Change, Files, Kind, Mutation, Refused, Sound, check_kind, named, small_config
from .mutating_process import check_process

CONFIG = "draft/config.json"

# a value of any other kind than the key's, or out of all bounds
ABSURD: list[Any] = [
    *(-1, 0, 1.5, 1e-50, True, 2**31, 2**63, 2**70, -(2**63), 10**400),
    *(float("inf"), float("nan"), float("-inf")),
    *("7", "", "\n\x1b[31m", "\ud800", "x" * 10_000),
    *([], [[]], {"a": 1}),
]

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}

COUNTS = [
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings"),
    *("block_size", "num_target_layers"),
]
NESTED = {"mask_token_id", "target_layer_ids"}
NEEDED = [key for key in COUNTS if key not in {"head_dim", "num_target_layers"}]
NEEDED += ["rope_theta", "rms_norm_eps", "architectures", "dflash_config"]


def never(value: Any) -> bool:
    return False


def positive(value: Any) -> bool:
    return isinstance(value, int | float) and value is not True and 1e-37 < value <= 3e38


def true(value: Any) -> bool:
    return value is True


def an_object(value: Any) -> bool:
    return isinstance(value, dict)


# which of the absurd values a key takes all the same; those are no mutation of it
TAKES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(COUNTS, never),
    "mask_token_id": lambda value: value == 0,
    "target_layer_ids": never,
    "rope_theta": positive,
    "rms_norm_eps": positive,
    "output_multiplier": positive,
    "input_embedding_scale": positive,
    "partial_rotary_factor": never,
    "hidden_act": never,
    "architectures": never,
    "attention_bias": never,
    "is_causal": true,
    "use_sliding_window": true,
    "tie_word_embeddings": true,
    "has_embed_tokens": true,
    "rope_is_neox_style": true,
    "layer_types": lambda value: value == [],
    "sliding_window": lambda value: not value,
    "quantization_config": lambda value: not value,
    "compression_config": lambda value: not value,
    "rope_scaling": an_object,
    "rope_parameters": an_object,
    "transformer_layer_config": an_object,
    "dflash_config": never,
}


def absurd(key: str) -> Kind:
    """A key with every absurd value that it does not take."""
    values = [value for value in ABSURD if not TAKES[key](value)]

    def mutate(files: Files, number: int, random: Random) -> None:
        def change(config: dict[str, Any]) -> None:
            (config["dflash_config"] if key in NESTED else config)[key] = values[number]

        files.edit_config(change)

    # an empty dflash_config is one without the keys in it
    says = rf"\b{key} is .+; expected .|: (mask_token_id|{key}) is missing; expected it"
    return Kind(f"absurd {key}", Refused(says, CONFIG), mutate, len(values))


def missing(files: Files, number: int, random: Random) -> None:
    files.edit_config(lambda config: config.pop(NEEDED[number]))


def other_sizes(files: Files, number: int, random: Random) -> None:
    """A size that could be, but is not that of the tensors."""
    key = ("intermediate_size", "num_attention_heads", "head_dim", "num_key_value_heads")[number]
    files.edit_config(lambda config: config.update({key: 2 * config[key]}))


# keys that may hold anything large; what they become in the GGUF
LARGE: list[tuple[str, Any, str, bytes]] = [
    ("rope_theta", 1e38, "dflash.rope.freq_base", struct.pack("<f", 1e38)),
    ("rope_theta", 2**63, "dflash.rope.freq_base", struct.pack("<f", 2.0**63)),
    ("rope_theta", 1e-30, "dflash.rope.freq_base", struct.pack("<f", 1e-30)),
    ("rms_norm_eps", 1e30, "dflash.attention.layer_norm_rms_epsilon", struct.pack("<f", 1e30)),
    ("max_position_embeddings", 2**31 - 1, "dflash.context_length", struct.pack("<I", 2**31 - 1)),
    ("max_position_embeddings", 1, "dflash.context_length", struct.pack("<I", 1)),
    ("block_size", 2, "dflash.block_size", struct.pack("<I", 2)),
]


def large(files: Files, number: int, random: Random) -> Change:
    key, value, name, raw = LARGE[number]
    files.edit_config(lambda config: config.update({key: value}))
    return Change(keys={name: raw})


IDLE: list[tuple[str, Any]] = [
    ("head_dim", None),
    ("num_target_layers", None),
    ("hidden_act", None),
    ("attention_bias", None),
    ("attention_bias", False),
    ("num_parameters", 10**400),
    ("unknown", [[{}]] * 1000),
    ("dtype", 7),
    ("bos_token_id", -5),
    ("layer_types", []),
    ("layer_types", ["full_attention"]),
    ("sliding_window", 0),
    ("rope_scaling", {}),
    ("max_window_layers", 2**30),
    ("model_type", ["qwen3"]),
    ("tie_word_embeddings", True),
]


def idle(files: Files, number: int, random: Random) -> None:
    """A key that mainline does not read, or a value that says what holds anyway."""
    key, value = IDLE[number]
    files.edit_config(lambda config: config.update({key: value}))


def spelled_otherwise(files: Files, number: int, random: Random) -> None:
    config = small_config()
    if number == 0:
        config = dict(reversed(config.items()))
    if number == 1:
        config |= config.pop("dflash_config")
    if number == 2:
        config["dflash_config"]["block_size"] = config.pop("block_size")
    if number == 3:
        config["rope_parameters"] = {"rope_theta": config.pop("rope_theta")}
    files.config.write_text("\n\t" + json.dumps(config, indent=number) + " \n")


SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "llama3", "factor": 8.0},
    {"rope_type": ["yarn"]},
    {"type": 3},
    *({"rope_type": "linear", "factor": factor} for factor in (None, 0, -2.0, "2", 1e-50)),
    *({"rope_type": "yarn", "factor": factor} for factor in (None, 0, -2.0, "2", True)),
    *({**YARN, "original_max_position_embeddings": size} for size in (None, 0, -1, 1.5, "x")),
    *({**YARN, "beta_fast": beta} for beta in ("x", 1e300, float("nan"), [])),
    {**YARN, "attention_factor": {}},
    {"full_attention": 3},
    {"sliding_attention": {"rope_theta": 5.0}},
]


def scaling(files: Files, number: int, random: Random) -> None:
    files.edit_config(lambda config: config.update(rope_scaling=SCALINGS[number]))


def rotates_nothing(files: Files, number: int, random: Random) -> None:
    """MiMo's drafters really rotate a part of a head: of 128 values here none, one, or three."""
    part = (0.001, 0.01, 0.0235)[number]
    files.edit_config(lambda config: config.update(model_type="mimo", partial_rotary_factor=part))


def of_another_family(key: str) -> Mutation:
    def mutate(files: Files, number: int, random: Random) -> None:
        files.edit_config(lambda config: config.update({key: 4}))

    return mutate


NO_JSON = [b"", b"{", b"\xff\xfe", b"\x00" * 100, b"[" * 100_000, b'{"a":' * 100_000, b"{'a': 1}"]
NO_JSON += [
    b'{"vocab_size": ' + b"9" * 5000 + b"}",
    b'{"hidden_act": "\xff"}',
    b"PK\x03\x04",
    b"nul",
]
NO_OBJECT = [b"[1]", b"1", b"null", b'"text"', b"1e400", b"NaN", b"true", b"[]"]


def text(texts: list[bytes], path: str = CONFIG) -> Mutation:
    """Write something else into a file."""

    def mutate(files: Files, number: int, random: Random) -> None:
        (files.folder / path).write_bytes(texts[number])

    return mutate


def huge_config(files: Files, number: int, random: Random) -> None:
    with files.config.open("r+b") as file:
        file.truncate((65 << 20, 1 << 40)[number])


KINDS = (
    *(absurd(key) for key in TAKES),
    Kind(
        "a key less",
        Refused("is missing; expected it|architectures is None; expected one name", CONFIG),
        missing,
        len(NEEDED),
    ),
    Kind(
        "size of another drafter",
        Refused("has the shape .* by config.json; the two do not belong together"),
        other_sizes,
        4,
    ),
    Kind(
        "absurd scaling",
        Refused(r"[\w.]+ is .+; expected .|[\w.]+ is missing; expected it", CONFIG),
        scaling,
        len(SCALINGS),
    ),
    Kind(
        "part of a head that cannot rotate",
        Refused("partial_rotary_factor is .+; expected an even number of head_dim = 128", CONFIG),
        rotates_nothing,
        3,
    ),
    Kind(
        "a key of DFlash2",
        Refused("conv_group_size is missing; expected it", CONFIG),
        of_another_family("conv_kernel_size"),
    ),
    Kind(
        "a key of DSpark",
        Refused(r"tensors are missing, such as markov_head\..*; expected all of a DSpark"),
        of_another_family("markov_rank"),
    ),
    Kind("large but possible", Sound(), large, len(LARGE)),
    Kind("nothing that counts", Sound(), idle, len(IDLE)),
    Kind("spelled otherwise", Sound(), spelled_otherwise, 4),
    Kind("no JSON", Refused("it is not JSON", CONFIG), text(NO_JSON), len(NO_JSON), real=True),
    Kind(
        "no object",
        Refused("it holds a .*; expected a JSON object", CONFIG),
        text(NO_OBJECT),
        len(NO_OBJECT),
    ),
    Kind(
        "huge config",
        Refused("it has [0-9]+ bytes; expected at most", CONFIG),
        huge_config,
        2,
        real=True,
    ),
)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_outcome(kind: Kind, tmp_path: Path) -> None:
    check_kind(kind, tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.real], ids=named)
def test_outcome_of_a_process(kind: Kind, tmp_path: Path) -> None:
    check_process(kind, tmp_path)
