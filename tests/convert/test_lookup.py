"""Without `--target`: what lies near and fits, or a known pair; and checkpoints in PyTorch's own format."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf.convert import convert, lookup
from dflash_gguf.convert.config import parse_config
from dflash_gguf.convert.lookup import require_config
from dflash_gguf.convert.reader import SourceTensor
from dflash_gguf.convert.registry import find_pair, read_registry
from dflash_gguf.convert.source import Checkpoint
from dflash_gguf.errors import ConvertError
from dflash_gguf.gguf_file import GgufFile

from .made import (
    MASK,
    make_checkpoint,
    make_config,
    make_d2t,
    make_tables,
    make_target,
    make_weights,
)
from .regenerate_golden import digest_keys, digest_tensors
from .test_folder_target import QWEN35, make_folder, make_tokenizer


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face cache."""
    path = tmp_path / "hub"
    path.mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(path))
    return path


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "small", make_config())


def snapshot(hub: Path, repository: str) -> Path:
    return hub / f"models--{repository.replace('/', '--')}" / "snapshots" / "0"


def test_the_target_beside_the_checkpoint(draft: Path, hub: Path) -> None:
    target = make_target(draft / "target.gguf")
    make_target(draft / "other.gguf", hidden=512)
    (draft / "broken.gguf").write_bytes(b"GGUF")
    make_target(snapshot(hub, "some/other") / "fits-too.gguf")
    (written,) = convert(draft, outtypes=["bf16"])
    assert any(f"no target was given; {target} is" in text for text in written.warnings)
    # our own outputs beside it are no targets
    convert(draft, outtypes=["q8_0"])


def test_the_target_in_the_cache(draft: Path, hub: Path) -> None:
    blob = make_target(hub / "models--a--b" / "blobs" / "0123")
    for revision in ("1", "2"):
        link = hub / "models--a--b" / "snapshots" / revision / "deep" / "t.gguf"
        link.parent.mkdir(parents=True)
        link.symlink_to(blob)
    (written,) = convert(draft, outtypes=["bf16"])
    (explicit,) = convert(draft, blob, outtypes=["bf16"], name="explicit")
    assert digest_tensors(written.path) == digest_tensors(explicit.path)


def test_no_target(draft: Path, hub: Path) -> None:
    make_target(draft / "other.gguf", hidden=512)
    with pytest.raises(ConvertError) as error:
        convert(draft)
    command = f"dflash-gguf convert {draft}/model.safetensors --target TARGET.gguf"
    looked = (
        "there is no tokenizer.json beside it",
        f"no GGUF in {draft} or {hub} fits",
        "no pair is known for it",
    )
    for part in (*looked, command):
        assert part in str(error.value)
    assert "\n" not in str(error.value)


