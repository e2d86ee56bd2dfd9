"""Ctrl-C in the middle of a decode that lasts, in a real process: over within a second, exit code 130 (H1)."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .support.command import WAIT, endless
from .support.random_pairs import Pair

# pieces of a prompt are made to take half a second at most, which would leave nothing to give up
_WHOLE = (
    "import sys, dflash_gguf.loading as l; l.prefill_rows = lambda target, most: most; "
    "from dflash_gguf.__main__ import main; sys.argv[0] = 'dflash-gguf'; main()"
)
_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what a process computed")


def computed(process: subprocess.Popen[bytes]) -> float:
    """Seconds that a process has computed."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def of_children() -> float:
    """Seconds that the processes that have ended did."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@_LINUX
def test_a_decode_of_seconds_is_given_up(pair: Pair, tmp_path: Path) -> None:
    target = endless(pair, tmp_path / "t.gguf")
    # 16,000 tokens at once: some ten seconds on a core
    words = ["run", "-m", target, "-p", "x" * 16_000, "-c", 16_384, "-b", 16_384, "-ub", 256]
    words += ["-t", 1, "-fa", "off", "-v"]
    before = of_children()
    process = subprocess.Popen(
        [sys.executable, "-c", _WHOLE, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith(b"memory planned"):
        assert process.poll() is None
    begun = computed(process)
    while computed(process) < begun + 1:  # loading takes a tenth of it
        assert process.poll() is None
        time.sleep(0.01)
    pressed = computed(process)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=WAIT)
    more = of_children() - before - pressed
    assert (process.returncode, said) == (130, b"\n")
    assert errors.decode().endswith("\n0 tok · no drafts\n")
    print(f"{more:.2f} s computed after Ctrl-C")
    # half a second's patience, a node, and leaving; the decode itself would take far longer
    assert more < 4
