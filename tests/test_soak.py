"""Many mixed requests through one engine: no memory is lost, no answer is spoilt (R12)."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import Engine

from .support.random_pairs import Pair

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "soak.py"
PROMPTS = Path(__file__).parents[1] / "models" / "tiny" / "prompts.jsonl"


def test_fifty_requests_leave_memory_flat(hybrid: Pair) -> None:
    options = ["--count", 50, "--threads", 1, "--context", 700, "--prefix-memory", 1]
    files = ["--target", hybrid.target, "--draft", hybrid.draft, "--prompts", PROMPTS]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, files + options)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    verdict = json.loads(done.stdout.splitlines()[-1])
    assert done.stderr == ""
    assert done.returncode == (0 if verdict["pass"] else 1)
    # snapshots come and go with the width of blocks: 5 MiB, which show in a process this small
    assert verdict["growth"] < 0.15, done.stdout
    assert verdict["probe_differs"] == 0
    for how in ("cancelled", "refused", "length", "stop"):
        assert verdict[how] > 0, verdict


def test_a_leak_would_be_seen(dense: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    step, lost = Engine.step, []

    def leaking(engine: Engine) -> Any:
        lost.append(b"x" * 100_000)
        return step(engine)

    soak = runpy.run_path(str(SCRIPT))["soak"]
    monkeypatch.setattr(Engine, "step", leaking)
    with dflash_gguf.load(dense.target, threads=1, context=400, sequences=2) as engine:
        assert not soak(engine, [[1, 2, 3]], 60)["pass"]
