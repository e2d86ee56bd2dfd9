"""The native part: types and rows by llama.cpp's code, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest

from dflash_gguf._native import core
from dflash_gguf.convert import OUTPUT_TYPES, convert
from dflash_gguf.gguf_file import GgufFile

from .cases import CASES
from .made import make_values, to_bf16

F32, F16, Q4_0, Q8_0, Q5_K, Q6_K, BF16 = 0, 1, 2, 8, 13, 14, 30

QUANTISED = [name for name, kind in OUTPUT_TYPES.items() if kind.plain is None]


EVERY_TYPE = [case for case in CASES if case.every_type]


@pytest.mark.parametrize("case", EVERY_TYPE, ids=lambda case: case.name)
@pytest.mark.parametrize("kind", QUANTISED)
def test_same_file_as_llama_model_quantize(case: Any, kind: str, tmp_path: Path) -> None:
    draft, target = case.write(tmp_path)
    plain, ours = convert(draft, target, outtypes=["bf16", kind])
    theirs = tmp_path / "theirs.gguf"
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = OUTPUT_TYPES[kind].file_type
    params.nthread = 2
    assert (
        llama_cpp.llama_model_quantize(str(plain.path).encode(), str(theirs).encode(), params) == 0
    )
    with GgufFile(ours.path) as a, GgufFile(theirs) as b:
        assert list(a.tensors) == list(b.tensors)
        for name, info in a.tensors.items():
            assert info.type == b.tensors[name].type, name
            assert a.data(name) == b.data(name), name
        assert {key: a.raw(key) for key in a.fields} == {key: b.raw(key) for key in b.fields}


def rows_of(
    values: bytes, kind: int, to: int, rows: int, columns: int, size: int, threads: int = 1
) -> bytes:
    out = bytearray(size)
    core().convert_rows(values, kind, out, to, rows, columns, threads)
    return bytes(out)


def test_threads_do_not_change_the_bytes() -> None:
    values = make_values("x", 512 * 256).tobytes()
    one = rows_of(values, F32, Q5_K, 512, 256, 512 * 176)
    assert all(rows_of(values, F32, Q5_K, 512, 256, 512 * 176, n) == one for n in (2, 3, 7, 400))


def test_bf16_is_rounded_to_nearest_even() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x00000001], dtype="<u4")
    got = np.frombuffer(rows_of(bits.tobytes(), F32, BF16, 1, 4, 8), dtype="<u2")
    assert got.tolist() == [0x3F80, 0x3F82, 0x3F81, 0]


def test_equal_types_are_copied() -> None:
    bits = np.array([0x3F80, 0x8000, 0x0001, 0x7F7F], dtype="<u2").tobytes()
    assert rows_of(bits, BF16, BF16, 1, 4, 8) == bits


def test_bf16_source_gives_what_its_f32_values_give() -> None:
    raw = to_bf16(make_values("y", 4 * 256))
    wide = (np.frombuffer(raw, dtype="<u2").astype("<u4") << 16).tobytes()
    assert rows_of(raw, BF16, Q6_K, 4, 256, 840) == rows_of(wide, F32, Q6_K, 4, 256, 840)
    assert rows_of(raw, BF16, F32, 4, 256, 4096) == wide


def test_quantised_rows_give_what_their_values_give() -> None:
    packed = rows_of(make_values("w", 1024).tobytes(), F32, Q8_0, 4, 256, 4 * 272)
    wide = rows_of(packed, Q8_0, F32, 4, 256, 4096)
    assert rows_of(packed, Q8_0, Q5_K, 4, 256, 704) == rows_of(wide, F32, Q5_K, 4, 256, 704)
    assert rows_of(packed, Q8_0, Q8_0, 4, 256, 1088) == packed


def test_a_quantised_row_that_is_not_finite_is_refused() -> None:
    packed = bytearray(rows_of(make_values("w", 256).tobytes(), F32, Q8_0, 1, 256, 272))
    packed[0:2] = b"\x00\x7c"  # a block's scale
    with pytest.raises(ValueError, match="infinite or not a number"):
        core().convert_rows(packed, Q8_0, bytearray(1024), F32, 1, 256)


def test_importance_changes_the_rounding_only() -> None:
    values = make_values("v", 512).tobytes()
    even = np.ones(256, np.float32)
    uneven = np.where(np.arange(256) % 2, 1e-3, 1e3).astype(np.float32)
    results = []
    for weights in (even, uneven):
        out = bytearray(2 * 176)
        core().convert_rows(values, F32, out, Q5_K, 2, 256, 1, weights)
        results.append(bytes(out))
    assert results[0] != results[1]
    with pytest.raises(ValueError, match="importance buffer must have 1024 bytes"):
        core().convert_rows(values, F32, bytearray(352), Q5_K, 2, 256, 1, even[:255])


def test_f16_overflow_is_counted() -> None:
    values = np.array([1.0, 65504.0, 65520.0, -1e6, 0.0], dtype="<f4").tobytes()
    assert core().convert_rows(values, F32, bytearray(10), F16, 1, 5) == 2


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (np.nan, "near row 0 a value is infinite or not a number"),
        (-np.inf, "near row 0 a value is infinite or not a number"),
        (1e38, "near row 0 a value is too large for q5_K"),
    ],
)
def test_values_a_block_cannot_hold(
    value: float, match: str, capfd: pytest.CaptureFixture[str]
) -> None:
    values = make_values("z", 512)
    values[300] = value
    with pytest.raises(ValueError, match=match):
        core().convert_rows(values.tobytes(), F32, bytearray(352), Q5_K, 2, 256)
    assert capfd.readouterr().err == ""  # ggml's own check would print


def test_large_values_that_fit_are_taken() -> None:
    values = make_values("large", 512, scale=2e6)
    core().convert_rows(values.tobytes(), F32, bytearray(352), Q5_K, 2, 256)
    core().convert_rows(values.tobytes(), F32, bytearray(544), Q8_0, 2, 256)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((bytes(1020), F32, bytearray(176), Q5_K, 1, 256), "source buffer must have 1024"),
        ((bytes(1024), F32, bytearray(175), Q5_K, 1, 256), "target buffer must have 176"),
        ((bytes(1000), F32, bytearray(175), Q5_K, 1, 250), "divisible by 256"),
        ((bytes(8), F32, bytearray(8), 99, 1, 2), "unknown ggml type"),
        ((bytes(8), F32, bytearray(8), 4, 1, 2), "unknown ggml type"),
        ((bytes(8), F32, bytearray(8), -1, 1, 2), "unknown ggml type"),
        ((bytes(36), 9, bytearray(64), F16, 1, 32), "must be floats or quantised"),
        ((bytes(8), 27, bytearray(4), F32, 1, 1), "must be floats or quantised"),
        ((bytes(34), Q8_0, bytearray(66), F16, 1, 33), "q8_0 needs rows divisible by 32"),
        ((bytes(1024), F32, bytearray(66), 16, 1, 256), "cannot make rows"),
        ((bytes(8), F32, bytearray(8), 26, 1, 2), "cannot make rows"),
        ((bytes(8), F32, bytearray(8), F32, -1, 2), "below 2"),
        ((bytes(8), F32, bytearray(8), F32, 1, 0), "below 2"),
        ((bytes(8), F32, bytearray(8), F32, 1 << 40, 1 << 40), "below 2"),
    ],
)
def test_wrong_rows_are_python_errors(arguments: tuple[Any, ...], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        core().convert_rows(*arguments)


def test_a_read_only_or_strided_buffer_is_refused() -> None:
    with pytest.raises((ValueError, BufferError, TypeError)):
        core().convert_rows(bytes(8), F32, bytes(8), F32, 1, 2)
    with pytest.raises(ValueError, match="contiguous"):
        core().convert_rows(memoryview(bytes(16))[::2], F32, bytearray(8), F32, 1, 2)


def types_of(
    *tensors: tuple[str, list[int]],
    ftype: int = 17,
    layers: int = 1,
    arch: str = "dflash",
    wishes: dict[str, int] | None = None,
) -> list[int]:
    return core().quantized_types(  # type: ignore[no-any-return]
        arch,
        ftype,
        n_embd=256,
        n_ff=512,
        n_layer=layers,
        n_head=4,
        n_head_kv=2,
        head_dim=64,
        tensors=list(tensors),
        wishes=wishes or {},
    )


def test_types_of_a_mix() -> None:
    tensors = [(f"blk.{i}.attn_v.weight", [256, 128]) for i in range(8)]
    types = types_of(*tensors, layers=8)
    assert (types[0], types[7]) == (Q6_K, Q6_K)  # the ends get more bits
    assert set(types) == {Q5_K, Q6_K}
    assert types_of(("output_norm.weight", [256]), ("fc.weight", [512, 256])) == [F32, Q5_K]


@pytest.mark.parametrize(
    ("tensors", "options", "match"),
    [
        ([("x" * 64, [256, 256])], {}, "the name must have"),
        ([("", [256, 256])], {}, "the name must have"),
        ([("a.weight", [])], {}, "expected 1 to 3 dimensions"),
        ([("a.weight", [0, 4])], {}, "expected 1 to 3 dimensions"),
        ([("a.weight", [1 << 40, 4])], {}, "expected 1 to 3 dimensions"),
        ([("a.weight", [256, 4])], {"ftype": 4}, "not one we quantise to"),
        ([("a.weight", [256, 4])], {"ftype": -7}, "not one we quantise to"),
        ([("a.weight", [256, 4])], {"layers": 0}, "n_layer must be"),
        ([("a.weight", [256, 4])], {"layers": 513}, "n_layer must be"),
    ],
)
def test_wrong_tensors_are_python_errors(
    tensors: list[tuple[str, list[int]]], options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        types_of(*tensors, **options)


def test_a_wished_type() -> None:
    tensors = [("fc.weight", [512, 256]), ("blk.0.attn_q.weight", [256, 256])]
    assert types_of(*tensors, wishes={"fc.weight": Q8_0}) == [Q8_0, Q5_K]
    assert types_of(*tensors, wishes={"fcxweight": Q8_0, "c.weight": Q8_0}) == [Q5_K, Q5_K]
    # 44 values in a row fit no block of 32
    assert types_of(("fc.weight", [44, 256]), wishes={"fc.weight": Q8_0}) == [F16]
    with pytest.raises(RuntimeError, match="no tensor type fallback"):
        types_of(("fc.weight", [96, 256]), wishes={"fc.weight": 40})


def test_an_unknown_architecture_is_a_python_error() -> None:
    with pytest.raises(RuntimeError):
        types_of(("a.weight", [256, 4]), arch="nonsense")
