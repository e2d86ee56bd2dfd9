"""The script for machines with a GPU, run on the CPU: it works, and says what fails."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dflash_gguf import Sequence, TokenLogprobs, hardware

CHECK = Path(__file__).parent / "gpu" / "check.py"
QUICK = ["--cpu", "--count", "2", "-n", "16", "--blocks", "5", "--pairs", "1"]


def check(*options: str) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, str(CHECK), *options],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.stderr == ""
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_all_checks_run_and_pass_on_the_cpu() -> None:
    code, lines = check(*QUICK)
    assert [line for line in lines[:-1] if not line["pass"]] == []
    assert code == 0
    assert lines[-1] == {"passed": len(lines) - 2, "failed": []}
    assert len(lines) >= 8


@pytest.mark.skipif(
    any("gpu" in device.kind.lower() for device in hardware.devices()), reason="has a GPU"
)
def test_without_a_gpu_it_fails_and_says_what_to_do() -> None:
    code, lines = check()
    assert code == 1
    assert lines[-1]["failed"] == ["machine"]
    assert "README.md" in lines[-1]["hint"]


def test_only_near_ties_may_differ() -> None:
    compare = runpy.run_path(str(CHECK))["compare"]

    def answer(tokens: list[int], gap: float = 5.0) -> Sequence:
        top = ((tokens[1], 0.0), (99, -gap))
        logprobs = [TokenLogprobs(token, 0.0, top) for token in tokens]
        return Sequence(prompt=(), block=1, tokens=tokens, logprobs=logprobs)

    def verdict(gap: float, other: list[int]) -> Any:
        bench = SimpleNamespace(plain=[answer([1, 2, 3]), answer([1, 2, 3], gap)])
        found = compare(bench, [answer([1, 2, 3]), answer(other)])
        return found["pass"], found["differ"], found["largest_gap"]

    assert verdict(5, [1, 2, 3]) == (True, 0, 0)
    assert verdict(0.05, [1, 9, 3]) == (True, 1, 0.05)
    assert verdict(0.5, [1, 9, 3]) == (False, 1, 0.5)
