"""Repositories, fetched from a server of our own: what is asked for, what is kept, what fails."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_gguf.convert import convert
from dflash_gguf.errors import ConvertError
from dflash_gguf.gguf_file import GgufFile

from ..support.command import Terminal
from .hub_server import WEIGHTS, Hub
from .made import make_checkpoint, make_config, make_target
from .regenerate_golden import digest_tensors
from .test_folder_target import make_folder


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    server = Hub(tmp_path / "served")
    draft = make_checkpoint(tmp_path / "served" / "lab" / "Small-DFlash", make_config())
    (draft / "optimizer.pt").write_bytes(b"not asked for")
    target = make_folder(tmp_path / "served" / "lab" / "Target")
    (target / "model.safetensors").write_bytes(b"never asked for")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def variables(hub: Hub, home: Path) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}


def run(hub: Hub, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, **variables(hub, folder.parent / "home")}
    for name in ("HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "dflash_gguf", "convert", *arguments]
    return subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True
    )


def test_both_from_repositories(hub: Hub, tmp_path: Path) -> None:
    work = tmp_path / "work"
    done = run(hub, work, "lab/Small-DFlash", "--target", "lab/Target")
    assert done.returncode == 0, done.stderr
    names = {path.name for path in work.iterdir()}
    assert names == {"Small-DFlash-BF16.gguf", "Small-DFlash-Q5_K_M.gguf"}
    assert sorted(name.split("@")[0] for name in hub.asked) == sorted(
        [
            "config.json",
            "model.safetensors",
            "config.json",
            "tokenizer.json",
            "tokenizer_config.json",
        ]
    )
    local = convert(
        tmp_path / "served" / "lab" / "Small-DFlash",
        tmp_path / "served" / "lab" / "Target",
        outdir=tmp_path / "local",
    )
    for written in local:
        assert digest_tensors(written.path) == digest_tensors(work / written.path.name)
    # again, all is there
    asked = len(hub.asked)
    done = run(hub, work, "lab/Small-DFlash", "--target", "lab/Target", "--force")
    assert done.returncode == 0, done.stderr
    assert len(hub.asked) == asked


def blobs(tmp_path: Path) -> Path:
    return tmp_path / "home" / "hub" / "models--lab--Small-DFlash" / "blobs"


def served(tmp_path: Path) -> bytes:
    return (tmp_path / "served" / "lab" / "Small-DFlash" / WEIGHTS).read_bytes()


def check_outcome(tmp_path: Path) -> None:
    """The weights are in the cache, whole, and were converted."""
    data = served(tmp_path)
    assert (blobs(tmp_path) / hashlib.sha256(data).hexdigest()).read_bytes() == data
    assert not list(blobs(tmp_path).glob("*.incomplete"))
    with GgufFile(tmp_path / "work" / "Small-DFlash-BF16.gguf") as file:
        assert file.array("dflash_gguf.source.sha256") == [hashlib.sha256(data).hexdigest()]


ARGUMENTS = ("lab/Small-DFlash", "--target", "lab/Target", "--outtype", "bf16")


def test_the_next_run_goes_on_where_a_line_broke(hub: Hub, tmp_path: Path) -> None:
    hub.cuts = [1_000_000, 0, 0, 0]
    done = run(hub, tmp_path / "work", *ARGUMENTS)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    size = len(served(tmp_path))
    assert f"{WEIGHTS} broke off at 1000000 of {size} bytes" in done.stderr
    assert "give the same command again" in done.stderr
    assert not list((tmp_path / "work").iterdir())
    (part,) = blobs(tmp_path).glob("*.incomplete")
    assert part.read_bytes() == served(tmp_path)[:1_000_000]
    hub.asked.clear()
    done = run(hub, tmp_path / "work", *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    assert f"{WEIGHTS}@1000000" in hub.asked
    assert f"{WEIGHTS}@0" not in hub.asked
    check_outcome(tmp_path)


def test_a_line_that_breaks_and_comes_back(hub: Hub, tmp_path: Path) -> None:
    hub.cuts = [1_000_000, 0, 500_000]
    done = run(hub, tmp_path / "work", *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    asked = [name for name in hub.asked if name.startswith(WEIGHTS)]
    assert asked == [f"{WEIGHTS}@{first}" for first in (0, 1_000_000, 1_000_000, 1_500_000)]
    check_outcome(tmp_path)


def test_a_server_that_sends_no_parts(hub: Hub, tmp_path: Path) -> None:
    hub.cuts = [1_000_000]
    hub.ranges = False
    done = run(hub, tmp_path / "work", *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    check_outcome(tmp_path)


def test_a_part_that_is_of_another_file(hub: Hub, tmp_path: Path) -> None:
    digest = hashlib.sha256(served(tmp_path)).hexdigest()
    blobs(tmp_path).mkdir(parents=True)
    (blobs(tmp_path) / f"{digest}.incomplete").write_bytes(b"x" * 1000)
    done = run(hub, tmp_path / "work", *ARGUMENTS)
    assert done.returncode == 3
    assert f"{WEIGHTS} came with other bytes than announced" in done.stderr
    done = run(hub, tmp_path / "work", *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    check_outcome(tmp_path)


@pytest.fixture
def slow(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A server that takes its time, and is this process's Hub."""
    for name, value in variables(hub, tmp_path / "home").items():
        monkeypatch.setenv(name, value)
    for name in ("HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    hub.pause = 0.5
    return hub


def test_progress_on_a_terminal(slow: Hub, tmp_path: Path) -> None:
    with Terminal("convert", *ARGUMENTS, "--outdir", tmp_path / "work") as terminal:
        seen = f"fetching lab/Small-DFlash: {WEIGHTS}"
        screen = terminal.wait_for(lambda text: seen in text, "progress of the fetching")
        assert "%" in screen
        assert terminal.end() == 0
        assert "it/s" not in terminal.screen  # no other bar in between
    check_outcome(tmp_path)


def test_an_interrupt_keeps_what_has_come(slow: Hub, tmp_path: Path) -> None:
    with Terminal("convert", *ARGUMENTS, "--outdir", tmp_path / "work") as terminal:
        seen = f"fetching lab/Small-DFlash: {WEIGHTS}"
        terminal.wait_for(lambda text: seen in text, "progress of the fetching")
        terminal.send("\x03")
        assert terminal.end() == 130
    (part,) = blobs(tmp_path).glob("*.incomplete")
    kept = part.stat().st_size
    assert 0 < kept < len(served(tmp_path))
    slow.pause = 0
    done = run(slow, tmp_path / "work", *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    assert f"{WEIGHTS}@{kept}" in slow.asked
    check_outcome(tmp_path)


def test_the_target_of_a_known_pair(hub: Hub, tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "served" / "z-lab" / "Qwen3.5-9B-DFlash", make_config())
    (tmp_path / "served" / "Qwen").mkdir()
    make_folder(tmp_path / "served" / "Qwen" / "Qwen3.5-9B")
    done = run(hub, tmp_path / "work", "z-lab/Qwen3.5-9B-DFlash", "--model-card")
    assert done.returncode == 0, done.stderr
    assert "Qwen/Qwen3.5-9B is known as the target of z-lab/Qwen3.5-9B-DFlash" in done.stderr
    with GgufFile(tmp_path / "work" / "Qwen3.5-9B-DFlash-Q5_K_M.gguf") as file:
        assert file.string("general.base_model.0.organization") == "Qwen"
        assert (
            file.string("general.base_model.0.repo_url") == "https://huggingface.co/Qwen/Qwen3.5-9B"
        )
    card = (tmp_path / "work" / "README.md").read_text()
    assert "base_model:\n- z-lab/Qwen3.5-9B-DFlash\nbase_model_relation: quantized\n" in card
    assert "a DFlash drafter for [Qwen/Qwen3.5-9B](https://huggingface.co/Qwen/Qwen3.5-9B)" in card
    assert "dflash-gguf convert z-lab/Qwen3.5-9B-DFlash --target Qwen/Qwen3.5-9B " in card
    # again without a server, from the cache
    hub.shutdown()
    hub.server_close()
    done = run(hub, tmp_path / "work", "z-lab/Qwen3.5-9B-DFlash", "--force")
    assert done.returncode == 0, done.stderr
    restart(hub)


def test_a_known_pair_whose_target_cannot_be_fetched(hub: Hub, tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "served" / "z-lab" / "Qwen3.5-9B-DFlash", make_config())
    done = run(hub, tmp_path / "work", "z-lab/Qwen3.5-9B-DFlash")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "the tokenizer of its target could not be fetched (Qwen/Qwen3.5-9B: " in done.stderr
    assert "dflash-gguf convert z-lab/Qwen3.5-9B-DFlash --target TARGET.gguf" in done.stderr


def restart(hub: Hub) -> None:
    """Let a server run again that was ended, for the fixture's end."""
    hub.__init__(hub.root)  # type: ignore[misc]
    threading.Thread(target=hub.serve_forever, daemon=True).start()


def test_a_repository_that_is_not_there(hub: Hub, tmp_path: Path) -> None:
    done = run(hub, tmp_path / "work", "lab/Nothing", "--target", "lab/Target")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "lab/Nothing: there is neither such a file or folder here nor" in done.stderr
    assert f"such a repository on {hub.endpoint} (404)" in done.stderr
    assert not list((tmp_path / "work").iterdir())


def test_a_server_that_is_not_there(hub: Hub, tmp_path: Path) -> None:
    hub.shutdown()
    hub.server_close()
    done = run(hub, tmp_path / "work", "lab/Small-DFlash", "--target", "lab/Target")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert f"lab/Small-DFlash: it is not in {tmp_path / 'home' / 'hub'}, and " in done.stderr
    assert f"{hub.endpoint} cannot be asked (" in done.stderr
    restart(hub)


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConvertError, match=r"run 'pip install \"dflash-gguf\[hub\]\"'"):
        convert("lab/Small-DFlash", make_target(tmp_path / "t.gguf"))


def test_files_here_are_no_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_checkpoint(tmp_path / "lab" / "Small-DFlash", make_config())
    target = make_target(tmp_path / "lab" / "t.gguf")
    (written,) = convert("lab/Small-DFlash", "lab/t.gguf", outtypes=["bf16"])
    assert written.path.is_file()
    assert target.is_file()
    with pytest.raises(ConvertError, match="lab/other: it cannot be read"):
        convert("lab/other", "lab/t.gguf")
