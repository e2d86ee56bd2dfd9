"""A server on this machine, started for a measurement and ended with it."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

from ..errors import UsageError
from ..signals import Whole
from .http_client import PeerError

PORT = "{port}"
_PATHS = ("health", "v1/models")  # not every server has the first
_GRACE = 10.0  # seconds between asking it to end and ending it
_TAIL = 1500  # bytes of its log in an error
# ends a process group once the pipe to us is closed, as we were killed
_WATCH = "import os, sys; sys.stdin.read(); os.killpg(int(sys.argv[1]), 9)"


class PeerProcess:
    """A server in a process group of its own, ready to be asked.

    It is ended by `close`, at the end of a `with`, and whenever this interpreter ends, Ctrl-C and SIGTERM (as the
    command line handles it) included; a process beside it sees to that where this one is killed.

    Args:
        command: as in a shell, without its other powers; `{port}` in it becomes a free port of 127.0.0.1.
        wait: seconds for it to load its model.

    Attributes:
        base_url: where it answers.
        command: its words, with the port in them.

    Raises:
        UsageError: a command without `{port}`, with an unclosed quote, or whose program cannot be run.
        PeerError: it ended or was not ready in time; with the end of its log.
    """

    def __init__(self, command: str, *, wait: float = 600.0) -> None:
        if PORT not in command:
            text = f"a server's command says where its port goes, with {PORT}; found: {command}"
            raise UsageError(text)
        try:
            words = shlex.split(command)
        except ValueError as error:
            text = f"a server's command: {str(error).lower()}: {command}"
            raise UsageError(text) from None
        port = _free_port()
        self.command = tuple(word.replace(PORT, str(port)) for word in words)
        self.base_url = f"http://127.0.0.1:{port}"
        self._name = Path(self.command[0]).name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        # Ctrl-C between its start and the note that it is to be ended would leave it
        with Whole():
            self._process = self._start()
            self._watch = self._watched()
            atexit.register(self.close)
        try:
            self._await(wait)
        except BaseException:
            self.close()
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us, who end it in order
            )
        except OSError as error:
            self._log.close()
            text = f"{self.command[0]}: {error.strerror or error}; is the program there?"
            raise UsageError(text) from None

    def _watched(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WATCH, str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process's number."""
        return self._process.pid

    def log_tail(self) -> str:
        """Return the end of what it wrote, as one line; empty after `close`."""
        if self._log.closed:
            return ""
        size = os.fstat(self._log.fileno()).st_size
        end = os.pread(self._log.fileno(), _TAIL, max(size - _TAIL, 0))
        lines = end.decode("utf-8", "replace").splitlines()
        return " | ".join(line.strip() for line in lines if line.strip())

    def peak_memory(self) -> int | None:
        """Return the bytes that its processes had resident at most, each at its own time; None if nobody tells."""
        peaks = [peak for number in self._members() if (peak := _peak(number)) is not None]
        return sum(peaks) if peaks else None

    def close(self) -> None:
        """End all its processes: SIGTERM, and SIGKILL after 10 s. May be called again."""
        atexit.unregister(self.close)
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # children that outlived it, or all; an interruption of the wait does not spare them
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._watch.kill()  # nothing is left for it to end
            self._watch.communicate()
            self._log.close()

    def _await(self, wait: float) -> None:
        limit = time.monotonic() + wait
        while self.running and time.monotonic() < limit:
            if any(self._answers(path) for path in _PATHS):
                return
            time.sleep(0.05)
        how = f"was not ready after {wait:g} s"
        if not self.running:
            how = f"ended with status {self._process.returncode} before it was ready"
        text = f"{self._name} {how}: {self.log_tail() or 'it wrote nothing'}"
        raise PeerError(text)

    def _answers(self, path: str) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        # a server that loads refuses the connection, or answers 503
        with suppress(OSError, ValueError), opener.open(f"{self.base_url}/{path}", timeout=2):
            return True
        return False

    def _signal(self, number: signal.Signals) -> None:
        # its group bears its number, which is not given anew while the group or the unreaped process is there
        if self._process.returncode is None or any(self._members()):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _members(self) -> Iterator[int]:
        """Numbers of the processes of its group, where the system shows them."""
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, IndexError, ValueError):
                # behind the name, which may hold anything: state, parent, group
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == self._process.pid:
                    yield int(folder.name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _peak(number: int) -> int | None:
    with suppress(OSError):
        status = Path(f"/proc/{number}/status").read_text()
        found = re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)
        return int(found[1]) * 1024 if found is not None else None
    return None
