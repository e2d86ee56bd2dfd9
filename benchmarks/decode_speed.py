"""Decode speed with the drafter against plain decoding, interleaved in one run.

    python benchmarks/decode_speed.py --target models/tiny/target.gguf --draft build/demo/tiny-draft-BF16.gguf

For every block: pairs of (plain, drafted) runs over the same prompts, the median of their ratios, and the
spread. Only decode time counts (first token to last); a warm-up pair is dropped; texts are compared.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import dflash_gguf


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens per second of one pass over the prompts, its accept length, and its texts."""

    speed: float
    accept_length: float
    texts: tuple[str, ...]


def measure(
    engine: dflash_gguf.Engine, prompts: list[list[dict[str, str]]], n: int, block: int
) -> Run:
    """Answer all prompts once."""
    answers = [engine.generate(prompt, max_tokens=n, block=block) for prompt in prompts]
    stats = [answer.stats for answer in answers if answer.stats is not None]
    tokens = sum(s.emitted - 1 for s in stats)
    rounds = sum(s.rounds for s in stats)
    return Run(
        speed=tokens / sum(s.decode_seconds for s in stats),
        accept_length=1 + sum(s.accepted for s in stats) / rounds,
        texts=tuple(answer.text for answer in answers),
    )


def main() -> None:
    """Print one JSON line per block."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, default=Path("models/tiny/prompts.jsonl"))
    parser.add_argument("--count", type=int, default=24, help="prompts, spread over the file")
    parser.add_argument("-n", type=int, default=256)
    parser.add_argument("--block", default="4,8,16")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()

    lines = args.prompts.read_text(encoding="utf-8").splitlines()
    step = max(1, len(lines) // args.count)
    prompts = [json.loads(line)["messages"] for line in lines[::step]][: args.count]
    engine = dflash_gguf.load(args.target, args.draft, threads=args.threads)
    plain_engine = dflash_gguf.load(args.target, threads=args.threads)
    for block in (int(width) for width in args.block.split(",")):
        pairs = [
            (measure(plain_engine, prompts, args.n, 1), measure(engine, prompts, args.n, block))
            for _ in range(args.pairs + 1)
        ][1:]
        ratios = [drafted.speed / plain.speed for plain, drafted in pairs]
        first_plain, first = pairs[0]
        print(
            json.dumps(
                {
                    "block": block,
                    "ratio": round(statistics.median(ratios), 3),
                    "ratios": [round(ratio, 3) for ratio in ratios],
                    "plain_tok_s": round(statistics.median(p.speed for p, _ in pairs), 1),
                    "draft_tok_s": round(statistics.median(d.speed for _, d in pairs), 1),
                    "accept_length": round(first.accept_length, 3),
                    "same_text": sum(
                        a == b for a, b in zip(first_plain.texts, first.texts, strict=True)
                    ),
                    "prompts": len(prompts),
                    "machine": f"{platform.machine()}, {platform.system()}",
                    "date": date.today().isoformat(),
                }
            ),
            flush=True,
        )
    seconds = engine.times()
    print(json.dumps({name: round(value, 3) for name, value in seconds.items()}))


if __name__ == "__main__":
    main()
