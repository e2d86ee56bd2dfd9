"""Decode speed while other programs keep the cores busy, by how long libgomp's threads spin at a barrier.

    python benchmarks/busy_cores.py --target models/tiny/target.gguf --draft build/demo/tiny-draft-BF16.gguf

Every setting is tried in processes of its own, since libgomp reads it once; on idle cores, then with one endless
loop per core beside it. Prints one JSON line per setting: tokens per second, medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import dflash_gguf

_DEFAULT, _SECONDS = "default", 2.0


def child(target: Path, draft: Path | None, block: int) -> None:
    """Answer for a while and print tokens per second of decoding."""
    prompt = "Anna has 12 apples. Then Anna buys 35 more. How many apples does Anna have now?"
    options = {} if draft is None else {"max_block": block}
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
    """Median of the runs in processes of their own."""
    policies = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {k: v for k, v in os.environ.items() if k not in policies}
    if spins != _DEFAULT:
        environment["GOMP_SPINCOUNT"] = spins
    command = [sys.executable, __file__, "--child", "--target", str(args.target)]
    command += ["--block", str(args.block), *(["--draft", str(args.draft)] if drafts else [])]
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(args.runs)
    ]
    return round(statistics.median(float(run) for run in runs), 1)


def main() -> None:
    """Print one JSON line per setting and load."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--spins", default=f"{_DEFAULT},300,1000,2000,10000,100000")
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.target, args.draft, args.block)
        return
    for busy in (False, True):
        loops = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(os.cpu_count() or 1 if busy else 0)
        ]
        try:
            for spins in args.spins.split(","):
                line = {
                    "busy": busy,
                    "GOMP_SPINCOUNT": spins,
                    "plain": speed(args, spins, drafts=False),
                    "drafted": speed(args, spins, drafts=True) if args.draft else None,
                }
                print(json.dumps(line), flush=True)
        finally:
            for loop in loops:
                loop.kill()


if __name__ == "__main__":
    main()
