"""Decode speed while other programs keep the cores busy, by how long libgomp's threads spin at a barrier.

    python benchmarks/busy_cores.py --target models/tiny/target.gguf --draft build/demo/tiny-draft-BF16.gguf

Every setting is tried in processes of its own, since libgomp reads it once; all take turns, on idle cores and with one
endless loop per core beside them. Prints one JSON line per setting: tokens per second idle and busy, medians, and
the median of the turns' ratios of the two.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import dflash_gguf

_DEFAULT, _SECONDS = "default", 2.0


def child(target: Path, draft: Path | None, block: int) -> None:
    """Answer for a while and print tokens per second of decoding."""
    prompt = "Anna has 12 apples. Then Anna buys 35 more. How many apples does Anna have now?"
    options: dict[str, Any] = {} if draft is None else {"max_block": block}
    with dflash_gguf.load(target, draft, **options) as engine:
        engine.generate(prompt, max_tokens=8)
        tokens, seconds, began = 0, 0.0, time.monotonic()
        while time.monotonic() - began < _SECONDS:
            stats = engine.generate(prompt, max_tokens=32).stats
            if stats is not None:
                tokens += stats.emitted - 1
                seconds += stats.decode_seconds
    print(tokens / seconds)


def speed(args: argparse.Namespace, spins: str, *, drafts: bool) -> float:
    """Tokens per second of a process of its own."""
    policies = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {k: v for k, v in os.environ.items() if k not in policies}
    if spins != _DEFAULT:
        environment["GOMP_SPINCOUNT"] = spins
    command = [sys.executable, __file__, "--child", "--target", str(args.target)]
    command += ["--block", str(args.block), *(["--draft", str(args.draft)] if drafts else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


@contextmanager
def endless_loops(count: int) -> Iterator[None]:
    """Keep `count` cores busy with other programs."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def turn(args: argparse.Namespace, spins: str, *, drafts: bool) -> tuple[float, float]:
    """Tokens per second on idle cores and right after it on busy ones."""
    idle = speed(args, spins, drafts=drafts)
    with endless_loops(os.cpu_count() or 1):
        return idle, speed(args, spins, drafts=drafts)


def main() -> None:
    """Print one JSON line per setting and load."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--spins", default=f"{_DEFAULT},300,1000,2000,10000,100000")
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.target, args.draft, args.block)
        return
    settings = list(product(args.spins.split(","), [False, True] if args.draft else [False]))
    turns: dict[tuple[str, bool], list[tuple[float, float]]] = {one: [] for one in settings}
    for _ in range(args.runs):
        for spins, drafts in settings:
            turns[spins, drafts].append(turn(args, spins, drafts=drafts))
    for (spins, drafts), pairs in turns.items():
        line = {
            "GOMP_SPINCOUNT": spins,
            "drafts": drafts,
            "idle": round(statistics.median(idle for idle, _ in pairs), 1),
            "busy": round(statistics.median(busy for _, busy in pairs), 1),
            "ratio": round(statistics.median(busy / idle for idle, busy in pairs), 3),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
