"""Finding a checkpoint, and what is wrong with one."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from dflash_gguf.convert import convert
from dflash_gguf.errors import ConvertError, ModelError

from .made import (
    make_checkpoint,
    make_config,
    make_shards,
    make_target,
    make_weights,
    write_safetensors,
)
from .regenerate_golden import digest_tensors

STEM = "dflash_draft_model"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make_target(tmp_path / "target" / "target.gguf")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "draft", make_config())


def refusal(source: Path, target: Path) -> str:
    with pytest.raises(ModelError) as error:
        convert(source, target)
    folder = source if source.is_dir() else source.parent
    assert not list(folder.glob("*.gguf")) + list(folder.glob(".*.part"))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_oddly_named_shards(draft: Path, target: Path, tmp_path: Path) -> None:  # C9
    shards = make_shards(tmp_path / "odd", make_config(), stem=STEM)
    (whole,) = convert(draft, target, outtypes=["bf16"])
    for source in (shards, shards / f"{STEM}.safetensors.index.json"):
        (parts,) = convert(source, target, outtypes=["bf16"], force=True)
        assert digest_tensors(parts.path) == digest_tensors(whole.path)
        assert parts.path.name == "odd-BF16.gguf"


def test_a_missing_shard(target: Path, tmp_path: Path) -> None:  # C9
    shards = make_shards(tmp_path / "odd", make_config(), stem=STEM)
    (shards / f"{STEM}-00002-of-00002.safetensors").unlink()
    assert f"{STEM}-00002-of-00002.safetensors: it cannot be read" in refusal(shards, target)


def test_no_tensors(draft: Path, target: Path) -> None:  # C9
    write_safetensors(draft / "model.safetensors", {})
    assert "it holds no tensors" in refusal(draft, target)


def edit_index(folder: Path, name: str, file: object) -> None:
    path = folder / f"{STEM}.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][name] = file
    path.write_text(json.dumps(index))


def test_an_index_that_does_not_agree(target: Path, tmp_path: Path) -> None:
    shards = make_shards(tmp_path / "odd", make_config(), stem=STEM)
    edit_index(shards, "model.extra.weight", f"{STEM}-00001-of-00002.safetensors")
    assert "model.extra.weight are not in" in refusal(shards, target)


@pytest.mark.parametrize(
    "file", ["../x.safetensors", "/etc/passwd", "", 3, None, "a/b.safetensors"]
)
def test_an_index_may_not_lead_elsewhere(file: object, target: Path, tmp_path: Path) -> None:
    shards = make_shards(tmp_path / "odd", make_config(), stem=STEM)
    edit_index(shards, "model.fc.weight", file)
    assert "expected the name of a file beside the index" in refusal(shards, target)


def test_unlisted_tensors(target: Path, tmp_path: Path) -> None:
    shards = make_shards(tmp_path / "odd", make_config(), stem=STEM)
    path = shards / f"{STEM}.safetensors.index.json"
    index = json.loads(path.read_text())
    del index["weight_map"]["model.fc.weight"]
    path.write_text(json.dumps(index))
    assert "it does not list 1 tensors such as model.fc.weight" in refusal(shards, target)


def test_a_tensor_in_two_shards(target: Path, tmp_path: Path) -> None:
    shards = make_shards(tmp_path / "odd", make_config(), stem=STEM)
    first = shards / f"{STEM}-00001-of-00002.safetensors"
    (shards / f"{STEM}-00002-of-00002.safetensors").write_bytes(first.read_bytes())
    assert "stands in" in refusal(shards, target)


def test_several_checkpoints_in_a_folder(draft: Path, target: Path) -> None:
    (draft / "model.safetensors").rename(draft / "a.safetensors")
    (draft / "b.safetensors").write_bytes((draft / "a.safetensors").read_bytes())
    assert "it holds 2 checkpoints (a.safetensors, b.safetensors)" in refusal(draft, target)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model.bin", "torch does not read it as weights"),
        ("model.pt", "torch does not read it as weights"),
        ("model.gguf", "it is a GGUF already"),
        ("model.txt", "its name ends in '.txt'"),
    ],
)
def test_other_files(name: str, said: str, target: Path, tmp_path: Path) -> None:
    path = tmp_path / "x" / name
    path.parent.mkdir()
    path.write_bytes(b"x")
    with pytest.raises(ConvertError, match=said):
        convert(path, target)


def test_nothing_there(target: Path, tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path / "nowhere", target)
    (tmp_path / "empty").mkdir()
    assert "it holds no .safetensors file" in refusal(tmp_path / "empty", target)
    (tmp_path / "empty" / "pytorch_model.bin").write_bytes(b"")
    assert "pytorch_model.bin" in refusal(tmp_path / "empty", target)


def test_no_config(draft: Path, target: Path) -> None:
    (draft / "config.json").unlink()
    assert "config.json: it cannot be read" in refusal(draft, target)


@pytest.mark.parametrize("text", ["", "{", "[1]", "\x00", "[" * 100_000, '{"a": 1e999999}'])
def test_a_config_that_is_none(text: str, draft: Path, target: Path) -> None:
    (draft / "config.json").write_text(text)
    assert "config.json" in refusal(draft, target)


def test_symlink_loops_and_pipes(target: Path, tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to("model.safetensors")
    assert "model.safetensors" in refusal(folder, target)
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    assert "not a regular file" in refusal(folder, target)


def test_a_link_to_a_checkpoint_is_followed(draft: Path, target: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "model.safetensors").symlink_to(draft / "model.safetensors")
    (linked / "config.json").symlink_to(draft / "config.json")
    (written,) = convert(linked, target, outtypes=["bf16"])
    assert written.path == linked / "linked-BF16.gguf"


def mutated(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[:8], "little")
    if kind == "empty":
        data = bytearray()
    elif kind == "truncated":
        del data[-1:]
    elif kind == "half":
        del data[len(data) // 2 :]
    elif kind == "within the header":
        del data[200:]
    elif kind == "longer":
        data += b"\0"
    elif kind == "huge header":
        data[:8] = struct.pack("<Q", 1 << 60)
    elif kind == "large header":
        data[:8] = struct.pack("<Q", 17 << 20)
    elif kind == "flipped header":
        data[40] ^= 0x80
    elif kind == "overlap":
        header = json.loads(data[8 : 8 + length])
        first, second = list(header)[:2]
        header[second]["data_offsets"] = header[first]["data_offsets"]
        text = json.dumps(header).encode().ljust(length)
        data[8 : 8 + length] = text[:length]
    elif kind == "negative":
        data[8 : 8 + length] = data[8 : 8 + length].replace(b'"shape": [256,', b'"shape": [-56,')
    elif kind == "dtype":
        data[8 : 8 + length] = data[8 : 8 + length].replace(b'"BF16"', b'"BF17"')
    elif kind == "list":
        data[8 : 8 + length] = b"[1]".ljust(length)
    path.write_bytes(data)


KINDS = ["empty", "truncated", "half", "within the header", "longer", "huge header", "large header"]
KINDS += ["flipped header", "overlap", "negative", "dtype", "list"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file(kind: str, draft: Path, target: Path) -> None:
    mutated(draft / "model.safetensors", kind)
    assert str(draft / "model.safetensors") in refusal(draft, target)


def test_a_file_that_shrinks_meanwhile(draft: Path, target: Path) -> None:
    path = draft / "model.safetensors"

    def shrink(done: int, total: int, name: str) -> None:
        os.truncate(path, 4096)

    with pytest.raises(ConvertError, match="it ends within"):
        convert(draft, target, progress=shrink)
    assert sorted(p.name for p in draft.iterdir()) == ["config.json", "model.safetensors"]


def test_types_that_are_not_converted(draft: Path, target: Path) -> None:
    weights = make_weights(make_config())
    _, shape, data = weights["fc.weight"]
    weights["fc.weight"] = ("F8_E4M3", shape, data[: len(data) // 2])
    write_safetensors(draft / "model.safetensors", weights)
    assert "fc.weight has the type F8_E4M3, expected BF16, F16, F32" in refusal(draft, target)


@pytest.mark.parametrize("kind", ["f32", "bf16", "q5_k_m"])
@pytest.mark.parametrize("bits", [0x7F80, 0x7FC1, 0xFF80])
def test_weights_must_be_finite(
    kind: str, bits: int, draft: Path, target: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    weights = make_weights(make_config())
    dtype, shape, data = weights["fc.weight"]
    weights["fc.weight"] = (dtype, shape, data[:-2] + struct.pack("<H", bits))
    write_safetensors(draft / "model.safetensors", weights)
    with pytest.raises(ConvertError, match=r"fc.weight: near row \d+ a value is infinite or not"):
        convert(draft, target, outtypes=[kind])
    assert sorted(p.name for p in draft.iterdir()) == ["config.json", "model.safetensors"]
    assert capfd.readouterr().err == ""  # ggml's own check would print
