"""A server of repositories, as much of the Hub as fetching asks for."""

from __future__ import annotations

import hashlib
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0" * 40
WEIGHTS = "model.safetensors"


class Hub(ThreadingHTTPServer):
    """Serves the folders of `root` as repositories; `asked` lists the files sent, each with its first byte.

    `cuts` are the bytes of weights after which the line breaks, one for each time that they are asked for;
    `ranges` tells whether parts are sent, `pause` the seconds between quarters of the weights.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.asked: list[str] = []
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
        asked = self.headers.get("Range", "bytes=0-") if self.server.ranges else "bytes=0-"
        first = int(asked.removeprefix("bytes=").split("-")[0])
        if first:
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        if body:
            self.server.asked.append(f"{name}@{first}")
        cut = None
        if body and name == WEIGHTS and self.server.cuts:
            cut = self.server.cuts.pop(0)
        self.send(206 if first else 200, data[first:], headers, body=body, cut=cut)

    def send(
        self,
        status: int,
        data: bytes,
        headers: dict[str, str],
        *,
        body: bool = True,
        cut: int | None = None,
    ) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        quarter = -(-len(data) // 4) or 1
        for start in range(0, len(data) if body else 0, quarter):
            self.wfile.write(data[:cut][start : start + quarter])
            time.sleep(self.server.pause)
        self.close_connection = True
