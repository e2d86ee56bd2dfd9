"""What a trimmed head costs and saves: accept length and time to draft, with the whole head and with smaller ones.

    python benchmarks/draft_vocab.py --target models/tiny/target.gguf --checkpoint models/tiny/draft

Each head answers the same prompts, all heads in turn, `--passes` times after a warm-up. Every round drafts a block
of `--block`; its milliseconds are the median over the passes. With --text FILE heads are also made of that text's
most frequent tokens. With --shape Qwen3.5-0.8B a pair of that shape with random weights takes the place of the
files: its times are those of a real head, nothing it drafts is right.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from prompts import spread

import dflash_gguf
from dflash_gguf.convert import Written, convert
from dflash_gguf.shapes import find_shape, write_shape


@dataclass(slots=True)
class Head:
    """An engine whose drafter has this head, and what was measured with it, a value for each pass."""

    name: str
    megabytes: float
    engine: dflash_gguf.Engine
    accept_length: float = 0.0
    texts: list[list[int]] = field(default_factory=list)
    draft_ms: list[float] = field(default_factory=list)
    round_ms: list[float] = field(default_factory=list)


def measure(head: Head, prompts: list[Any], args: argparse.Namespace) -> None:
    """Answer all prompts once."""
    before = head.engine.times()
    options = {"max_tokens": args.n, "ignore_end": args.shape is not None}
    answers = [head.engine.generate(prompt, **options) for prompt in prompts]
    after = head.engine.times()
    stats = [answer.stats for answer in answers if answer.stats is not None]
    rounds = sum(s.rounds for s in stats)
    spent = {name: 1000 * (after[name] - before[name]) / rounds for name in after}
    head.draft_ms.append(spent["draft"])
    head.round_ms.append(spent["total"] - spent["prefill"])
    head.accept_length = 1 + sum(s.accepted for s in stats) / rounds
    head.texts = [answer.tokens for answer in answers]


def open_heads(args: argparse.Namespace, folder: Path) -> list[Head]:
    """Convert the drafter with each head and load it."""
    wishes = [f"^output={args.head_type}"] if args.head_type else []
    wanted: list[tuple[str, dict[str, Any]]] = [("whole", {})]
    for size in args.sizes.split(","):
        options: dict[str, Any] = {"draft_vocab": int(size), "tensor_types": wishes}
        wanted.append((size, options))
        if args.text is not None:
            wanted.append((f"{size} by text", {**options, "draft_vocab_text": args.text}))
    heads = []
    for name, options in wanted:
        path = folder / f"{name}.gguf"
        target, written = write_pair(args, path, options)
        engine = dflash_gguf.load(
            target,
            written.path,
            block=args.block,
            threads=args.threads,
            context=args.context,
            kv_type=args.kv_type,
        )
        heads.append(Head(name, written.bytes / 1e6, engine))
    return heads


def write_pair(
    args: argparse.Namespace, path: Path, options: dict[str, Any]
) -> tuple[Path, Written]:
    """Convert the drafter to `path`, or write a shape's pair beside it; return the target and the drafter."""
    if args.shape is None:
        (written,) = convert(
            args.checkpoint, args.target, outfile=path, outtypes=[args.outtype], **options
        )
        return args.target, written
    size = options.get("draft_vocab")
    pair = write_shape(find_shape(args.shape), path.parent, outtype=args.outtype, draft_vocab=size)
    return pair.target_path, pair.draft


def main() -> None:
    """Print one JSON line per head."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", type=Path)
    parser.add_argument("--checkpoint", type=Path, help="the drafter's folder")
    parser.add_argument("--shape", help="of a pair with random weights, such as Qwen3.5-0.8B")
    parser.add_argument("--prompts", type=Path, default=Path("models/tiny/prompts.jsonl"))
    parser.add_argument("--count", type=int, default=24, help="prompts, spread over the file")
    parser.add_argument("--sizes", default="100,200,400,800", help="tokens of the trimmed heads")
    parser.add_argument("--text", type=Path, default=None)
    parser.add_argument("--outtype", default="bf16")
    parser.add_argument("--head-type", default=None, help="type of the trimmed heads")
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--kv-type", default="f16")
    parser.add_argument("-n", type=int, default=200)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()

    if args.shape is None and (args.target is None or args.checkpoint is None):
        parser.error("expected --target and --checkpoint, or --shape")
    if args.shape is not None and (args.text or args.head_type):
        parser.error("--text and --head-type are for files; expected neither with --shape")
    with tempfile.TemporaryDirectory() as folder:
        heads, count = run(args, Path(folder))
    for head in heads:
        report = {
            "head": head.name,
            "file_mb": round(head.megabytes, 2),
            "accept_length": round(head.accept_length, 3),
            "draft_ms": round(statistics.median(head.draft_ms[1:]), 3),
            "draft_ms_all": [round(value, 3) for value in head.draft_ms[1:]],
            "round_ms": round(statistics.median(head.round_ms[1:]), 3),
            "same_text": sum(a == b for a, b in zip(heads[0].texts, head.texts, strict=True)),
            "prompts": count,
            "machine": f"{platform.machine()}, {platform.system()}",
            "date": date.today().isoformat(),
        }
        print(json.dumps(report), flush=True)


def run(args: argparse.Namespace, folder: Path) -> tuple[list[Head], int]:
    """Measure all heads; returns them and the number of prompts."""
    prompts = spread(args.prompts, args.count)
    if args.shape is not None:
        prompts = [[7 * i + k for i in range(16)] for k in range(args.count)]
    heads = open_heads(args, folder)
    for _ in range(args.passes + 1):
        for head in heads:
            measure(head, prompts, args)
    return heads, len(prompts)


if __name__ == "__main__":
    main()
