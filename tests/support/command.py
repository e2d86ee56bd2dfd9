"""The command line as a person has it: real processes, on pipes or on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np
import pyte
from gguf import GGUFReader

from dflash_gguf.gguf_file import GgufFile

from .edited import edited
from .random_pairs import IM_END, Pair

UNTHINKING = {"enable_thinking": False}  # of the templates of random pairs, whose answers are noise
WAIT = 60  # seconds before a hanging test is called one
COMMAND = [sys.executable, "-m", "dflash_gguf"]
_PLAN = re.compile(r"^memory planned: .*\n", re.MULTILINE)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>78]|\r")


def command(
    *arguments: object,
    stdin: str | None = None,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    plan: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `dflash-gguf` to its end; without `stdin` there is none (/dev/null).

    The line of the memory plan is left out of stderr unless `plan`.
    """
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        # in the clone's root Python would find the source folder before the installed package
        cwd=cwd or "/",
        env={**os.environ, **(env or {})},
        timeout=WAIT,
        check=False,
        encoding="utf-8",
        errors="replace",
    )
    if not plan:
        done.stderr = _PLAN.sub("", done.stderr, count=1)
    return done


def start(*arguments: object) -> subprocess.Popen[bytes]:
    """Begin `dflash-gguf` with pipes, for tests that disturb it."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
    )


def endless(pair: Pair, to: Path) -> Path:
    """Write the pair's target so that it never says an end token, in a long context. Returns `to`."""
    with GgufFile(pair.target) as file:
        arch = file.architecture
    edited(pair.target, to, change={f"{arch}.context_length": 1 << 20})
    reader = GGUFReader(to, "r+")
    (output,) = (tensor for tensor in reader.tensors if tensor.name == "output.weight")
    output.data[[IM_END - 2, IM_END]] = np.float32(0)  # the best of all other logits is above 0
    reader.data.flush()
    return to


class Terminal:
    """A `dflash-gguf` on a pseudo-terminal, its own session's controlling one. Use as a context manager."""

    # the child must take the terminal itself: Ctrl-C is for the session that has it
    _TAKE = (
        "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); "  # which nohup has ignored
        "os.execv(sys.executable, [sys.executable, '-m', 'dflash_gguf', *sys.argv[1:]])"
    )

    # as a shell does: what is no job of anybody's cannot be stopped
    _JOB = (
        "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "signal.signal(signal.SIGTTOU, signal.SIG_IGN); child = os.fork()\n"
        "if not child: os.setpgid(0, 0); os.tcsetpgrp(0, os.getpid()); "
        "os.execv(sys.executable, [sys.executable, '-m', 'dflash_gguf', *sys.argv[1:]])\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )

    def __init__(
        self,
        *arguments: object,
        rows: int = 0,
        columns: int = 0,
        env: dict[str, str] | None = None,
        job: bool = False,
    ) -> None:
        """job: it has a shell's place above it, so that Ctrl-Z works."""
        self._job = job
        self._master, slave = os.openpty()
        self._size = columns, rows
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._JOB if job else self._TAKE, *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            cwd="/",
            # nobody answers the question where the cursor is
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **(env or {})},
        )
        os.close(slave)
        self._data = b""

    @property
    def screen(self) -> str:
        """All that has been shown, without the escape sequences."""
        return _ESCAPES.sub("", self._data.decode("utf-8", "replace"))

    @property
    def shown(self) -> bytes:
        """All that has been written to the terminal."""
        return self._data

    def display(self) -> list[str]:
        """Return the lines that a person sees now, as a terminal of this size shows them."""
        emulated = pyte.Screen(*self._size)
        pyte.ByteStream(emulated).feed(self._data)
        return [line.rstrip() for line in emulated.display]

    def send(self, keys: str) -> None:
        """Press keys; of a long paste no more than the terminal takes at a time."""
        data = keys.encode()
        while data:
            data = data[os.write(self._master, data[:1024]) :]
            if data:
                self._read(0.001)

    @property
    def pid(self) -> int:
        """The process of `dflash-gguf`."""
        above = self._process.pid
        children = Path(f"/proc/{above}/task/{above}/children")
        return int(children.read_text()) if self._job else above

    def signal(self, number: int) -> None:
        """Send a signal to it."""
        os.kill(self.pid, number)

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size."""
        self._size = columns, rows
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def stopped(self) -> bool:
        """Whether the process rests, as after Ctrl-Z."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def wait_for(self, seen: Callable[[str], bool], what: str) -> str:
        """Read until `seen` holds for the screen; return it."""
        limit = time.monotonic() + WAIT
        while not seen(self.screen):
            if time.monotonic() > limit or not self._read():
                text = f"no {what} on the screen: {self.screen[-2000:]!r}"
                raise AssertionError(text)
        return self.screen

    def watch(self, seconds: float) -> None:
        """Take what is shown next, if anything is within so many seconds."""
        self._read(seconds)

    def end(self) -> int:
        """Return the exit code."""
        limit = time.monotonic() + WAIT
        while self._process.poll() is None and time.monotonic() < limit:
            self._read()
        while self._read(0):
            pass
        return self._process.wait(1)

    def _read(self, seconds: float = 0.2) -> bool:
        """Take what is shown within so many seconds; False: nothing will be any more."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        if ready:
            try:
                self._data += os.read(self._master, 65536)
            except OSError:  # the other side is gone
                return False
        return bool(ready) or seconds > 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._master)
