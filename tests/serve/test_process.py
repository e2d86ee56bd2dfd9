"""`dflash-gguf serve` as a process: how it starts, how it ends, and what makes it refuse to start.

About 10 seconds.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dflash_gguf import UsageError
from dflash_gguf.commands.serve import serve

from ..support.command import COMMAND, WAIT, command
from ..support.random_pairs import Pair
from ..support.served import Client, said

SMALL = ("-t", 1, "-c", 2048, "--block", 4, "--port", 0)


class Running:
    """A server that is ready."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, lines: list[str]) -> None:
        self.process, self.url, self.lines = process, url, lines

    def end(self) -> int:
        return self.process.wait(WAIT)


@contextmanager
def started(pair: Pair, *arguments: object, ready: bool = True) -> Iterator[Running]:
    """Start a server on a free port and wait until it is ready."""
    line = [*COMMAND, "serve", "-m", pair.target, "-md", pair.draft, *SMALL, *arguments]
    process = subprocess.Popen(
        [str(part) for part in line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
    )
    lines: list[str] = []
    came = threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line.decode())
            if lines[-1].startswith("ready: " if ready else "listening on "):
                came.set()
        came.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert came.wait(WAIT)
        found = re.search(r"http://127\.0\.0\.1:\d+", "".join(lines))
        assert found is not None, lines
        yield Running(process, found[0], lines)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def refused(port_of: str) -> bool:
    """Whether nothing listens there."""
    host, _, port = port_of.removeprefix("http://").rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


def test_sigterm_lets_answers_end(unending: Pair) -> None:
    with started(unending, "--parallel", 1, "--drain", 60) as server, Client(server.url) as client:
        client.ask(messages=said("hi"), stream=True, max_tokens=300)
        data = client.read_until(b"data: ")
        server.process.send_signal(signal.SIGTERM)
        data += client.read_until(b"[DONE]")
        assert b'"finish_reason":"length"' in data
        assert server.end() == 0
        assert refused(server.url)


def test_sigterm_cuts_what_does_not_end(unending: Pair) -> None:
    with (
        started(unending, "--parallel", 1, "--drain", 0.3, "--alias", "own") as server,
        Client(server.url) as client,
        Client(server.url) as waiting,
        Client(server.url) as unread,
    ):
        assert httpx2.get(f"{server.url}/v1/models").json()["data"][0]["id"] == "own"
        client.ask(messages=said("hi"), stream=True, max_tokens=2000, temperature=0)
        data = client.read_until(b"data: ")
        waiting.ask(messages=said("hi"))
        unread.ask(messages=said("hi"), stream=True)
        time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        answer = waiting.read_until(b"}}")
        data += client.read_until(b"}}\n\n")
        if b'finish_reason":"length' not in data:  # a fast machine may be done
            assert b'"code":"stopping"' in data
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert server.end() == 0


def test_a_second_signal_ends_it_at_once(unending: Pair) -> None:
    with started(unending, "--drain", 600, "-c", 65536) as server, Client(server.url) as client:
        client.ask(messages=said("hi"), stream=True)  # goes on for minutes
        client.read_until(b"data: ")
        server.process.send_signal(signal.SIGTERM)
        while not refused(server.url):
            time.sleep(0.01)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        assert server.end() == -signal.SIGINT
    assert "Traceback" not in "".join(server.lines)


def test_a_client_that_is_killed_is_left(unending: Pair) -> None:
    script = (
        "import sys, httpx2; r = httpx2.Client(timeout=60).stream('POST', sys.argv[1], json={"
        "'messages': [{'role': 'user', 'content': 'hi'}], 'stream': True}); "
        "[print('x', flush=True) for _ in r.__enter__().iter_lines()]"
    )
    with started(unending, "--parallel", 1) as server:
        url = f"{server.url}/v1/chat/completions"
        client = subprocess.Popen([sys.executable, "-c", script, url], stdout=subprocess.PIPE)
        assert client.stdout is not None
        client.stdout.readline()
        client.kill()
        client.wait()
        client.stdout.close()
        # the only place is free again
        asked = {"messages": said("hi"), "max_tokens": 2}
        assert httpx2.post(url, json=asked, timeout=WAIT).status_code == 200


