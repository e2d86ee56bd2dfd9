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
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.executable, [sys.executable, '-m', 'dflash_gguf', *sys.argv[1:]])"
    )

    def __init__(
        self,
        *arguments: object,
        rows: int = 0,
        columns: int = 0,
        env: dict[str, str] | None = None,
    ) -> None:
        self._master, slave = os.openpty()
        self._size = columns, rows
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._TAKE, *map(str, arguments)],
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
        """Press keys."""
        os.write(self._master, keys.encode())

    def wait_for(self, seen: Callable[[str], bool], what: str) -> str:
        """Read until `seen` holds for the screen; return it."""
        limit = time.monotonic() + WAIT
        while not seen(self.screen):
            if time.monotonic() > limit or not self._read():
                text = f"no {what} on the screen: {self.screen[-2000:]!r}"
                raise AssertionError(text)
        return self.screen

    def end(self) -> int:
        """Return the exit code."""
        limit = time.monotonic() + WAIT
        while self._process.poll() is None and time.monotonic() < limit:
            self._read()
        return self._process.wait(1)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], 0.2)
        if ready:
            try:
                self._data += os.read(self._master, 65536)
            except OSError:  # the other side is gone
                return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._master)
