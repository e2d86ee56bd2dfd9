"""Nothing is lost and nothing stays behind; names and places of outputs."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_gguf.convert import convert
from dflash_gguf.errors import ConvertError, ResourceError, UsageError

from .made import make_checkpoint, make_config, make_target


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make_target(tmp_path / "target.gguf")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "small", make_config())


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


SOURCE = ["config.json", "model.safetensors"]


def test_both_files_by_default(draft: Path, target: Path) -> None:
    written = convert(draft, target)
    assert [output.path.name for output in written] == ["small-BF16.gguf", "small-Q5_K_M.gguf"]
    assert [output.type for output in written] == ["BF16", "Q5_K_M"]
    for output in written:
        assert output.bytes == output.path.stat().st_size
        assert output.warnings == ()
    assert listing(draft) == [*SOURCE, "small-BF16.gguf", "small-Q5_K_M.gguf"]


def test_permissions_are_the_users(draft: Path, target: Path) -> None:
    mask = os.umask(0o027)
    try:
        (written,) = convert(draft, target, outtypes=["bf16"])
    finally:
        os.umask(mask)
    assert stat.S_IMODE(written.path.stat().st_mode) == 0o640


def test_an_existing_file_is_kept(draft: Path, target: Path) -> None:
    path = draft / "small-Q5_K_M.gguf"
    path.write_bytes(b"precious")
    with pytest.raises(ConvertError, match="it exists already and is kept"):
        convert(draft, target)
    assert path.read_bytes() == b"precious"
    assert listing(draft) == [*SOURCE, path.name]
    convert(draft, target, force=True)
    assert path.read_bytes()[:4] == b"GGUF"


def test_what_is_no_regular_file_is_never_replaced(draft: Path, target: Path) -> None:
    path = draft / "small-BF16.gguf"
    os.mkfifo(path)
    with pytest.raises(ConvertError, match="it is no regular file; give another place"):
        convert(draft, target, outtypes=["bf16"], force=True)
    assert path.is_fifo()
    assert listing(draft) == [*SOURCE, path.name]


def test_a_file_that_appears_meanwhile_is_kept(draft: Path, target: Path) -> None:
    path = draft / "small-Q5_K_M.gguf"

    def appear(done: int, total: int, name: str) -> None:
        path.write_bytes(b"precious")

    with pytest.raises(ConvertError, match="it exists already"):
        convert(draft, target, progress=appear)
    assert path.read_bytes() == b"precious"
    assert listing(draft) == [*SOURCE, path.name]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, MemoryError])
@pytest.mark.parametrize("force", [True, False])
def test_an_error_midway_leaves_nothing(
    error: type[BaseException], force: bool, draft: Path, target: Path
) -> None:
    path = draft / "small-BF16.gguf"
    if force:
        path.write_bytes(b"precious")

    def stop(done: int, total: int, name: str) -> None:
        if done * 2 > total:
            raise error

    with pytest.raises(error):
        convert(draft, target, progress=stop, force=force)
    assert listing(draft) == ([*SOURCE, path.name] if force else SOURCE)
    assert not force or path.read_bytes() == b"precious"


def test_an_interrupt_leaves_nothing(draft: Path, target: Path) -> None:
    script = (
        "import os, signal, sys; from dflash_gguf.convert import convert\n"
        "def stop(done, total, name):\n"
        "    if done * 2 > total: os.kill(os.getpid(), signal.SIGINT)\n"
        "convert(sys.argv[1], sys.argv[2], progress=stop)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, draft, target],
        capture_output=True,
        text=True,
        check=False,
        cwd=target.parent,
        timeout=60,
    )
    assert "KeyboardInterrupt" in ended.stderr
    assert listing(draft) == SOURCE


def test_a_full_disk_leaves_nothing(draft: Path, target: Path) -> None:
    script = (
        "import resource, signal, sys; from dflash_gguf.convert import convert\n"
        "from dflash_gguf.errors import ResourceError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "try: convert(sys.argv[1], sys.argv[2])\n"
        "except ResourceError as error: print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, draft, target],
        capture_output=True,
        text=True,
        check=True,
        cwd=target.parent,
        timeout=60,
    )
    assert "no space for it" in ended.stdout
    assert listing(draft) == SOURCE


def test_no_space_is_said_before(
    draft: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(ResourceError, match="bytes are needed and 1000 are free"):
        convert(draft, target)
    assert listing(draft) == SOURCE


def test_the_source_is_never_overwritten(draft: Path, target: Path) -> None:
    path = draft / "small-BF16.gguf"
    path.symlink_to("model.safetensors")
    before = (draft / "model.safetensors").read_bytes()
    with pytest.raises(ConvertError, match=r"would overwrite .*model.safetensors, which is read"):
        convert(draft, target, force=True)
    assert (draft / "model.safetensors").read_bytes() == before


def test_the_target_is_never_overwritten(draft: Path, target: Path, tmp_path: Path) -> None:
    before = target.read_bytes()
    path = target.rename(tmp_path / "t-BF16.gguf")
    with pytest.raises(ConvertError, match="would overwrite"):
        convert(draft, path, name="t", outdir=tmp_path, force=True)
    assert path.read_bytes() == before


def test_a_folder_made_in_vain_is_removed(draft: Path, target: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int, name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(draft, target, outdir=tmp_path / "a" / "b", progress=stop)
    assert not (tmp_path / "a").exists()


def test_threads_are_at_least_one(draft: Path, target: Path) -> None:
    with pytest.raises(UsageError, match="threads is 0; expected at least 1"):
        convert(draft, target, threads=0)


def test_an_unwritable_place(draft: Path, target: Path, tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match="cannot be made one"):
        convert(draft, target, outdir=draft / "config.json")
    with pytest.raises(ConvertError, match="cannot be made one"):
        convert(draft, target, outdir=tmp_path / "new" / ("x" * 300))
    assert not (tmp_path / "new").exists()
    (draft / "small-BF16.gguf").mkdir()
    with pytest.raises(ConvertError, match="it exists already"):
        convert(draft, target, force=True)


def test_outdir_is_made(draft: Path, target: Path, tmp_path: Path) -> None:
    (written,) = convert(draft, target, outdir=tmp_path / "a" / "b", outtypes=["Q4_0"])
    assert written.path == tmp_path / "a" / "b" / "small-Q4_0.gguf"
    assert listing(draft) == SOURCE


@pytest.mark.parametrize(
    ("place", "file", "name"),
    [
        ("Qwen3.5-9B-DFlash", "model.safetensors", "Qwen3.5-9B-DFlash"),
        ("tiny/draft", "model.safetensors", "tiny-draft"),
        ("anything", "my.drafter.safetensors", "my.drafter"),
        (
            "models--z-lab--Qwen3.5-9B-DFlash/snapshots/0123abc",
            "model.safetensors",
            "Qwen3.5-9B-DFlash",
        ),
    ],
)
def test_default_names(place: str, file: str, name: str, target: Path, tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / place, make_config())
    (folder / "model.safetensors").rename(folder / file)
    (written,) = convert(folder / file, target, outtypes=["bf16"])
    assert written.path == folder / f"{name}-BF16.gguf"


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "/tmp/x", "a\0b", "a\nb", "x" * 201])
def test_bad_names(name: str, draft: Path, target: Path) -> None:
    with pytest.raises(UsageError, match="is no file name"):
        convert(draft, target, name=name)


def test_output_types_by_name(draft: Path, target: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown output type 'q9'; expected one of f32, bf16"):
        convert(draft, target, outtypes=["bf16", "q9"])
    with pytest.raises(UsageError, match="no output type given"):
        convert(draft, target, outtypes=[])
    assert len(convert(draft, target, outtypes=["bf16", "BF16 "])) == 1


def test_progress_counts_every_byte_once(draft: Path, target: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    convert(draft, target, progress=lambda *step: seen.append(step))
    assert [done for done, _, _ in seen] == sorted({done for done, _, _ in seen})
    assert seen[-1][0] == seen[-1][1]
