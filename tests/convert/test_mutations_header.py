"""Mutated headers of safetensors files: KINDS states beforehand what comes of each kind."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from .mutating import (
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
)
from .mutating_process import check_process
from .test_mutations import DOWN, FC, GATE, NO_HEADER, NOT_JSON, NOT_WHOLE, UP, K, Q, V

SHAPE = Refused(r"has the shape \[.*\], expected \[.*\] by config.json")


def entry(name: str, key: str, values: list[Any]) -> Mutation:
    """Put one of `values` under a key of a tensor's entry."""

    def mutate(files: Files, number: int, random: Random) -> None:
        files.edit_header(lambda header: header[name].update({key: values[number]}))

    return mutate


SAME_WIDTH = ["I16", "U16"]
OTHER_WIDTH = ["F32", "F64", "I8", "U8", "I64", "BOOL", "F8_E4M3", "F8_E5M2"]
NO_DTYPE = ["BF17", "bf16", "", None, 3, ["BF16"], {"BF16": 1}]
LIKE_SHAPES = [[512, 256], [131072], [256, 512, 1], [1, 256, 512], [128, 1024], [2, 128, 512]]
OTHER_SHAPES = [[256, 511], [255, 512], [], [0, 512], [256, 2**62], [2**63, 2], [2**64, 1]]
NO_SHAPES = [[-256, -512], [256.0, 512], ["256", 512], [[256], 512], [True, 512], None, 131072, "x"]
SIZE = 2 * 256 * 512  # bytes of fc.weight, which stands first
OFFSETS = [
    [2, SIZE + 2],
    [0, SIZE - 2],
    [0, SIZE + 2],
    [SIZE, 0],
    [SIZE, 2 * SIZE],
    [2**40, 2**40 + SIZE],
]
OFFSETS += [[2**64 - SIZE, 2**64], [-SIZE, 0], [0.0, SIZE], [0], [0, SIZE, SIZE], ["0", SIZE], None]


def overlap(files: Files, number: int, random: Random) -> None:
    one, other = ((GATE, UP), (UP, GATE), (K, V), (FC, Q), (GATE, DOWN), (V, K))[number]

    def change(header: dict[str, Any]) -> None:
        begin, _ = header[one]["data_offsets"]
        first, last = header[other]["data_offsets"]
        header[other]["data_offsets"] = [begin, begin + last - first]

    files.edit_header(change)


BROKEN: list[Callable[[dict[str, Any]], bytes]] = [
    lambda header: b"[1]",
    lambda header: b'"text"',
    lambda header: b"12",
    lambda header: b"null",
    lambda header: b"",
    lambda header: b"{",
    lambda header: b'{"a":' * 100_000,
    lambda header: b"[" * 100_000,
    lambda header: text_of(header).replace(b"512", b"9" * 5000, 1),
    lambda header: text_of(header).replace(b"[256, 512]", b"[NaN, 512]", 1),
    lambda header: text_of(header).replace(b"[256, 512]", b"[1e400, 512]", 1),
    lambda header: text_of(header).replace(b"fc.", b"f\xff.", 1),
    lambda header: text_of(header).replace(b"fc.weight", rb"fc\ud800", 1),
    lambda header: text_of(header).replace(b'"dtype"', b'"dtypes"', 1),
    lambda header: text_of(header | {FC: None}),
    lambda header: text_of(header | {FC: []}),
    lambda header: text_of(header | {FC: "BF16"}),
    lambda header: text_of(header | {"__metadata__": {"format": 1}}),
    lambda header: text_of(header | {"__metadata__": ["pt"]}),
    lambda header: text_of(header)[:-1] + b', "a": {"dtype": "BF16", "shape": []}}',
]


def broken_header(files: Files, number: int, random: Random) -> None:
    header, body = split(files.weights.read_bytes())
    files.weights.write_bytes(joined(BROKEN[number](header), body))


def huge_length(files: Files, number: int, random: Random) -> None:
    data = files.weights.read_bytes()
    length = (1 << 60, 2**64 - 1, 1 << 63, 17 << 20, len(data) - 7, 100_000_000)[number]
    files.weights.write_bytes(struct.pack("<Q", length) + data[8:])


def huge_header(files: Files, number: int, random: Random) -> None:
    """The header is as long as it says, but longer than any checkpoint's; with a hole for a file of terabytes."""
    header, body = split(files.weights.read_bytes())
    if number == 0:
        files.weights.write_bytes(joined(text_of(header) + b" " * (16 << 20), body))
        return
    with files.weights.open("r+b") as file:
        file.write(struct.pack("<Q", 1 << 40))
        file.truncate((1 << 40) + 8)


def padded_header(files: Files, number: int, random: Random) -> None:
    header, body = split(files.weights.read_bytes())
    files.weights.write_bytes(joined(text_of(header) + b" " * (15 << 20, 8, 4096)[number], body))


KINDS = (
    Kind(
        "dtype of the same width",
        Refused(r"has the type \w16, expected BF16, F16, F32"),
        entry(FC, "dtype", SAME_WIDTH),
        2,
    ),
    Kind("dtype of another width", NOT_WHOLE, entry(FC, "dtype", OTHER_WIDTH), 8),
    Kind("no dtype", NOT_WHOLE, entry(FC, "dtype", NO_DTYPE), 7),
    Kind("shape of the same size", SHAPE, entry(FC, "shape", LIKE_SHAPES), 6),
    Kind("shape of another size", NOT_WHOLE, entry(FC, "shape", OTHER_SHAPES), 7, real=True),
    Kind("no shape", NOT_WHOLE, entry(FC, "shape", NO_SHAPES), 8),
    Kind("offsets that lead elsewhere", NOT_WHOLE, entry(FC, "data_offsets", OFFSETS), 13),
    Kind("overlapping tensors", NOT_WHOLE, overlap, 6, real=True),
    Kind("broken header", NOT_JSON, broken_header, len(BROKEN), real=True),
    Kind("length of a huge header", NO_HEADER, huge_length, 6, real=True),
    Kind("huge header", NO_HEADER, huge_header, 2, real=True),
    Kind("padded header", Sound(), padded_header, 3, real=True),
)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_outcome(kind: Kind, tmp_path: Path) -> None:
    check_kind(kind, tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.real], ids=named)
def test_outcome_of_a_process(kind: Kind, tmp_path: Path) -> None:
    check_process(kind, tmp_path)
