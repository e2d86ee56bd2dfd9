"""Does acceptance decay in a long answer? Accept length in every 256 tokens of it, and of an engine that begins there.

    python benchmarks/long_answer.py --target models/tiny/target.gguf --draft build/demo/tiny-draft-BF16.gguf

Answers go on behind their end tokens, since few are as long. A text may be harder to draft further on; where the
second column, of an engine that has just read all of the text before and kept nothing else, falls alike, it is the
text. Prints a JSON line for every window, the mean over the prompts, and one with the share of rounds' time by stage.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from prompts import spread

import dflash_gguf
from dflash_gguf import Engine


def windows(engine: Engine, prompt: list[int], n: int, size: int) -> tuple[list[float], list[int]]:
    """Return the tokens per round in each window of an answer, and the answer."""
    tokens: list[int] = []
    lengths: list[float] = []
    counts: list[int] = []
    for chunk in engine.stream(prompt, max_tokens=n, ignore_end=True):
        if tokens:  # the first is the prompt's own
            counts.append(len(chunk.tokens))
        tokens += chunk.tokens
        if len(tokens) >= size * (len(lengths) + 1):
            lengths.append(sum(counts) / len(counts))
            counts = []
    return lengths, tokens


def main() -> None:
    """Print one JSON line per window."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, default=Path("models/tiny/prompts.jsonl"))
    parser.add_argument("--count", type=int, default=6, help="prompts, spread over the file")
    parser.add_argument("-n", type=int, default=2048)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()
    prompts = spread(args.prompts, args.count)
    options = {"context": args.n + 1024, "block": args.block, "threads": args.threads}
    own: list[list[float]] = []
    fresh: list[list[float]] = []
    with (
        dflash_gguf.load(args.target, args.draft, **options) as engine,
        dflash_gguf.load(args.target, args.draft, prefix_memory=0, **options) as other,
    ):
        for messages in prompts:
            prompt = engine.encode(messages)
            lengths, tokens = windows(engine, prompt, args.n, args.window)
            own.append(lengths)
            starts = range(0, len(lengths) * args.window, args.window)
            fresh.append(
                [
                    windows(other, [*prompt, *tokens[:at]], args.window, args.window)[0][0]
                    for at in starts
                ]
            )
        times = engine.times()
    for number in range(min(map(len, own))):
        line = {
            "tokens_to": (number + 1) * args.window,
            "accept_length": round(sum(lengths[number] for lengths in own) / len(own), 2),
            "of_a_fresh_engine": round(sum(lengths[number] for lengths in fresh) / len(fresh), 2),
        }
        print(json.dumps(line), flush=True)
    rounds = times["total"] - times["prefill"]
    shares = {
        name: round(times[name] / rounds, 4) for name in times if name not in {"total", "prefill"}
    }
    print(json.dumps({"prompts": len(prompts), "share_of_rounds": shares}))


if __name__ == "__main__":
    main()
