"""Without `--target`: the only GGUF near that fits; and checkpoints in PyTorch's own format."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dflash_gguf.convert import convert
from dflash_gguf.errors import ConvertError

from .made import make_checkpoint, make_config, make_d2t, make_target, make_weights
from .regenerate_golden import digest_tensors


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
    for part in (f"no GGUF in {draft} or {hub} fits", "--target TARGET.gguf"):
        assert part in str(error.value)


def test_two_targets(draft: Path, hub: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        make_target(draft / name)
    with pytest.raises(
        ConvertError, match=r"2 targets fit it \(.*a\.gguf, .*b\.gguf\); expected one"
    ):
        convert(draft)
    assert not list(draft.glob("*BF16*"))


def test_the_plain_command(draft: Path, hub: Path) -> None:
    make_target(draft / "target.gguf")
    command = [sys.executable, "-m", "dflash_gguf", "convert", "model.safetensors"]
    done = subprocess.run(command, check=False, cwd=draft, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in draft.glob("small-*")} == {"small-BF16.gguf", "small-Q5_K_M.gguf"}


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
