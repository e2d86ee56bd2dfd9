"""Mutated checkpoints: KINDS states beforehand what comes of each kind.

Either an error that names file and fault, in one line, soon, in little memory, with no file left; or, where
the checkpoint stays valid, the unmutated output but for what the mutation changed, which must be as mainline's
quantisers (package gguf) make it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from .mutating import (
    NAMES,
    Change,
    Files,
    Kind,
    Mutation,
    Refused,
    Sound,
    check_kind,
    joined,
    named,
    split,
    text_of,
    weights_of,
)
from .mutating_process import check_process

FC = "fc.weight"
Q, GATE, UP = (
    f"layers.0.{part}.weight" for part in ("self_attn.q_proj", "mlp.gate_proj", "mlp.up_proj")
)
K, V = (f"layers.0.self_attn.{part}_proj.weight" for part in "kv")
DOWN = "layers.0.mlp.down_proj.weight"

NOT_WHOLE = Refused(r"it is not a whole safetensors file \(")
NO_HEADER = Refused(r"its header would have \d+ bytes, the file has \d+; expected at most")
NOT_JSON = Refused(r"its header is not JSON \(|it is not a whole safetensors file \(")
UNKNOWN = Refused("unknown tensor .+; .")
MISSING = Refused(
    r"\d+ tensors are missing, such as .+; expected all of a DFlash drafter with 1 layers"
)
SHAPE = Refused(r"has the shape \[.*\], expected \[.*\] by config.json")
DAMAGED = Refused(
    rf"{NO_HEADER.says}|{NOT_JSON.says}|{UNKNOWN.says}|{MISSING.says}|has the type .* expected"
)
TWICE = Refused("are the same tensor; expected one of them")


def cut(place: str) -> Mutation:
    """Keep the beginning of the file."""

    def mutate(files: Files, number: int, random: Random) -> None:
        data = files.weights.read_bytes()
        header, _ = split(data)
        base = 8 + struct.unpack_from("<Q", data)[0]
        ends = sorted(entry["data_offsets"][1] for entry in header.values())
        length = {
            "length": number,
            "header": random.randrange(8, base),
            "data": random.randrange(base, len(data)),
            "tensors": base + ends[number],
        }[place]
        files.weights.write_bytes(data[:length])

    return mutate


def append(files: Files, number: int, random: Random) -> None:
    with files.weights.open("ab") as file:
        file.write(random.randbytes(4**number))


def flip(files: Files, position: int, bit: int) -> None:
    data = bytearray(files.weights.read_bytes())
    data[position] ^= 1 << bit
    files.weights.write_bytes(data)


def flip_length(files: Files, number: int, random: Random) -> None:
    flip(files, number // 4, number % 4 * 2 + random.randrange(2))


def flip_header(files: Files, number: int, random: Random) -> None:
    data = files.weights.read_bytes()
    flip(files, random.randrange(8, 8 + struct.unpack_from("<Q", data)[0]), number % 8)


def edit_value(
    files: Files, random: Random, change: Callable[[int], int], only: str = ""
) -> Change:
    """Change the bits of one value; returns what the tensor then holds."""
    data = bytearray(files.weights.read_bytes())
    header, _ = split(bytes(data))
    base = 8 + struct.unpack_from("<Q", data)[0]
    name = only or random.choice(sorted(header))
    begin, end = header[name]["data_offsets"]
    at = base + random.randrange(begin, end, 2)
    (bits,) = struct.unpack_from("<H", data, at)
    struct.pack_into("<H", data, at, change(bits))
    files.weights.write_bytes(data)
    return Change({NAMES[name]: weights_of(bytes(data))[name]})


def flip_weight(files: Files, number: int, random: Random) -> Change:
    # the sign, the mantissa and the low bits of the exponent: made weights stay below 2^16
    bit = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15)[number % 11]
    return edit_value(files, random, lambda bits: bits ^ 1 << bit)


def flip_norm(files: Files, number: int, random: Random) -> Change:
    norm = random.choice([name for name in NAMES if "norm" in name])
    return edit_value(files, random, lambda bits: bits ^ 1 << number, norm)


def make_infinite(files: Files, number: int, random: Random) -> None:
    edit_value(files, random, lambda bits: bits | 0x7F80)


def make_huge(files: Files, number: int, random: Random) -> None:
    only = (FC, Q, GATE, DOWN)[number]
    edit_value(files, random, lambda bits: bits & 0x807F | 0x7F00, only)


def declare_f16(files: Files, number: int, random: Random) -> Change:
    name = (FC, K, "norm.weight", DOWN)[number]
    files.edit_header(lambda header: header[name].update(dtype="F16"))
    return Change({NAMES[name]: weights_of(files.weights.read_bytes())[name]})


def swap(files: Files, number: int, random: Random) -> Change:
    left, right = ((GATE, UP), (K, V), (GATE, DOWN))[number]

    def change(header: dict[str, Any]) -> None:
        offsets = [header[name]["data_offsets"] for name in (right, left)]
        header[left]["data_offsets"], header[right]["data_offsets"] = offsets

    files.edit_header(change)
    values = weights_of(files.weights.read_bytes())
    return Change({NAMES[name]: values[name] for name in (left, right)})


def many_tensors(files: Files, number: int, random: Random) -> None:
    header, body = split(files.weights.read_bytes())
    empty = {"dtype": "BF16", "shape": [0], "data_offsets": [len(body), len(body)]}
    header |= {f"layers.{index}.x.weight": empty for index in range(100_000)}
    files.weights.write_bytes(joined(text_of(header), body))


def without(files: Files, number: int, random: Random) -> None:
    """Leave out a tensor and its data."""
    header, body = split(files.weights.read_bytes())
    gone = sorted(NAMES)[number]
    kept = {
        name: body[slice(*place["data_offsets"])] for name, place in header.items() if name != gone
    }
    write(
        files,
        {name: (header[name]["dtype"], header[name]["shape"], data) for name, data in kept.items()},
    )


def write(files: Files, tensors: dict[str, tuple[str, Any, bytes]]) -> None:
    header: dict[str, Any] = {}
    offset = 0
    for name, (dtype, shape, data) in tensors.items():
        end = offset + len(data)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    files.weights.write_bytes(
        joined(text_of(header), b"".join(data for *_, data in tensors.values()))
    )


def tensors_of(files: Files) -> dict[str, tuple[str, Any, bytes]]:
    header, body = split(files.weights.read_bytes())
    return {
        name: (place["dtype"], place["shape"], body[slice(*place["data_offsets"])])
        for name, place in header.items()
    }


STRANGE = [
    "fc.bias",
    "layers.0.self_attn.q_proj.bias",
    "layers.1.mlp.up_proj.weight",
    "layers.-1.x",
]
STRANGE += [
    "layers.0.mlp.up_proj.weight_scale",
    "lm.weight",
    "",
    "a\nb",
    "\x1b[31mred",
    "x" * 100_000,
]
STRANGE += [
    "markov_head.markov_w1.weight",
    "layers.0.attention_conv.base_kernel",
    "fc.weight ",
    "FC.weight",
]


def extra(files: Files, number: int, random: Random) -> None:
    write(files, tensors_of(files) | {STRANGE[number]: ("BF16", [256], bytes(512))})


def renamed(files: Files, number: int, random: Random) -> None:
    tensors = tensors_of(files)
    tensors[STRANGE[number]] = tensors.pop(sorted(NAMES)[number])
    write(files, tensors)


def both_spellings(files: Files, number: int, random: Random) -> None:
    name = (FC, K, "norm.weight")[number]
    tensors = tensors_of(files)
    write(files, tensors | {f"model.{name}": tensors[name]})


def same_by_other_words(files: Files, number: int, random: Random) -> None:
    """The same tensors in another order, under the other prefix, in a finer type, with notes."""
    tensors = list(tensors_of(files).items())
    if number < 4:
        random.shuffle(tensors)
    if number in {1, 4}:
        tensors = [(f"model.{name}", tensor) for name, tensor in tensors]
    if number in {2, 5}:
        values = weights_of(files.weights.read_bytes())
        tensors = [
            (name, ("F32", shape, values[name].tobytes())) for name, (_, shape, _) in tensors
        ]
    write(files, dict(tensors))
    if number in {3, 6}:
        files.edit_header(lambda header: header.update(__metadata__={"format": "pt", "x": "\n"}))
    if number == 7:
        header, body = split(files.weights.read_bytes())
        files.weights.write_bytes(joined(json.dumps(header, indent=3).encode(), body))
    if number == 8:  # not as the format has it, but safetensors and mainline read it
        header, body = split(files.weights.read_bytes())
        files.weights.write_bytes(joined(b" \n" + text_of(header), body))
    if number == 9:
        files.edit_header(lambda header: header[FC].update(note="x"))


KINDS = (
    Kind("empty", NO_HEADER, cut("length"), real=True),
    Kind("cut within the length", NO_HEADER, cut("length"), 8),
    Kind("cut within the header", NO_HEADER, cut("header"), 12),
    Kind("cut within the data", NOT_WHOLE, cut("data"), 12, real=True),
    Kind("cut between tensors", NOT_WHOLE, cut("tensors"), 13),
    Kind("bytes behind the data", NOT_WHOLE, append, 6),
    Kind("bit of the length", DAMAGED, flip_length, 32),
    Kind("bit of the header", DAMAGED, flip_header, 64),
    Kind("bit of a weight", Sound(), flip_weight, 33),
    Kind("bit of a norm", Sound(), flip_norm, 8),
    Kind(
        "not finite",
        Refused(r": near row \d+ a value is infinite or not a number; "),
        make_infinite,
        8,
    ),
    Kind(
        "too large for a K-quant",
        Refused(r"\.weight: near row \d+ a value is too large for q"),
        make_huge,
        4,
    ),
    Kind("bf16 called f16", Sound(), declare_f16, 4),
    Kind("tensors that changed places", Sound(), swap, 3),
    Kind("100,000 tensors more", UNKNOWN, many_tensors, real=True),
    Kind("a tensor less", MISSING, without, 14),
    Kind("a tensor more", UNKNOWN, extra, 14, real=True),
    Kind("a tensor of another name", UNKNOWN, renamed, 14),
    Kind("a tensor in both spellings", TWICE, both_spellings, 3),
    Kind("the same by other words", Sound(), same_by_other_words, 10),
)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_outcome(kind: Kind, tmp_path: Path) -> None:
    check_kind(kind, tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.real], ids=named)
def test_outcome_of_a_process(kind: Kind, tmp_path: Path) -> None:
    check_process(kind, tmp_path)
