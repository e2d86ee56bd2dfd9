"""A server is started on a free port, waited for, and ended with all its processes whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dflash_gguf.bench.http_client import PeerError
from dflash_gguf.bench.peer_process import PeerProcess
from dflash_gguf.errors import UsageError

# answers /health after a while, with a child that has to be ended too; both may be deaf to SIGTERM
SERVER = """
import http.server, os, signal, subprocess, sys, time
port, folder, wait, deaf = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4] == "deaf"
if deaf:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(folder + "/pids.new", "w") as file:
    print(os.getpid(), child.pid, file=file)
os.rename(folder + "/pids.new", folder + "/pids")
print("loading", "x" * 5000, flush=True)
print("almost there", flush=True)
time.sleep(wait)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.end_headers()
        self.wfile.write(b"{}")
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def command(folder: Path, wait: float = 0, deaf: str = "no") -> str:
    program = folder / "server.py"
    program.write_text(SERVER)
    return f"{sys.executable} '{program}' {{port}} '{folder}' {wait} {deaf}"


def numbers(folder: Path) -> list[int]:
    file = folder / "pids"
    limit = time.monotonic() + 60
    while not file.exists() and time.monotonic() < limit:
        time.sleep(0.02)
    return [int(word) for word in file.read_text().split()]


def gone(number: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has."""
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        try:
            if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
            os.kill(number, 0)
        except (OSError, IndexError):
            return True
        time.sleep(0.02)
    return False


def test_started_and_ended(tmp_path: Path) -> None:
    with PeerProcess(command(tmp_path)) as process:
        assert process.running
        assert process.base_url.rpartition(":")[2] in process.command
        assert "almost there" in process.log_tail()
        if sys.platform == "linux":
            peak = process.peak_memory()
            assert peak is not None
            assert 2**20 < peak < 2**30
        both = numbers(tmp_path)
        assert len(both) == 2
    assert all(gone(number) for number in both)
    process.close()  # again


def test_deaf_to_sigterm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dflash_gguf.bench.peer_process._GRACE", 0.2)
    with PeerProcess(command(tmp_path, deaf="deaf")):
        both = numbers(tmp_path)
    assert all(gone(number) for number in both)


def test_not_ready_in_time(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"was not ready after 2 s: .*almost there") as error:
        PeerProcess(command(tmp_path, wait=600), wait=2)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 2000
    assert all(gone(number) for number in numbers(tmp_path))


def test_ended_before_it_was_ready() -> None:
    program = "import sys; print('no such model'); sys.exit(3)"
    with pytest.raises(PeerError, match="ended with status 3 before it was ready: no such model"):
        PeerProcess(f'{sys.executable} -c "{program}" {{port}}')


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, SIGTERM where it ends Python in order, as the command line has it, and what no program sees."""
    program = (
        "import signal, sys, time\n"
        "from dflash_gguf.bench.peer_process import PeerProcess\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "process = PeerProcess(sys.argv[1])\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    words = [sys.executable, "-c", program, command(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as us:
        assert us.stdout is not None
        assert us.stdout.readline() == b"ready\n"
        both = numbers(tmp_path)
        us.send_signal(number)
        us.wait(60)
    assert all(gone(number) for number in both)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("llama-server -m x", "says where its port goes"),
        ("llama-server '{port}", "no closing quotation"),
        ("/no/such/program {port}", "is the program there"),
    ],
)
def test_commands_that_cannot_be(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        PeerProcess(text)