def test_it_says_that_it_loads(unending: Pair) -> None:
    with started(unending, "--block", "auto", ready=False) as server:
        statuses = set()
        while 200 not in statuses:
            reply = httpx2.get(f"{server.url}/health", timeout=WAIT)
            statuses.add(reply.status_code)
            if reply.status_code == 503:
                error = reply.json()["error"]
                assert (error["message"], error["type"]) == ("Loading model", "unavailable_error")
                asked = {"messages": said("hi")}
                early = httpx2.post(f"{server.url}/v1/chat/completions", json=asked, timeout=WAIT)
                assert early.status_code in {200, 503}
        assert statuses == {200, 503}
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0


def test_sigterm_while_it_loads_is_no_error(unending: Pair) -> None:
    with started(unending, "--block", "auto", ready=False) as server:
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
    assert not [line for line in server.lines if line.startswith(("dflash-gguf: ", "Trace"))], (
        server.lines
    )


def test_a_broken_drafter_stops_the_start(dense: Pair, tmp_path: Path) -> None:
    """V7: speculation must not be off without a word."""
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(dense.draft.read_bytes()[:-5000])
    for draft, more, code in ((cut, (), 3), (dense.draft, ("--memory-limit", "1M"), 4)):
        done = command("serve", "-m", dense.target, "-md", draft, *SMALL, *more)
        assert done.returncode == code, done.stderr
        assert done.stderr.splitlines()[-1].startswith("dflash-gguf: ")
        assert "Traceback" not in done.stderr


def test_what_cannot_be_listened_at_is_one_line(dense: Pair, tmp_path: Path) -> None:
    empty = tmp_path / "keys"
    empty.write_text("\n\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = command("serve", "-m", dense.target, "-md", dense.draft, "--port", port)
        assert done.returncode == 4
        line = f"dflash-gguf: port {port} of 127.0.0.1 is in use; give another --port\n"
        assert done.stderr == line
    refusals: list[dict[str, Any]] = [
        {"host": "no.such.host.invalid"},
        {"host": "192.0.2.1"},
        {"host": "192.0.2.1", "api_key": ["key"]},
        {"host": "0.0.0.0"},
        {"host": "0.0.0.0", "api_key": [" "]},
        {"api_key_file": tmp_path / "none"},
        {"api_key_file": empty},
    ]
    for arguments in refusals:
        with pytest.raises(UsageError):
            serve(target=dense.target, draft=dense.draft, quiet=True, **arguments)


def test_other_machines_need_a_key_and_are_warned_of(unending: Pair, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first\n\nsecond \n")
    line = [*COMMAND, "serve", "-m", unending.target, "-md", unending.draft, *SMALL]
    with subprocess.Popen(
        [str(part) for part in [*line, "--host", "0.0.0.0", "--api-key-file", keys]],
        stderr=subprocess.PIPE,
        cwd="/",
        text=True,
    ) as process:
        assert process.stderr is not None
        seen = ""
        while "ready: " not in seen and (text := process.stderr.readline()):
            seen += text
        assert "warning: other machines reach 0.0.0.0" in seen
        found = re.search(r":(\d+)/v1", seen)
        assert found is not None
        url = f"http://127.0.0.1:{found[1]}/v1/models"
        statuses = [
            httpx2.get(url, headers={"Authorization": f"Bearer {key}"}).status_code
            for key in ("first", "second", "third")
        ]
        # any name is good where any machine may ask
        other = {"Authorization": "Bearer first", "Host": "box.example"}
        statuses.append(httpx2.get(url, headers=other).status_code)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0
    assert statuses == [200, 200, 401, 200]


def test_a_missing_extra_is_named(dense: Pair) -> None:
    script = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv[0] = 'dflash-gguf'; "
        "from dflash_gguf.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "serve", "-m", dense.target, "-md", dense.draft],
        capture_output=True,
        text=True,
        cwd="/",
        env=dict(os.environ),
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "dflash-gguf: serving needs uvicorn; install it with: pip install 'dflash-gguf[serve]'\n"
    )
