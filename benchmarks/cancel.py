"""How long after a cancel control is back, at random moments of prompts and answers, and whether all is right then.

    dflash-gguf shape Qwen3.5-0.8B --outdir build/shapes
    python benchmarks/cancel.py --target build/shapes/Qwen3.5-0.8B-shape-BF16.gguf \
        --draft build/shapes/Qwen3.5-0.8B-shape-draft-BF16.gguf

Requests go through a Worker, an AsyncEngine and an Engine in turn, as users would send them: plain and drafting,
alone and with three others, cancelled while a long prompt is read and while an answer is written. The time counts
from the call that cancels to the last chunk (Worker), to the engine's next action for somebody else (AsyncEngine), or
to the return of Engine.step. After a cancel a short prompt's greedy answer is compared with a fresh engine's, at
the end the long prompt's. Prints a JSON line per case and a verdict; exit code 1 if a cancel took over a second or a
text was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dflash_gguf
from dflash_gguf import AsyncEngine, Engine, Worker

LIMIT = 1.0  # seconds
WORDS = 12  # tokens of the answers that are compared; of a prompt that is read in one piece, too
ALONE: dict[str, Any] = {
    "block": 1,
    "max_tokens": WORDS,
    "ignore_end": True,
}  # one row a decode: bf16 leaves no other choice


class Cancels:
    """Sends requests to one engine, cancels them, and takes the time."""

    def __init__(
        self, worker: Worker, long: list[int], expected: dict[tuple[int, ...], list[int]]
    ) -> None:
        self.worker = worker
        self.long = long
        self.expected = expected
        self.choose = random.Random(1)
        self.seconds: list[float] = []
        self.wrong = 0
        self._ways = [self._by_worker, self._by_asyncio, self._by_engine]

    def one(self, prompt: list[int], *, writes: bool, most: float, way: int = 0) -> None:
        """Cancel one request at a random moment, `most` seconds from its start or its first token at most."""
        self.seconds.append(self._ways[way % 3](prompt, writes, self.choose.uniform(0, most)))

    def check(self, prompt: tuple[int, ...]) -> None:
        """Compare an answer with a fresh engine's."""
        ticket = self.worker.submit(list(prompt), **ALONE)
        tokens = [token for chunk in ticket for token in chunk.tokens]
        self.wrong += tokens != self.expected[prompt]

    def report(self, **facts: Any) -> dict[str, Any]:
        """Print the case and begin another."""
        line = {
            **facts,
            "cancels": len(self.seconds),
            "median_ms": round(1000 * statistics.median(self.seconds), 1),
            "max_ms": round(1000 * max(self.seconds), 1),
            "wrong": self.wrong,
        }
        print(json.dumps(line), flush=True)
        self.seconds, self.wrong = [], 0
        return line

    def _by_worker(self, prompt: list[int], writes: bool, wait: float) -> float:
        ticket = self.worker.submit(prompt, ignore_end=True)
        chunks = iter(ticket)
        if writes:
            next(chunks)
        time.sleep(wait)
        began = time.perf_counter()
        ticket.cancel()
        for _ in chunks:
            pass
        return time.perf_counter() - began

    def _by_asyncio(self, prompt: list[int], writes: bool, wait: float) -> float:
        engine = AsyncEngine(lambda: None)  # type: ignore[arg-type, return-value]
        engine._worker = self.worker

        async def work() -> float:
            first = asyncio.Event()

            async def read() -> None:
                async for _ in engine.stream(prompt, ignore_end=True):
                    first.set()

            task = asyncio.create_task(read())
            await (first.wait() if writes else asyncio.sleep(0))
            await asyncio.sleep(wait)
            began = time.perf_counter()
            task.cancel()
            await asyncio.wait([task])
            await engine.call(lambda e: e.free)
            return time.perf_counter() - began

        return asyncio.run(work())

    def _by_engine(self, prompt: list[int], writes: bool, wait: float) -> float:
        def work(engine: Engine) -> float:
            answer = engine.start(prompt, ignore_end=True)
            while writes and not answer.tokens:
                engine.step()
            began: list[float] = []

            def stop() -> None:
                began.append(time.perf_counter())
                answer.interrupt()

            timer = threading.Timer(wait, stop)
            timer.start()
            while answer.finish_reason is None:
                engine.step()
            return time.perf_counter() - began[0]

        return self.worker.call(work).result()


