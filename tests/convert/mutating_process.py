"""A mutated input given to the command line, as a process whose time and memory are measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random

from ..support.command import WAIT
from .mutating import MEGABYTES, SECONDS, Files, Kind, Refused, check_refusal, listing


def check_process(kind: Kind, folder: Path) -> None:
    """Run the kind's first case as the command line does; its time and memory are bounded.

    Its time on the CPU, as tests run beside each other; one that waits for something ends by WAIT.
    """
    files = Files(folder / "case")
    kind.mutate(files, 0, Random(f"{kind.name} 0"))
    before = listing(folder)
    ended = subprocess.run(
        [sys.executable, "-c", _MEASURED, *map(str, _command(kind, files))],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=files.folder,
        timeout=WAIT,
    )
    *lines, measured = ended.stderr.splitlines()
    seconds, megabytes = json.loads(measured)
    assert seconds < SECONDS
    assert megabytes < MEGABYTES
    if isinstance(kind.outcome, Refused):
        assert ended.returncode == 3, ended.stderr
        assert len(lines) == 1
        assert lines[0].startswith("dflash-gguf: ")
        check_refusal(kind.outcome, files, lines[0])
        assert ended.stdout == ""
        assert listing(folder) == before
    else:
        assert ended.returncode == 0, ended.stderr
        assert "Traceback" not in ended.stderr


# VmHWM counts mapped pages, and only since exec
_MEASURED = """
import atexit, json, os, re, sys

def tell():
    peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
    print(json.dumps([sum(os.times()[:2]), int(peak[1]) * 1024 / 1e6]), file=sys.stderr)

atexit.register(tell)
from dflash_gguf.__main__ import main
main()
"""


def _command(kind: Kind, files: Files) -> list[object]:
    if kind.command == "convert":
        options = ["--target", files.target, "--outdir", files.folder / "out", "--name", "x", "-q"]
        return ["convert", files.source, *options]
    if kind.command == "quantize":
        return ["quantize", files.drafter, files.folder / "out.gguf", "q8_0", "-q"]
    return ["inspect", files.drafter]
