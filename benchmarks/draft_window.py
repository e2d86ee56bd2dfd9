"""Accept length and first-token time by how many context rows the draft is given and keeps (`--draft-window`).

Prompts are the tiny pair's held-out ones, one after the other as turns of a long conversation. Every window runs
the same prompts, in turn, at a fixed block.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

import dflash_gguf

TINY = Path(__file__).parent.parent / "models" / "tiny"


def long_prompts(count: int, turns: int) -> list[list[int]]:
    """Return ids of `turns` answered questions, as the reference has them, and of one more question."""
    with np.load(TINY / "reference.npz") as arrays:
        ids, start = arrays["ids"], arrays["text_start"]
    texts = [ids[a:b].tolist() for a, b in pairwise(start)]
    return [
        [token for turn in range(turns) for token in texts[(first * 7 + turn) % len(texts)]]
        for first in range(count)
    ]


def main() -> None:
    """Print one line for every window."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=TINY / "target.gguf")
    parser.add_argument("--draft", type=Path, default=TINY / "draft")
    parser.add_argument("--windows", default="256,512,1024,0", help="0: all rows")
    parser.add_argument("--count", type=int, default=6, help="prompts")
    parser.add_argument("--turns", type=int, default=24, help="answered questions before each")
    parser.add_argument("-n", type=int, default=64, help="tokens to write")
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    windows = [int(window) for window in options.windows.split(",")]
    history = long_prompts(options.count, options.turns)
    lines = (TINY / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    asked = [json.loads(line)["messages"] for line in lines]
    engines = {
        window: dflash_gguf.load(
            options.target,
            options.draft,
            context=8192,
            block=options.block,
            threads=options.threads,
            draft_window=window or None,
            prefix_memory=0,
        )
        for window in windows
    }
    accepted: dict[int, list[float]] = {window: [] for window in windows}
    first: dict[int, list[float]] = {window: [] for window in windows}
    lengths = []
    for number, before in enumerate(history):
        question = asked[(number * 7 + options.turns) % len(asked)]
        for window, engine in engines.items():
            prompt = [*before, *engine.encode(question)]
            start = time.perf_counter()
            answer = engine.start(prompt, max_tokens=options.n)
            while not answer.tokens:
                engine.step()
            first[window].append(time.perf_counter() - start)
            while answer.finish_reason is None:
                engine.step()
            assert answer.stats is not None
            if answer.stats.accept_length is not None:
                accepted[window].append(answer.stats.accept_length)
            lengths.append(len(answer.prompt))
    print(f"prompts of {min(lengths)} to {max(lengths)} tokens, block {options.block}")
    for window in windows:
        name = f"window {window}" if window else "all rows"
        length, seconds = statistics.mean(accepted[window]), statistics.median(first[window])
        print(f"{name:>12}: accept length {length:.2f}, first token {seconds * 1000:.0f} ms")


if __name__ == "__main__":
    main()