def measure(cancels: Cancels, times: int, drafts: bool) -> list[dict[str, Any]]:
    """All cases of one engine."""
    short = [prompt for prompt in cancels.expected if len(prompt) == WORDS]
    long = cancels.long
    lines = []
    for number in range(20 * times):  # each goes on where the last one was cancelled
        cancels.one(long, writes=False, most=2.0, way=number)
        if number % 3 == 0:
            cancels.check(short[number % len(short)])
        if number >= times and cancels.worker.call(_read_all(long)).result():
            break
    lines.append(cancels.report(drafts=drafts, sequences=1, at="prompt"))
    for number in range(times):
        cancels.one([*long, number], writes=True, most=0.8, way=number)
        cancels.check(short[number % len(short)])
    cancels.check(tuple(long))
    lines.append(cancels.report(drafts=drafts, sequences=1, at="answer"))
    for at in ("prompt", "answer"):
        others = [cancels.worker.submit([*long, 100 + i], ignore_end=True) for i in range(3)]
        for ticket in others:
            next(iter(ticket))
        for number in range(times):
            prompt = [number, *long] if at == "prompt" else [*long, number]
            cancels.one(prompt, writes=at == "answer", most=0.8, way=number % 2)
        for ticket in others:
            began = time.perf_counter()
            ticket.cancel()
            for _ in ticket:
                pass
            cancels.seconds.append(time.perf_counter() - began)
        for asked in short:
            cancels.check(asked)
        lines.append(cancels.report(drafts=drafts, sequences=4, at=at))
    return lines


def _read_all(prompt: list[int]) -> Callable[[Engine], bool]:
    """Whether the prompt has been read so far that only its last tokens are left."""

    def ask(engine: Engine) -> bool:
        answer = engine.start(prompt, max_tokens=1)
        engine.step()
        engine.cancel(answer)
        return answer.stats is not None and answer.stats.reused_tokens > 0.97 * len(prompt)

    return ask


def fresh(
    target: Path, options: dict[str, Any], prompts: list[tuple[int, ...]]
) -> dict[tuple[int, ...], list[int]]:
    """What an engine says that has never been asked anything else."""
    with dflash_gguf.load(target, **options, prefix_memory=0) as engine:
        return {prompt: engine.generate(list(prompt), **ALONE).tokens for prompt in prompts}


def main() -> int:
    """Measure with and without the drafter; print the verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, default=None)
    parser.add_argument("--prompt", type=int, default=4000, help="tokens of the long prompt")
    parser.add_argument("--times", type=int, default=9, help="cancels of a case, at least")
    parser.add_argument("--drafting-only", action="store_true", help="leave plain decoding out")
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()
    choose = random.Random(0)
    long = [choose.randrange(100, 1100) for _ in range(args.prompt)]
    short = [tuple(choose.randrange(100, 1100) for _ in range(WORDS)) for _ in range(4)]
    options: dict[str, Any] = {"threads": args.threads, "context": args.prompt + 512}
    expected = fresh(args.target, options, [*short, tuple(long)])
    lines = []
    for draft in dict.fromkeys([args.draft] if args.drafting_only else [None, args.draft]):
        with Worker(
            partial(dflash_gguf.load, args.target, draft, **options, sequences=4)
        ) as worker:
            lines += measure(Cancels(worker, long, expected), args.times, draft is not None)
    slowest = max(line["max_ms"] for line in lines)
    wrong = sum(line["wrong"] for line in lines)
    verdict = {
        "pass": slowest <= 1000 * LIMIT and wrong == 0,
        "max_ms": slowest,
        "median_ms": statistics.median(line["median_ms"] for line in lines),
        "cancels": sum(line["cancels"] for line in lines),
        "wrong": wrong,
    }
    print(json.dumps(verdict), flush=True)
    return 0 if verdict["pass"] else 1


if __name__ == "__main__":
    sys.exit(main())
