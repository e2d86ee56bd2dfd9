"""The GGUF reader: values, bounds, and files that are not what they say."""

from __future__ import annotations

import ctypes
import random
import struct
import time
import tracemalloc
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dflash_gguf.errors import ModelError
from dflash_gguf.ggml_types import TENSOR_TYPES, ValueType
from dflash_gguf.gguf_file import GgufFile

TOKENS = ["a", "", "é", "<|end|>"]


def make_file(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_uint32("qwen3.block_count", 7)
    writer.add_float32("qwen3.rope.freq_base", 1e6)
    writer.add_bool("flag", True)
    writer.add_int64("far", -(2**40))
    writer.add_array("layers", [1, -2, 3])
    writer.add_array("pattern", [True, False])
    writer.add_token_list(TOKENS)
    writer.add_tensor("one", np.arange(8, dtype=np.float32))
    writer.add_tensor("two", np.arange(64, dtype=np.float16).reshape(2, 32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_file(tmp_path / "x.gguf")


def read_all(path: Path) -> None:
    """Touch everything there is in a file."""
    with GgufFile(path) as file:
        for key in file.fields:
            file.value(key)
            file.raw(key)
        for name in file.tensors:
            file.data(name)


def test_types_are_gguf_pys_and_ggmls() -> None:
    for kind in gguf.GGMLQuantizationType:
        ours = TENSOR_TYPES[int(kind)]
        assert ours.name == kind.name
        if kind is not gguf.GGMLQuantizationType.Q8_1:  # gguf 0.19 still has its old size
            assert (ours.block, ours.size) == gguf.GGML_QUANT_SIZES[kind]
    assert {int(kind): kind.name for kind in gguf.GGUFValueType} == {
        int(k): k.name for k in ValueType
    }


def test_types_are_the_ones_llama_cpp_reads() -> None:
    lib = ctypes.CDLL(str(next(Path(llama_cpp.__file__).parent.glob("lib/libggml-base.*"))))
    lib.ggml_type_size.restype = ctypes.c_size_t
    lib.ggml_blck_size.restype = ctypes.c_int64
    lib.ggml_type_name.restype = ctypes.c_char_p
    for number, kind in TENSOR_TYPES.items():
        name = lib.ggml_type_name(number).decode().upper()
        assert (name, lib.ggml_blck_size(number), lib.ggml_type_size(number)) == (
            kind.name,
            kind.block,
            kind.size,
        )


def test_values(path: Path) -> None:
    with GgufFile(path) as file:
        assert (file.version, file.alignment, file.architecture) == (3, 32, "qwen3")
        assert file.size == path.stat().st_size
        assert file.integer("qwen3.block_count") == 7
        assert file.integer("far") == -(2**40)
        assert file.number("qwen3.rope.freq_base") == 1e6
        assert file.number("qwen3.block_count") == 7.0
        assert file.boolean("flag") is True
        assert file.array("layers") == [1, -2, 3]
        assert file.array("pattern") == [True, False]
        assert file.array("tokenizer.ggml.tokens") == TOKENS
        assert file.count("tokenizer.ggml.tokens") == len(TOKENS)
        assert file.raw("qwen3.block_count") == struct.pack("<I", 7)
        assert file.raw("layers") == struct.pack("<IQ3i", ValueType.INT32, 3, 1, -2, 3)


def test_tensors(path: Path) -> None:
    with GgufFile(path) as file:
        one, two = file.tensors["one"], file.tensors["two"]
        assert (one.type.name, one.shape, one.length) == ("F32", (8,), 32)
        assert (two.type.name, two.shape, two.length) == ("F16", (32, 2), 128)
        assert two.offset == file.data_offset + 32
        assert file.data("one") == np.arange(8, dtype=np.float32).tobytes()


def test_defaults_and_missing_keys(path: Path) -> None:
    with GgufFile(path) as file:
        assert file.integer("none", 3) == 3
        assert file.number("none", 0.5) == 0.5
        assert file.string("none", "x") == "x"
        assert file.boolean("none", default=False) is False
        assert file.array("none", []) == []
        for read in (file.integer, file.number, file.string, file.boolean, file.array, file.raw):
            with pytest.raises(ModelError, match="the key none is missing"):
                read("none")
        with pytest.raises(ModelError, match="there is no tensor none"):
            file.data("none")


def test_another_type_than_asked_for(path: Path) -> None:
    with GgufFile(path) as file:
        with pytest.raises(ModelError, match="block_count is UINT32; expected str"):
            file.string("qwen3.block_count")
        with pytest.raises(ModelError, match="flag is BOOL; expected int"):
            file.integer("flag")
        with pytest.raises(ModelError, match="layers is ARRAY; expected number"):
            file.number("layers")
        with pytest.raises(ModelError, match="flag is BOOL; expected an array"):
            file.count("flag")


def test_closing_twice_is_harmless(path: Path) -> None:
    file = GgufFile(path)
    file.close()
    file.close()


def test_every_truncation_is_noticed(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    cut = tmp_path / "cut.gguf"
    last_byte_of_data = len(whole) - 0
    with GgufFile(path) as file:
        last_byte_of_data = max(info.offset + info.length for info in file.tensors.values())
    for length in range(last_byte_of_data):
        cut.write_bytes(whole[:length])
        with pytest.raises(ModelError) as error:
            GgufFile(cut)
        assert str(cut) in str(error.value)
        assert "\n" not in str(error.value)


def header(tensors: int, keys: int, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str, shape: list[int], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


FAULTS = {
    "empty": (b"", "it is empty"),
    "text": (b"hello world", "it begins with b'hell'; expected b'GGUF'"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "it is big-endian"),
    "old": (header(0, 0, version=1), "GGUF version 1"),
    "new": (header(0, 0, version=4), "GGUF version 4"),
    "many tensors": (header(2**63, 0), "cannot fit in the 0 bytes"),
    "many keys": (header(0, 2**64 - 1, bytes(1000)), "cannot fit in the 1000 bytes"),
    "long key": (header(0, 1, struct.pack("<Q", 2**63) + bytes(50)), "expected 1 to 65535"),
    "no key": (header(0, 1, struct.pack("<Q", 0) + bytes(50)), "key 0 has 0 bytes"),
    "key not text": (header(0, 1, struct.pack("<Q", 1) + b"\xff" + bytes(50)), "is not text"),
    "unknown type": (header(0, 1, key("a", 13, bytes(9))), "the key a has the unknown type 13"),
    "nested": (header(0, 1, key("a", 9, struct.pack("<IQ", 9, 1) + bytes(30))), "array of arrays"),
    "long array": (
        header(0, 1, key("a", 9, struct.pack("<IQ", 4, 2**62))),
        "values of the key a cannot",
    ),
    "long strings": (
        header(0, 1, key("a", 9, struct.pack("<IQ", 8, 2**62))),
        "values of the key a cannot",
    ),
    "long string": (
        header(0, 1, key("a", 8, struct.pack("<Q", 2**64 - 1))),
        "it ends within the key a",
    ),
    "twice": (header(0, 2, key("a", 7, b"\1") * 2 + bytes(9)), "the key a stands twice"),
    "alignment": (
        header(0, 1, key("general.alignment", 4, struct.pack("<I", 3))),
        "expected a power of two",
    ),
    "alignment type": (header(0, 1, key("general.alignment", 5, bytes(4))), "alignment is INT32"),
    "no dims": (header(1, 0, tensor("t", [], 0, 0) + bytes(99)), "has 0 dimensions"),
    "many dims": (header(1, 0, tensor("t", [1] * 5, 0, 0) + bytes(99)), "has 5 dimensions"),
    "no rows": (header(1, 0, tensor("t", [4, 0], 0, 0) + bytes(99)), "the shape (4, 0)"),
    "large": (header(1, 0, tensor("t", [2**40, 2**40], 0, 0) + bytes(99)), "the shape"),
    "ggml type": (header(1, 0, tensor("t", [32], 99, 0) + bytes(99)), "the unknown type 99"),
    "blocks": (header(1, 0, tensor("t", [33], 8, 0) + bytes(99)), "expected a multiple of 32"),
    "outside": (
        header(1, 0, tensor("t", [32], 0, 0) + bytes(99)),
        "bytes behind the end of the file",
    ),
    "far": (
        header(1, 0, tensor("t", [1], 0, 2**63) + bytes(99)),
        "bytes behind the end of the file",
    ),
    "unaligned": (header(1, 0, tensor("t", [1], 0, 8) + bytes(99)), "not a multiple of 32"),
    "overlap": (
        header(2, 0, tensor("t", [9], 0, 0) + tensor("u", [1], 0, 32) + bytes(999)),
        "the tensors t and u overlap",
    ),
    "same name": (
        header(2, 0, tensor("t", [1], 0, 0) + tensor("t", [1], 0, 32) + bytes(999)),
        "the tensor t stands twice",
    ),
    "long name": (header(1, 0, tensor("t" * 64, [1], 0, 0) + bytes(99)), "expected 1 to 63"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(fault: str, tmp_path: Path) -> None:
    data, said = FAULTS[fault]
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(ModelError) as error:
            GgufFile(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert str(error.value).startswith(f"{path}: ")
    assert said in str(error.value)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="it is a folder"):
        GgufFile(tmp_path)
    with pytest.raises(ModelError, match="it cannot be read"):
        GgufFile(tmp_path / "missing")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    path = make_file(tmp_path_factory.mktemp("gguf") / "x.gguf")
    return path, path.read_bytes()


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_mutated_files_are_refused_or_read(sound: tuple[Path, bytes], data: st.DataObject) -> None:
    path, whole = sound
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(changed) - 1))
        if data.draw(st.booleans()):
            changed[place] = data.draw(st.integers(0, 255))
        else:
            word = data.draw(st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]))
            changed[place : place + 8] = struct.pack("<Q", word)
    mutated = path.with_name("mutated.gguf")
    mutated.write_bytes(changed)
    try:
        read_all(mutated)
    except ModelError as error:
        assert "\n" not in str(error)  # noqa: PT017


@settings(max_examples=200, deadline=None)
@given(tail=st.binary(max_size=200), tensors=st.integers(0, 3), keys=st.integers(0, 3))
def test_random_headers_are_refused_or_read(
    tail: bytes, tensors: int, keys: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "random.gguf"
    path.write_bytes(header(tensors, keys, tail))
    try:
        read_all(path)
    except ModelError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_a_large_vocabulary_opens_at_once(tmp_path: Path) -> None:
    count = 248_320
    made = random.Random(0)
    lengths = [made.randrange(1, 12) for _ in range(count)]
    strings = b"".join(struct.pack("<Q", n) + b"x" * n for n in lengths)
    tokens = struct.pack("<IQ", 8, count) + strings
    types = struct.pack("<IQ", 5, count) + bytes(4 * count)
    data = [key("tokenizer.ggml.tokens", 9, tokens), key("tokenizer.ggml.merges", 9, tokens)]
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(header(0, 3, b"".join(data) + key("tokenizer.ggml.token_type", 9, types)))
    took = []
    for _ in range(3):
        start = time.perf_counter()
        with GgufFile(path) as file:
            assert file.count("tokenizer.ggml.tokens") == count
        took.append(time.perf_counter() - start)
    assert min(took) < 0.3
