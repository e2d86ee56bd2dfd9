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
from dflash_gguf import Engine, Sampling

from .support.random_pairs import Pair

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "soak.py"
PROMPTS = Path(__file__).parents[1] / "models" / "tiny" / "prompts.jsonl"


def test_two_hundred_requests_leave_memory_flat(hybrid: Pair) -> None:
    options = ["--count", 200, "--threads", 1, "--context", 700, "--prefix-memory", 1]
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
    assert verdict["probe_differs"] == verdict["one_token_answers"] == 0
    assert verdict["broken_grammars"] == 0
    assert verdict["at_once"] == 4
    for kind in ("sampled", "greedy", "grammar", "json_schema", "stop", "logprobs"):
        assert verdict["kinds"][kind] > 5, verdict
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


def one_token(prompt: Any, _options: dict[str, Any]) -> Any:
    same = Sampling(temperature=0, logit_bias={7: 1000.0})
    return prompt, {"max_tokens": 60, "ignore_end": True, "sampling": same}


def free(prompt: Any, options: dict[str, Any]) -> Any:
    kept = {name: value for name, value in options.items() if "grammar" not in name}
    return prompt, kept


@pytest.mark.parametrize(
    ("fault", "told"), [(one_token, "one_token_answers"), (free, "broken_grammars")]
)
def test_spoilt_answers_would_be_seen(
    dense: Pair, monkeypatch: pytest.MonkeyPatch, fault: Any, told: str
) -> None:
    start = Engine.start

    def spoilt(engine: Engine, prompt: Any, params: Any = None, **options: Any) -> Any:
        if params is None:
            prompt, options = fault(prompt, options)
        return start(engine, prompt, params, **options)

    soak = runpy.run_path(str(SCRIPT))["soak"]
    monkeypatch.setattr(Engine, "start", spoilt)
    with dflash_gguf.load(dense.target, threads=1, context=400, sequences=2) as engine:
        verdict = soak(engine, [[{"role": "user", "content": "hi"}]], 40)
    assert verdict[told] > 0
    assert not verdict["pass"]
