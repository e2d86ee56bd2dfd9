"""Repositories, fetched from a server of our own: what is asked for, what is kept, what fails."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dflash_gguf.convert import convert
from dflash_gguf.errors import ConvertError

from .made import make_checkpoint, make_config, make_target
from .regenerate_golden import digest_tensors
from .test_folder_target import make_folder

pytest.importorskip("huggingface_hub")
COMMIT = "0" * 40


class Hub(ThreadingHTTPServer):
    """Serves the folders of `root` as repositories; `asked` lists the files sent."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.asked: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts[0] == "api":
            self.describe("/".join(parts[2:4]), listed="tree" in parts[4:5])
        else:
            self.send_file("/".join(parts[:2]), "/".join(parts[4:]), body=body)

    def describe(self, repository: str, *, listed: bool) -> None:
        folder = self.server.root / repository
        if not folder.is_dir():
            self.send(404, b"", {"X-Error-Code": "RepoNotFound"})
            return
        files = sorted(folder.iterdir())
        names = [{"rfilename": path.name} for path in files]
        told: object = {"id": repository, "sha": COMMIT, "siblings": names, "private": False}
        if listed:
            told = [
                {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": COMMIT}
                for path in files
            ]
        self.send(200, json.dumps(told).encode(), {"Content-Type": "application/json"})

    def send_file(self, repository: str, name: str, *, body: bool) -> None:
        data = (self.server.root / repository / name).read_bytes()
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
        first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        if first:
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        if body:
            self.server.asked.append(f"{name}@{first}")
        self.send(206 if first else 200, data[first:], headers, body=body)

    def send(
        self,
        status: int,
        data: bytes,
        headers: dict[str, str],
        *,
        body: bool = True,
    ) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data)


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


def run(hub: Hub, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(folder.parent / "home"),
        "HF_HUB_DISABLE_XET": "1",
    }
    environment.pop("HF_HUB_OFFLINE", None)
    environment.pop("HF_HUB_CACHE", None)
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


def test_a_repository_that_is_not_there(hub: Hub, tmp_path: Path) -> None:
    done = run(hub, tmp_path / "work", "lab/Nothing", "--target", "lab/Target")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "lab/Nothing: it cannot be fetched (RepositoryNotFoundError" in done.stderr
    assert not list((tmp_path / "work").iterdir())


def test_a_server_that_is_not_there(hub: Hub, tmp_path: Path) -> None:
    hub.shutdown()
    hub.server_close()
    done = run(hub, tmp_path / "work", "lab/Small-DFlash", "--target", "lab/Target")
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    hub.__init__(hub.root)  # type: ignore[misc]  # for the fixture's end
    threading.Thread(target=hub.serve_forever, daemon=True).start()


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
