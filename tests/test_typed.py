"""A user's script under `mypy --strict`: the installed package's types are found, suffice, and know every keyword."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio
from typing import Any, assert_type

import dflash_gguf
from dflash_gguf import AsyncEngine, Chunk, Engine, Options, Params, Sampling, Sequence, Stats, Worker

SHORT = Params(max_tokens=64, sampling=Sampling(temperature=0.7, seed=1), stop=["END"], block="auto")
TURNS = [{"role": "user", "content": "hi"}]


def load() -> Engine:
    return dflash_gguf.load("t.gguf", "d.gguf", options=Options(context=4096), sequences=2)


def figures(stats: Stats) -> tuple[float | None, float | None]:
    return stats.accept_length, stats.tokens_per_second


def script() -> None:
    with load() as engine:
        answer = engine.generate("hi", SHORT, max_tokens=8, logprobs=3, json_schema={"type": "string"})
        assert_type(answer, Sequence)
        assert_type(answer.tokens, list[int])
        assert answer.stats is not None
        print(answer.text, figures(answer.stats), [entry.logprob for entry in answer.logprobs])
        for chunk in engine.stream(TURNS, template={"enable_thinking": False}):
            assert_type(chunk, Chunk)
        waiting = engine.start(engine.encode("hi"), block=4, ignore_end=True)
        for sequence, chunk in engine.step():
            print(sequence is waiting, chunk.text)
        engine.cancel(waiting)
        assert_type(engine.create_chat_completion(TURNS, max_tokens=8), dict[str, Any])
        for piece in engine.create_chat_completion(TURNS, stream=True, seed=3):
            assert_type(piece, dict[str, Any])
        assert_type(engine.save_prefix("p.bin", "hi", raw=True), int)
        assert_type(engine.kept_bytes, int)


def threads() -> None:
    with Worker(load) as worker:
        ticket = worker.submit("hi", SHORT, raw=True)
        assert_type([chunk.text for chunk in ticket], list[str])
        assert_type(worker.call(lambda engine: engine.n_ctx).result(), int)


async def coroutines() -> None:
    async with AsyncEngine(load) as engine:
        async for chunk in engine.stream("hi", SHORT):
            assert_type(chunk, Chunk)
        assert_type(await engine.generate("hi", max_tokens=5), Sequence)
        assert_type(await engine.create_chat_completion(TURNS, top_k=1), dict[str, Any])
        async for piece in await engine.create_chat_completion(TURNS, stream=True):
            assert_type(piece, dict[str, Any])
        assert_type(await engine.call(lambda own: own.encode("hi")), list[int])
        await engine.generate("hi", max_token=5)  # WRONG
        engine.stream("hi", SHORT, blok=4)  # WRONG
        await engine.create_chat_completion(TURNS, temperatur=1)  # WRONG
        await engine.create_chat_completion(TURNS, stream=True, top_logprob=1)  # WRONG


def misspelt(engine: Engine, worker: Worker, answer: Sequence) -> None:
    dflash_gguf.load("t.gguf", thread=4)  # WRONG
    Options(contxt=5)  # WRONG
    Params(max_token=5)  # WRONG
    Sampling(temperatur=1)  # WRONG
    engine.generate("hi", max_token=5)  # WRONG
    engine.generate("hi", max_tokens="5")  # WRONG
    engine.generate("hi", SHORT, sampling={"temperature": 1})  # WRONG
    engine.stream("hi", stops=["x"])  # WRONG
    engine.start("hi", ignore_ends=True)  # WRONG
    worker.submit("hi", blok=4)  # WRONG
    engine.create_chat_completion(TURNS, temperatur=1)  # WRONG
    engine.create_completion("hi", stream=True, logprob=1)  # WRONG
    engine.kept_byte  # WRONG
    answer.txt  # WRONG
    SHORT.max_tokens = 5  # WRONG
    answer.stats.accept_length  # WRONG


asyncio.run(coroutines())
"""


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_a_script_is_checked(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    settings = ["--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", "--no-pretty"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *settings, "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^script\.py:(\d+): error: ", done.stdout, re.MULTILINE)
    lines = SCRIPT.splitlines()
    wrong = {str(i) for i, line in enumerate(lines, 1) if line.endswith("# WRONG")}
    assert len(wrong) == 20
    assert set(found) == wrong, done.stdout + done.stderr
