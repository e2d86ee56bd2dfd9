"""A server of the product in a thread of the test, on a free port, and what clients read of it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx2

import dflash_gguf
from dflash_gguf import Engine
from dflash_gguf.serve.process import Launch, Process, listen, url
from dflash_gguf.serve.requests import Rules
from dflash_gguf.serve.service import About, Limits, Service

from .random_pairs import Pair

WAIT = 60.0  # seconds before a hanging test is called one
GREEDY = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
OPTIONS: dict[str, Any] = {
    "threads": 1,
    "context": 512,
    "sequences": 4,
    "block": 4,
    "kv_type": "f32",
}


@dataclass
class Served:
    """A server that answers. `service`: its inside, for looking at."""

    url: str
    http: httpx2.Client
    process: Process
    service: Service

    def post(self, path: str, **body: Any) -> httpx2.Response:
        return self.http.post(path, json=body)

    def chat(self, text: str = "hi", **body: Any) -> dict[str, Any]:
        """Return an answer in one."""
        reply = self.post("/v1/chat/completions", **({"messages": said(text)} | body))
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    def streamed(self, text: str = "hi", **body: Any) -> list[dict[str, Any]]:
        """Return a chat's pieces."""
        asked = {"messages": said(text), "stream": True} | body
        reply = self.post("/v1/chat/completions", **asked)
        assert reply.status_code == 200, reply.text
        return pieces(reply.text)

    def metrics(self) -> dict[str, float]:
        """Return the samples of /metrics by name and labels."""
        lines = self.http.get("/metrics").text.splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def idle(self) -> bool:
        """Whether no answer is under way."""
        return not self.service.answering and self.service.places.taken == 0


@contextmanager
def serving(
    pair: Pair,
    *,
    keys: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
    limits: Limits | None = None,
    rules: dict[str, Any] | None = None,
    drain: float = 5.0,
    host: str = "127.0.0.1",
    send_buffer: int | None = None,
    open_engine: Callable[[], Engine] | None = None,
    **options: Any,
) -> Iterator[Served]:
    """Serve a pair; greedy, and with a block of 4, unless told otherwise.

    `open_engine`: opens another engine than this pair's. `send_buffer`: bytes that the system keeps of what a client has not read.
    """
    chosen = OPTIONS | options
    settled = {"sampling": GREEDY, "parallel": chosen["sequences"], "model": "made"} | (rules or {})
    launch = Launch(
        open_engine=lambda progress: (
            open_engine()
            if open_engine is not None
            else dflash_gguf.load(pair.target, pair.draft, progress=progress, **chosen)
        ),
        rules=Rules(**settled),
        limits=limits or Limits(),
        keys=keys,
        names=names,
        drain=drain,
    )
    ready: list[About] = []
    came = threading.Event()
    listening = listen(host, 0)
    where = url(listening)
    if send_buffer is not None:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)

    def on_ready(about: About) -> None:
        ready.append(about)
        came.set()

    process = Process(launch, listening, on_ready)

    def run() -> None:
        try:
            asyncio.run(process.run(signals=False))
        finally:
            came.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert came.wait(WAIT), "the server never answered"
        assert ready, "the server ended before it answered"
        assert process.service is not None
        with httpx2.Client(base_url=where, timeout=WAIT, trust_env=False) as http:
            yield Served(where, http, process, process.service)
    finally:
        process.stop()
        thread.join(WAIT)
    assert not thread.is_alive(), "the server never ended"


class Client:
    """A connection of its own, for clients that do not behave. Use as a context manager."""

    def __init__(self, where: str, *, receive_buffer: int | None = None) -> None:
        host, _, port = where.removeprefix("http://").rpartition(":")
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(WAIT)
        self._socket.connect((host, int(port)))

    def ask(self, path: str = "/v1/chat/completions", **body: Any) -> None:
        """Send a request."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.send(f"{head}Content-Length: {len(data)}\r\n\r\n{data.decode()}")

    def send(self, text: str) -> None:
        """Send some of a request."""
        self._socket.sendall(text.encode())

    def read(self, most: int = 65536) -> bytes:
        """Return some of what came; empty at the end."""
        try:
            return self._socket.recv(most)
        except ConnectionError:
            return b""

    def read_until(self, mark: bytes) -> bytes:
        """Return all that came up to some bytes, or to the end."""
        data = b""
        while mark not in data and (more := self.read()):
            data += more
        return data

    def close(self) -> None:
        """Leave."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def said(text: str) -> list[dict[str, str]]:
    """Return a conversation of one message."""
    return [{"role": "user", "content": text}]


def pieces(stream: str) -> list[dict[str, Any]]:
    """Return the objects of a stream, which must end as one does."""
    events = [line for line in stream.split("\n\n") if line]
    assert events[-1] == "data: [DONE]", events[-1:]
    assert all(event.startswith(("data: ", ": ")) for event in events)
    return [json.loads(event[6:]) for event in events[:-1] if event.startswith("data: ")]


def content(found: list[dict[str, Any]], index: int = 0) -> str:
    """Return the text of a choice's pieces."""
    choices = [choice for piece in found for choice in piece["choices"]]
    deltas = [choice["delta"] for choice in choices if choice["index"] == index]
    return "".join(
        (delta.get("reasoning_content") or "") + (delta.get("content") or "") for delta in deltas
    )


def until(holds: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Wait for something to hold."""
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit, f"never: {what}"
        time.sleep(0.01)
