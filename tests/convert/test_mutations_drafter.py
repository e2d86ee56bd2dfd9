"""Mutated drafters as `quantize` and `inspect` read them: KINDS states beforehand what comes of each kind."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from dflash_gguf.gguf_file import GgufFile

from .mutating import (
    Change,
    Files,
    Kind,
    Mutation,
    Refused,
    Reported,
    Sound,
    check_kind,
    named,
)
from .mutating_gguf import DRAFTER, bytes_of, common, entry_of, keys_of, pairs_of
from .mutating_process import check_process

SIZES = [
    *("embedding_length", "feed_forward_length", "block_count"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length"),
]
LIMITS = [size for size in SIZES if size != "block_count"]  # of which the mix depends
WRONG_SIZES = {f"dflash.{key}": [None, 0, -1, 2**31, 2**63, "4", [4], 2.0, True] for key in SIZES}
ODD_KEYS: dict[str, list[Any]] = {
    "dflash.block_count": [None, 0, 2, 2**32 - 1, "1", -1, 2**40, [1]],
    "dflash.attention.sliding_window_pattern": [["a"], 1, "x"],
    "dflash.target_layers": [None],
    "dflash.rope.freq_base": [None],
    "dflash.block_size": [None],
    "dflash.attention.key_length": [None, "x", [1]],
    "tokenizer.ggml.mask_token_id": [None, 320, 2**40, "x"],
    "general.architecture": ["qwen35", "dflash-draft", "x\n\x1b[31m"],
    "dflash_gguf.version": [None],
}


def weight(change: Callable[[int, int], int]) -> Mutation:
    """Change the bits of a bf16 weight of the drafter's GGUF, by the number of the case."""

    def mutate(files: Files, number: int, random: Random) -> Change:
        data = bytearray(files.add_drafter())
        with GgufFile(files.drafter) as file:
            names = [name for name, info in file.tensors.items() if info.type.name == "BF16"]
            name = random.choice(names)
            info = file.tensors[name]
        at = info.offset + 2 * random.randrange(info.length // 2)
        (bits,) = struct.unpack_from("<H", data, at)
        struct.pack_into("<H", data, at, change(bits, number))
        files.drafter.write_bytes(data)
        raw = np.frombuffer(data, "<u2", info.length // 2, info.offset)
        return Change({name: (raw.astype(np.uint32) << 16).view(np.float32)})

    return mutate


def at_the_limit(files: Files, number: int, random: Random) -> Change:
    """A size as large as may be: llama-quantize, too, goes by the tensors' own shapes."""
    key = f"dflash.{LIMITS[number]}"
    data = files.add_drafter()
    with GgufFile(files.drafter) as file:
        at = file.fields[key].offset
    raw = struct.pack("<I", 2**31 - 1)
    files.drafter.write_bytes(data[:at] + raw + data[at + 4 :])
    return Change(keys={key: raw})


def three_dimensions(data: bytearray, file: GgufFile, number: int, random: Random) -> None:
    """A matrix is called 8 of them."""
    at = entry_of(data, "fc.weight")
    columns, rows = struct.unpack_from("<QQ", data, at + 4)
    data[at : at + 20] = struct.pack("<IQQQ", 3, columns, rows // 8, 8)
    # the padding before the data is 8 bytes shorter, or 24 longer
    if file.data_offset - _end(file) >= 8:
        del data[file.data_offset : file.data_offset + 8]
    else:
        data[file.data_offset + 8 : file.data_offset + 8] = bytes(24)


def _end(file: GgufFile) -> int:
    end = max(field.offset + field.length for field in file.fields.values())
    return end + sum(24 + len(info.name) + 8 * len(info.shape) for info in file.tensors.values())


def no_tensors(data: bytearray, file: GgufFile, number: int, random: Random) -> None:
    struct.pack_into("<Q", data, 8, 0)
    del data[max(field.offset + field.length for field in file.fields.values()) :]


def target_as_drafter(files: Files, number: int, random: Random) -> None:
    shutil.copy(files.target, files.drafter)


KINDS = (
    *common(DRAFTER, "quantize"),
    *common(DRAFTER, "inspect"),
    Kind(
        "quantize target",
        Refused("architecture 'qwen35'; expected a DFlash", DRAFTER),
        target_as_drafter,
        command="quantize",
    ),
    Kind(
        "quantize no tensors",
        Refused("it holds no tensors", DRAFTER),
        bytes_of(DRAFTER, no_tensors),
        command="quantize",
    ),
    Kind(
        "quantize three dimensions",
        Refused("has 3 dimensions; expected a matrix", DRAFTER),
        bytes_of(DRAFTER, three_dimensions),
        command="quantize",
    ),
    Kind(
        "quantize wrong sizes",
        Refused(r"the key dflash\.\S+ is", DRAFTER),
        keys_of(DRAFTER, WRONG_SIZES),
        len(pairs_of(WRONG_SIZES)),
        "quantize",
        real=True,
    ),
    Kind("quantize sizes at the limit", Sound(), at_the_limit, len(LIMITS), "quantize"),
    Kind(
        "quantize bit of a weight",
        Sound(),
        weight(lambda bits, number: bits ^ 1 << number),
        10,
        "quantize",
    ),
    Kind(
        "quantize sign of a weight", Sound(), weight(lambda bits, _: bits ^ 0x8000), 4, "quantize"
    ),
    Kind(
        "quantize not finite",
        Refused(r": near row \d+ a value is infinite", DRAFTER),
        weight(lambda bits, _: bits | 0x7F80),
        6,
        "quantize",
    ),
    Kind(
        "quantize too large",
        Refused("a value is too large for q", DRAFTER),
        weight(lambda bits, _: bits & 0x807F | 0x7F00),
        6,
        "quantize",
    ),
    Kind("inspect target", Reported("this may be a target"), target_as_drafter, command="inspect"),
    Kind(
        "inspect no tensors",
        Reported("tensors are missing"),
        bytes_of(DRAFTER, no_tensors),
        command="inspect",
    ),
    Kind(
        "inspect odd keys",
        Reported(
            "is missing|missing, such as|unknown|the key .* is|outside|not a drafter|fork|another converter"
        ),
        keys_of(DRAFTER, ODD_KEYS),
        len(pairs_of(ODD_KEYS)),
        "inspect",
        real=True,
    ),
)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_outcome(kind: Kind, tmp_path: Path) -> None:
    check_kind(kind, tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.real], ids=named)
def test_outcome_of_a_process(kind: Kind, tmp_path: Path) -> None:
    check_process(kind, tmp_path)
