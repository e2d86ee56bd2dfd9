"""What `--block auto` costs where drafting does not pay, and what it leaves where it does.

    python benchmarks/never_slower.py --target models/tiny/target.gguf --draft build/demo/tiny-draft-BF16.gguf
    python benchmarks/never_slower.py --target models/tiny/target.gguf --random-like models/tiny/draft

The second form takes a drafter of random weights, which is never right. Every run of it loads the files anew with an
empty cache, so that what is measured includes the learning; prompts are a dozen messages long and end tokens do not
end an answer. With a real drafter a warm-up comes first, answers end by themselves, and the best fixed width is
looked for too. All take turns of 256 tokens
with plain decoding; prints JSON lines of medians of ratios to it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import dflash_gguf
from dflash_gguf.convert import convert

_FIRST = 256
_TURN = 256  # tokens over all sequences


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens per second over all sequences: of the whole, of the first tokens, of the prompts."""

    all: float
    first: float
    prompt: float


class Answering:
    """Prompts being answered by an engine, as many at a time as it takes, in stretches of some tokens."""

    def __init__(
        self, engine: dflash_gguf.Engine, prompts: list[list[int]], n: int, *, endless: bool
    ) -> None:
        self._engine, self._n, self._endless = engine, n, endless
        self._waiting, self._prompts = list(prompts), prompts
        self._times = {"decode": 0.0, "prompt": 0.0}
        self._done, self._first = 0, 0.0

    @property
    def busy(self) -> bool:
        """Whether anything is left to answer."""
        return bool(self._waiting) or self._engine.busy

    def advance(self, tokens: int) -> None:
        """Write about so many tokens."""
        engine, until, before = self._engine, self._done + tokens, self._engine.times()
        while self.busy and self._done < until:
            while self._waiting and engine.free:
                engine.start(self._waiting.pop(), max_tokens=self._n, ignore_end=self._endless)
            for _, chunk in engine.step():
                self._done += len(chunk.tokens)
            if not self._first and self._done >= _FIRST * len(self._prompts):
                self._first = self._times["decode"] + _decode_seconds(before, engine.times())
        after = engine.times()
        self._times["decode"] += _decode_seconds(before, after)
        self._times["prompt"] += after["prefill"] - before["prefill"]

    def run(self) -> Run:
        """Return what came of it."""
        read = sum(map(len, self._prompts))
        return Run(
            all=self._done / self._times["decode"],
            first=_FIRST * len(self._prompts) / self._first if self._first else 0.0,
            prompt=read / self._times["prompt"],
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
    count = sequences if learning else max(sequences, 24)
    chosen = [
        conversation(messages, i * len(messages) // count, 12 if learning else 1)
        for i in range(count)
    ]
    loads: dict[str, tuple[Path | None, dict[str, Any]]] = {
        "plain": (None, {}),
        "auto": (draft, {}),
    }
    if not learning:
        for block in map(int, args.blocks.split(",")):
            loads[str(block)] = draft, {"block": block, "max_block": block}
    arms: dict[str, list[Run]] = {}
    engines: dict[str, dflash_gguf.Engine] = {}
    with tempfile.TemporaryDirectory() as cache, ExitStack() as stack:
        for number in range(args.pairs + (0 if learning else 1)):
            if learning or not engines:
                stack.close()
                os.environ["DFLASH_GGUF_CACHE"] = f"{cache}/{number}"
                for name, (drafter, settings) in loads.items():
                    engine = dflash_gguf.load(args.target, drafter, **options, **settings)
                    engines[name] = stack.enter_context(engine)
            runs = together(engines, chosen, args.n, endless=learning)
            for name, run in runs.items():
                arms.setdefault(name, []).append(run)
    if not learning:
        arms = {name: runs[1:] for name, runs in arms.items()}  # the warm-up
    return {"sequences": sequences, "n": args.n, **ratios(arms), "date": time.strftime("%F")}


def together(
    engines: dict[str, dflash_gguf.Engine],
    messages: list[list[dict[str, str]]],
    n: int,
    *,
    endless: bool,
) -> dict[str, Run]:
    """Let engines answer in turns of some tokens, so that a machine's swings meet all alike."""
    answering = {
        name: Answering(engine, [engine.encode(each) for each in messages], n, endless=endless)
        for name, engine in engines.items()
    }
    while any(each.busy for each in answering.values()):
        for each in answering.values():
            each.advance(_TURN)
    return {name: each.run() for name, each in answering.items()}


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
