"""A server of repositories, as much of the Hub as fetching asks for."""

from __future__ import annotations

import hashlib
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0" * 40
WEIGHTS = "model.safetensors"
TOKEN = "hf_of_a_test"


class Hub(ThreadingHTTPServer):
    """Serves the folders of `root` as repositories; `asked` lists the files sent, each with its first byte.

    `requests` counts everything that was asked. `gated` repositories tell their files and send them to nobody but who brings TOKEN, `private` ones do not even
    tell; `cuts` are the bytes of weights or GGUFs after which the line breaks, one for each time that they are asked for;
    `ranges` tells whether parts are sent, `pause` the seconds between quarters of these.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.asked: list[str] = []
        self.requests = 0
        self.gated: set[str] = set()
        self.private: set[str] = set()
        self.cuts: list[int] = []
        self.ranges = True
        self.pause = 0.0

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
        self.server.requests += 1
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
        if repository in self.server.private and not self.trusted():
            self.send(401, b"", {"X-Error-Code": "RepoNotFound"})
            return
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        names = [{"rfilename": path.relative_to(folder).as_posix()} for path in files]
        told: object = {"id": repository, "sha": COMMIT, "siblings": names, "private": False}
        if listed:
            told = [
                {
                    "type": "file",
                    "path": name["rfilename"],
                    "size": path.stat().st_size,
                    "oid": COMMIT,
                }
                for path, name in zip(files, names, strict=True)
            ]
        self.send(200, json.dumps(told).encode(), {"Content-Type": "application/json"})

    def trusted(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def send_file(self, repository: str, name: str, *, body: bool) -> None:
        if repository in self.server.gated and not self.trusted():
            self.send(403, b"", {"X-Error-Code": "GatedRepo"}, body=body)
            return
        data = (self.server.root / repository / name).read_bytes()
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
        asked = self.headers.get("Range", "bytes=0-") if self.server.ranges else "bytes=0-"
        first = int(asked.removeprefix("bytes=").split("-")[0])
        if first:
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        if body:
            self.server.asked.append(f"{name}@{first}")
        cut, slow = None, name == WEIGHTS or name.endswith(".gguf")
        if body and slow and self.server.cuts:
            cut = self.server.cuts.pop(0)
        self.send(206 if first else 200, data[first:], headers, body=body, cut=cut, slow=slow)

    def send(
        self,
        status: int,
        data: bytes,
        headers: dict[str, str],
        *,
        body: bool = True,
        cut: int | None = None,
        slow: bool = False,
    ) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        quarter = -(-len(data) // 4) or 1
        for start in range(0, len(data) if body else 0, quarter):
            self.wfile.write(data[:cut][start : start + quarter])
            time.sleep(self.server.pause if slow else 0)
        self.close_connection = True