def test_two_targets(draft: Path, hub: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        make_target(draft / name)
    with pytest.raises(
        ConvertError, match=r"2 fit it \(.*a\.gguf, .*b\.gguf\); give one: .*--target .*a\.gguf"
    ):
        convert(draft)
    assert not list(draft.glob("*BF16*"))


def test_the_plain_command(draft: Path, hub: Path) -> None:
    make_target(draft / "target.gguf")
    command = [sys.executable, "-m", "dflash_gguf", "convert", "model.safetensors"]
    done = subprocess.run(command, check=False, cwd=draft, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in draft.glob("small-*")} == {"small-BF16.gguf", "small-Q5_K_M.gguf"}


def put_tokenizer(draft: Path, tokenizer: dict[str, Any] | None = None) -> Path:
    """Put a target's tokenizer beside a checkpoint, whose config.json stays."""
    folder = make_folder(draft.parent / "hf", tokenizer, vocab_size=320)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (draft / name).write_bytes((folder / name).read_bytes())
    return folder


@pytest.mark.parametrize("split", ["qwen2", "qwen35"])
def test_a_tokenizer_beside_the_checkpoint(split: str, draft: Path, hub: Path) -> None:
    tokenizer = make_tokenizer(QWEN35) if split == "qwen35" else make_tokenizer()
    folder = put_tokenizer(draft, tokenizer)
    config = json.loads((folder / "config.json").read_text())
    if split == "qwen35":
        config["architectures"] = ["Qwen3_5ForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config))
    make_target(draft / "target.gguf")  # the tokenizer comes first
    (draft / "config.json").write_text(json.dumps(make_config(eos_token_id=300)))
    (found,) = convert(draft, outtypes=["bf16"])
    (given,) = convert(draft, folder, outtypes=["bf16"], name="given")
    assert any(f"{draft}/tokenizer.json is taken" in text for text in found.warnings)
    assert digest_keys(found.path) == digest_keys(given.path)
    with GgufFile(found.path) as file:
        assert file.string("tokenizer.ggml.pre") == split
        assert file.integer("tokenizer.ggml.eos_token_id") == 300
        assert file.integer("tokenizer.ggml.mask_token_id") == MASK
        # Qwen3.5 always uses M-RoPE, the other targets that split text so never do
        sections = file.array("dflash.rope.dimension_sections", [])
        assert sections == ([32, 0, 0, 0] if split == "qwen35" else [])


def small_tokenizer() -> dict[str, Any]:
    tokenizer = make_tokenizer()
    vocab = tokenizer["model"]["vocab"]
    kept = {token: index for token, index in vocab.items() if index < 200}
    return tokenizer | {"model": {**tokenizer["model"], "vocab": kept}, "added_tokens": []}


@pytest.mark.parametrize(
    ("tokenizer", "why"),
    [
        (make_tokenizer("[a-z]+"), "the way it splits text is not known here"),
        ({"model": {}}, "the way it splits text is not known here"),
        (small_tokenizer(), "it has 200 tokens, and vocab_size is 320"),
    ],
)
def test_a_tokenizer_that_cannot_be_the_targets(
    tokenizer: dict[str, Any], why: str, draft: Path, hub: Path
) -> None:  # C8, L5
    put_tokenizer(draft, tokenizer)
    with pytest.raises(ConvertError, match="the tokenizer beside it is not taken") as error:
        convert(draft)
    assert why in str(error.value)
    make_target(draft / "target.gguf")
    (written,) = convert(draft, outtypes=["bf16"])
    assert any("target.gguf is the only one near" in text for text in written.warnings)


def test_a_tokenizer_is_not_enough_where_weights_are_needed(hub: Path, tmp_path: Path) -> None:
    config = make_config()
    table = make_tables(256, "BF16")["token_embd.weight"]
    weights = make_weights(config) | {"embed_tokens.weight": table}
    draft = make_checkpoint(tmp_path / "own", config, weights=weights)
    put_tokenizer(draft)
    with pytest.raises(ConvertError, match=r"no GGUF in .* fits this drafter; give it"):
        convert(draft)
    make_target(draft / "target.gguf", tensors=make_tables(256, "BF16"))
    (written,) = convert(draft, outtypes=["bf16"])
    with GgufFile(written.path) as file:
        assert "output.weight" in file.tensors


@pytest.mark.parametrize("arch", ["dflash", "dflash-draft", "dspark"])
def test_drafters_near_are_no_targets(arch: str, draft: Path, hub: Path) -> None:  # L1
    make_target(draft / "fork.gguf", architecture=arch)
    with pytest.raises(ConvertError, match="no GGUF in"):
        convert(draft)
    make_target(draft / "target.gguf")
    (written,) = convert(draft, outtypes=["bf16"])
    assert any("target.gguf is the only one near" in text for text in written.warnings)


@pytest.mark.parametrize(
    "other", [{"hidden": 512}, {"layers": 9}, {"tokens": ["a"] * 321}, {"tokens": ["a"] * 319}]
)
def test_other_models_near_are_no_targets(
    other: dict[str, Any], draft: Path, hub: Path
) -> None:  # L5
    make_target(draft / "other.gguf", **other)
    make_target(snapshot(hub, "some/other") / "other.gguf", **other)
    with pytest.raises(ConvertError, match="no GGUF in"):
        convert(draft)


def registered(**changes: Any) -> dict[str, Any]:
    sizes = {"hidden_size": 4096, "num_target_layers": 32, "vocab_size": 248320, **changes}
    nested = {"mask_token_id": 248070, "target_layer_ids": [1, 8, 15, 22, 29]}
    return make_config(**{"dflash_config": nested, **sizes})


def test_a_pair_by_its_config() -> None:
    pair = find_pair(parse_config(registered(), "c"), None)
    assert pair is not None
    assert pair.target == "Qwen/Qwen3.5-9B"
    assert find_pair(parse_config(registered(num_target_layers=None), "c"), None) == pair
    for changed in (
        {"num_target_layers": 36},
        {"hidden_size": 2560},
        {"dflash_config": {"mask_token_id": 248069, "target_layer_ids": [1]}},
    ):
        assert find_pair(parse_config(registered(**changed), "c"), None) is None


def test_a_pair_by_its_repository() -> None:
    config = parse_config(make_config(), "c")
    for name in ("z-lab/Qwen3.5-9B-DFlash", "modal-labs/qwen3.5-9b-dflash"):
        pair = find_pair(config, name)
        assert pair is not None
        assert pair.target == "Qwen/Qwen3.5-9B"
    assert find_pair(config, "someone/Qwen3.5-9B-DFlash") is None


def test_the_registry_is_whole() -> None:
    for pair in read_registry():
        for repository in (*pair.drafters, pair.target):
            assert re.fullmatch(r"[\w.-]+/[\w.-]+", repository)
        assert pair.source
        assert pair.facts
        assert set(pair.shapes) == {"hidden_size", "intermediate_size", "head_dim", "taps"}


def test_a_known_pair_without_the_extra(
    draft: Path, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "find_pair", lambda config, repository: read_registry()[0])
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConvertError) as error:
        convert(draft)
    expected = "to fetch the tokenizer of its target Qwen/Qwen3.5-9B run 'pip install \"dflash-gguf[hub]\"'"
    assert expected in str(error.value)
    assert str(error.value).endswith("--target TARGET.gguf")


def test_weights_without_their_config(tmp_path: Path) -> None:
    shapes = {
        "fc.weight": (4096, 5 * 4096),
        "layers.0.mlp.gate_proj.weight": (12288, 4096),
        "layers.0.self_attn.q_norm.weight": (128,),
    }
    path = tmp_path / "model.safetensors"
    for prefix in ("", "model."):
        tensors = {
            prefix + name: SourceTensor(prefix + name, path, "BF16", shape, 0, 0)
            for name, shape in shapes.items()
        }
        with pytest.raises(ConvertError) as error:
            require_config(Checkpoint(path, tmp_path, False, (path,), tensors))
        command = f"hf download z-lab/Qwen3.5-9B-DFlash config.json --local-dir {tmp_path}"
        assert command in str(error.value)
    require_config(Checkpoint(path, tmp_path, False, (path,), {}))  # nothing is known of it
    (tmp_path / "config.json").write_text("{}")
    require_config(Checkpoint(path, tmp_path, False, (path,), tensors))


def pickled(folder: Path, name: str, *, old: bool = False) -> tuple[Path, Path]:
    """The same reduced DSpark as .safetensors and as torch saves it; `old`: before it used zip."""
    torch = pytest.importorskip("torch")
    kinds = {"BF16": torch.bfloat16, "I64": torch.int64, "BOOL": torch.bool}
    config = make_config(markov_rank=32, draft_vocab_size=100, sample_from_anchor=True)
    weights = make_weights(config) | make_d2t()
    safe = make_checkpoint(folder / "safe", config, weights=weights)
    state = {
        key: torch.frombuffer(bytearray(data), dtype=kinds[dtype]).reshape(shape)
        for key, (dtype, shape, data) in weights.items()
    }
    fc = state["fc.weight"]
    state["fc.weight"] = torch.cat([fc, fc], 1)[:, : fc.shape[1]]  # not contiguous
    draft = make_checkpoint(folder / "pickled", config)
    (draft / "model.safetensors").unlink()
    torch.save(state, draft / name, _use_new_zipfile_serialization=not old)
    return safe, draft


@pytest.mark.parametrize("old", [False, True])
def test_torchs_own_files(old: bool, tmp_path: Path) -> None:
    safe, draft = pickled(tmp_path, "pytorch_model.bin", old=old)
    target = make_target(tmp_path / "t.gguf")
    (expected,) = convert(safe, target, outtypes=["q5_k_m"])
    for source in (draft, draft / "pytorch_model.bin"):
        (written,) = convert(source, target, outtypes=["q5_k_m"], force=True)
        assert written.path.name == "pickled-Q5_K_M.gguf"
        assert digest_tensors(written.path) == digest_tensors(expected.path)


def test_pickles_that_are_no_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    draft = make_checkpoint(tmp_path / "d", make_config())
    target = make_target(tmp_path / "t.gguf")
    path = draft / "weights.pt"
    norm = torch.zeros(256).to_sparse()
    for value, said in (
        ([1, 2], "it is no table of tensors by name"),
        ({"epoch": 3}, "it is no table of tensors by name"),
        ({"norm.weight": norm}, r"norm\.weight is sparse or quantised"),
        ({"norm.weight": torch.zeros(256, dtype=torch.float64)}, "missing"),
    ):
        torch.save(value, path)
        with pytest.raises(ConvertError, match=said):
            convert(path, target)


def test_a_pickle_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = make_checkpoint(tmp_path / "d", make_config())
    (draft / "weights.bin").write_bytes(b"anything")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConvertError, match=r"weights\.bin: only PyTorch reads it"):
        convert(draft / "weights.bin", make_target(tmp_path / "t.gguf"))
    assert not list(draft.glob("*.gguf"))
