"""What `--block auto` costs where drafting does not pay, and what it leaves where it does.

    python benchmarks/never_slower.py --target models/tiny/target.gguf --draft build/demo/tiny-draft-BF16.gguf
    python benchmarks/never_slower.py --target models/tiny/target.gguf --random-like models/tiny/draft

The second form takes a drafter of random weights, which is never right. Every run of it loads the files anew with an
empty cache, so that what is measured includes the learning; prompts are a dozen messages long and end tokens do not
end an answer. With a real drafter a warm-up comes first, answers end by themselves, and the best fixed width is
looked for too. Runs are interleaved with plain
decoding; prints JSON lines of medians of ratios to it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import dflash_gguf
from dflash_gguf.convert import convert

_FIRST = 256


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens per second over all sequences: of the whole, of the first tokens, of the prompts."""

    all: float
    first: float
    prompt: float


def answer(
    engine: dflash_gguf.Engine, prompts: list[list[int]], n: int, block: object, *, endless: bool
) -> Run:
    """Answer all prompts, as many at a time as the engine takes."""
    waiting, prompt_tokens, done = list(prompts), 0, 0
    before = engine.times()
    first = 0.0
    while waiting or engine.busy:
        while waiting and engine.free:
            engine.start(waiting.pop(), max_tokens=n, block=block, ignore_end=endless)
        for _, chunk in engine.step():
            done += len(chunk.tokens)
        if not first and done >= _FIRST * len(prompts):
            first = _decode_seconds(before, engine.times())
    after = engine.times()
    prompt_tokens = sum(map(len, prompts))
    return Run(
        all=done / _decode_seconds(before, after),
        first=_FIRST * len(prompts) / first if first else 0.0,
        prompt=prompt_tokens / (after["prefill"] - before["prefill"]),
    )


def _decode_seconds(before: dict[str, float], after: dict[str, float]) -> float:
    return (after["total"] - before["total"]) - (after["prefill"] - before["prefill"])


def random_drafter(source: Path, target: Path, folder: Path) -> Path:
    """Convert a checkpoint like `source` with random weights."""
    random = torch.Generator().manual_seed(0)
    checkpoint = folder / "random"
    checkpoint.mkdir()
    tensors = load_file(source / "model.safetensors")
    for name, tensor in tensors.items():
        if tensor.ndim == 2:
            noise = torch.randn(tensor.shape, generator=random) / tensor.shape[-1] ** 0.5
            tensors[name] = noise.to(tensor.dtype)
    save_file(tensors, checkpoint / "model.safetensors")
    (checkpoint / "config.json").write_bytes((source / "config.json").read_bytes())
    (written,) = convert(checkpoint, target, outdir=folder, outtypes=["bf16"])
    return written.path


def main() -> None:
    """Print one JSON line per number of sequences."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", type=Path, required=True)
    drafters = parser.add_mutually_exclusive_group(required=True)
    drafters.add_argument("--draft", type=Path)
    drafters.add_argument("--random-like", type=Path, help="a drafter's checkpoint")
    parser.add_argument("--prompts", type=Path, default=Path("models/tiny/prompts.jsonl"))
    parser.add_argument("--sequences", default="1,8,32")
    parser.add_argument("-n", type=int, default=4096)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--blocks", default="4,8,12,16", help="fixed widths to compare with")
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        draft = args.draft or random_drafter(args.random_like, args.target, Path(scratch))
        for sequences in (int(number) for number in args.sequences.split(",")):
            line = measure(args, draft, sequences, learning=args.draft is None)
            print(json.dumps(line), flush=True)


def measure(
    args: argparse.Namespace, draft: Path, sequences: int, *, learning: bool
) -> dict[str, object]:
    """Interleave plain decoding, auto and, if nothing has to be learnt, fixed widths."""
    lines = args.prompts.read_text(encoding="utf-8").splitlines()
    messages = [json.loads(line)["messages"] for line in lines]
    options = {
        "sequences": sequences,
        "threads": args.threads,
        "context": args.n + 256,
        "prefix_memory": 0,
    }
    arms: dict[str, list[Run]] = {}

    def run(name: str, engine: dflash_gguf.Engine, block: object) -> None:
        count = sequences if learning else max(sequences, 24)
        starts = [i * len(messages) // count for i in range(count)]
        prompts = [
            engine.encode(conversation(messages, start, 12 if learning else 1)) for start in starts
        ]
        arms.setdefault(name, []).append(answer(engine, prompts, args.n, block, endless=learning))

    blocks = [] if learning else [int(block) for block in args.blocks.split(",")]
    with tempfile.TemporaryDirectory() as cache:
        os.environ["DFLASH_GGUF_CACHE"] = cache
        plain = None if learning else dflash_gguf.load(args.target, **options)
        auto = None if learning else dflash_gguf.load(args.target, draft, **options)
        fixed = {
            b: dflash_gguf.load(args.target, draft, block=b, max_block=b, **options) for b in blocks
        }
        if auto is not None:
            run("auto", auto, None)
            arms.clear()
        for number in range(args.pairs):
            if plain is not None and auto is not None:
                run("plain", plain, None)
                run("auto", auto, None)
                for block, engine in fixed.items():
                    run(str(block), engine, None)
                continue
            os.environ["DFLASH_GGUF_CACHE"] = f"{cache}/{number}"
            for name, drafter in (("plain", None), ("auto", draft)):
                with dflash_gguf.load(args.target, drafter, **options) as fresh:
                    run(name, fresh, None)
    return {"sequences": sequences, "n": args.n, **ratios(arms), "date": time.strftime("%F")}


def conversation(
    messages: list[list[dict[str, str]]], start: int, count: int
) -> list[dict[str, str]]:
    """Return `count` of the prompts as one message."""
    chosen = [messages[(start + i) % len(messages)][-1]["content"] for i in range(count)]
    return [{"role": "user", "content": "\n".join(chosen)}]


def ratios(arms: dict[str, list[Run]]) -> dict[str, object]:
    """Return medians of ratios to plain decoding, and how auto fares against the best fixed width."""
    found: dict[str, object] = {
        "plain_tok_s": round(statistics.median(r.all for r in arms["plain"]), 1)
    }
    for name, runs in arms.items():
        if name == "plain":
            continue
        for part in ("all", "first", "prompt"):
            pairs = zip(runs, arms["plain"], strict=True)
            values = [getattr(a, part) / getattr(b, part) for a, b in pairs if getattr(b, part)]
            if values:
                found[f"{name}_{part}"] = round(statistics.median(values), 3)
    fixed = [name for name in arms if name.isdecimal()]
    if fixed:
        best = max(fixed, key=lambda name: float(str(found[f"{name}_all"])))
        pairs = zip(arms["auto"], arms[best], strict=True)
        found |= {
            "best": int(best),
            "auto_to_best": round(statistics.median(a.all / b.all for a, b in pairs), 3),
        }
    return found


if __name__ == "__main__":
    main()
