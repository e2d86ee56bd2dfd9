"""An OpenAI-compatible server in a thread, whose answers a test writes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


@dataclass
class Reply:
    """What goes out: a status and parts of a body, a pause after each; `drop`: then the connection breaks."""

    parts: list[bytes]
    status: int = 200
    kind: str = "text/event-stream"
    pause: float = 0.0
    drop: bool = False


@dataclass
class Fake:
    """What was asked of it, and how it answers."""

    answer: Callable[[dict[str, Any]], Reply]
    owner: str = "openai"
    metrics: Callable[[], str] | None = None
    url: str = ""
    port: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    going: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def chat(self, body: dict[str, Any]) -> Reply:
        with self.lock:
            self.asked.append(body)
            self.going += 1
            self.most = max(self.most, self.going)
        return self.answer(body)

    def ended(self) -> None:
        with self.lock:
            self.going -= 1


def event(found: Any) -> bytes:
    return f"data: {json.dumps(found)}\n\n".encode()


def piece(finish: str | None = None, **delta: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def stream(*words: str, finish: str = "stop", usage: Any = USAGE, **told: Any) -> Reply:
    """A whole stream: role, words, finish, usage with whatever else is told, [DONE]."""
    parts = [event(piece(role="assistant")), *(event(piece(content=word)) for word in words)]
    parts += [event(piece(finish)), event({"choices": [], "usage": usage, **told})]
    return Reply([*parts, b"data: [DONE]\n\n"])


def json_reply(found: Any, status: int = 200) -> Reply:
    return Reply([json.dumps(found).encode()], status, "application/json")


@contextmanager
def serving(fake: Fake) -> Iterator[Fake]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self.give(json_reply({"data": [{"id": "fake", "owned_by": fake.owner}]}))
            elif self.path == "/metrics" and fake.metrics is not None:
                self.give(Reply([fake.metrics().encode()], kind="text/plain"))
            else:
                self.give(json_reply({"detail": "Not Found"}, 404))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fake.headers.append(dict(self.headers))
            reply = fake.chat(body)
            try:
                self.give(reply, fake.ended)
            except OSError:
                self.close_connection = True

        def give(self, reply: Reply, ended: Callable[[], None] = lambda: None) -> None:
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.kind)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in reply.parts:
                if part:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
                    self.wfile.flush()
                time.sleep(reply.pause)
            ended()  # before the asker can see the end, and ask again
            if reply.drop:
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

    server = ThreadingHTTPServer(("127.0.0.1", fake.port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
