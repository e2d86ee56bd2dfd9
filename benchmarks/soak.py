"""Thousands of mixed requests through one engine: does its memory stay flat?

    python benchmarks/soak.py --target models/tiny/target.gguf --draft build/demo/tiny-draft-BF16.gguf --count 2000

Requests differ in length, block, temperature, penalties, grammars, stop strings, log-probabilities and in how they
end: by themselves, cancelled in prefill or in decode, refused. Several run at once. Prints a JSON line every tenth
of the way, with the resident memory, and a verdict: memory after the warm-up (the first fifth) must stay within 2 %,
no answer may be one token over and over or break its grammar. A request that is asked again from time to time must
give one text. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import random
import re
import sys
import time
from pathlib import Path
from typing import Any

import dflash_gguf
from dflash_gguf import DflashError, Engine, Sampling, Sequence

LIMIT = 0.02
GRAMMAR = 'root ::= ("a" | "b" [c-f])+ "."'
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "yes": {"type": "boolean"}},
    "required": ["n", "yes"],
}


def resident() -> int:
    """Bytes of this process in memory, after freed memory has been given back."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc keeps what was freed
        libc.malloc_trim(0)
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


class Soak:
    """Sends requests and keeps count of how they end."""

    def __init__(self, engine: Engine, prompts: list[Any], seed: int) -> None:
        self.engine = engine
        self.prompts = prompts
        self.choose = random.Random(seed)
        # with the tokens at which to cancel, whether the prompt has a meaning, and the request's settings
        self.running: dict[int, tuple[Sequence, int | None, bool, dict[str, Any]]] = {}
        self.ended: dict[str, int] = {}
        self.kinds: dict[str, int] = {}
        self.most = 0  # at a time
        self.loops = 0
        self.broken = 0  # answers that are not of their grammar

    def request(self) -> None:
        """Start one, or have it refused."""
        choose = self.choose
        prompt = choose.choice(self.prompts)
        if choose.random() < 0.2:
            length = choose.choice([1, 5, 300, self.engine.n_ctx - 2])
            prompt = [choose.randrange(200) for _ in range(length)]
        options: dict[str, Any] = {
            "max_tokens": choose.choice([1, 3, 17, 60, 150]),
            "block": choose.choice([None, 1, 2, 5, self.engine.block]),
        }
        if choose.random() < 0.5:
            options["sampling"] = Sampling(
                temperature=choose.choice([0.0, 0.7, 1.5]),
                top_p=choose.choice([1.0, 0.9]),
                repeat_penalty=choose.choice([1.0, 1.2]),
                seed=choose.randrange(100),
            )
        if choose.random() < 0.3:
            options["stop"] = choose.choice([".", "\n", ["zzz", "the"]])
        if choose.random() < 0.15:
            options |= choose.choice([{"grammar": GRAMMAR}, {"json_schema": SCHEMA}])
        if choose.random() < 0.2:
            options["logprobs"] = choose.choice([0, 3])
        if choose.random() < 0.1:
            options |= choose.choice([{"max_tokens": 0}, {"block": 999}, {"stop": ""}])
        if choose.random() < 0.05:
            prompt = [1] * (self.engine.n_ctx + 5)
        try:
            answer = self.engine.start(prompt, **options)
        except DflashError:
            self.count("refused")
            return
        sampling = options.get("sampling")
        sampled = sampling is not None and sampling.temperature > 0
        for kind in ["sampled" if sampled else "greedy", *options]:
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
        leaves = choose.choice([0, 0, 4, 20]) if choose.random() < 0.25 else None
        self.running[id(answer)] = (answer, leaves, not isinstance(prompt[0], int), options)
        self.most = max(self.most, len(self.running))

    def step(self) -> None:
        """Do a round; note what has ended and cancel those that are to leave."""
        self.engine.step()
        for key, (answer, leaves, meant, options) in list(self.running.items()):
            if leaves is not None and len(answer.tokens) >= leaves:
                self.engine.cancel(answer)
            if answer.finish_reason is not None:
                del self.running[key]
                self.count(answer.finish_reason)
                repeats = len(answer.tokens) > 40 and len(set(answer.tokens)) == 1
                self.loops += repeats and meant
                self.broken += breaks_grammar(answer, options)

    def count(self, how: str) -> None:
        """Remember how a request ended."""
        self.ended[how] = self.ended.get(how, 0) + 1


def breaks_grammar(answer: Sequence, options: dict[str, Any]) -> bool:
    """Whether an answer is none of those that its grammar or schema allows, nor the beginning of one."""
    whole = answer.finish_reason == "stop" and "stop" not in options
    if "grammar" in options:
        allowed = r"(a|b[c-f])+\." if whole else r"(a|b[c-f])*b?|(a|b[c-f])+\."
        return re.fullmatch(allowed, answer.text) is None
    if "json_schema" in options and whole:
        try:
            return set(json.loads(answer.text)) != {"n", "yes"}
        except ValueError:
            return True
    return False


def soak(engine: Engine, prompts: list[Any], count: int, seed: int = 0) -> dict[str, Any]:
    """Send `count` requests and return the verdict; prints lines on the way."""
    work = Soak(engine, prompts, seed)
    probe: dict[str, Any] = {
        "max_tokens": 40,
        "sampling": Sampling(temperature=0.8, seed=42),
        "ignore_end": True,
    }
    expected = engine.generate(prompts[0], **probe).tokens
    sizes, differing, start = [], 0, time.monotonic()
    for sent in range(1, count + 1):
        while engine.free == 0:
            work.step()
        work.request()
        if work.choose.random() < 0.7:
            work.step()
        if sent % max(1, count // 10) == 0:
            while engine.busy:
                work.step()
            differing += engine.generate(prompts[0], **probe).tokens != expected
            sizes.append(resident())
            line = {"sent": sent, "resident_mib": round(sizes[-1] / 2**20, 2), **work.ended}
            print(json.dumps(line), flush=True)
    settled = sizes[len(sizes) // 5 :]
    spread = (max(settled) - settled[0]) / settled[0]
    return {
        "pass": spread <= LIMIT and not (work.loops or work.broken or differing),
        "growth": round(spread, 4),
        "one_token_answers": work.loops,
        "broken_grammars": work.broken,
        "probe_differs": differing,
        "seconds": round(time.monotonic() - start, 1),
        "at_once": work.most,
        "kinds": work.kinds,
        **work.ended,
    }


def main() -> int:
    """Load the pair, soak it, print the verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, default=None)
    parser.add_argument("--prompts", type=Path, default=Path("models/tiny/prompts.jsonl"))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument(
        "--prefix-memory", type=int, default=16, help="MiB; small, so that it is soon full"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    lines = args.prompts.read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line)["messages"] for line in lines[::4]]
    options = {
        "context": args.context,
        "sequences": args.sequences,
        "threads": args.threads,
        "prefix_memory": args.prefix_memory << 20,
    }
    with dflash_gguf.load(args.target, args.draft, **options) as engine:
        verdict = soak(engine, prompts, args.count, args.seed)
    print(json.dumps(verdict), flush=True)
    return 0 if verdict["pass"] else 1


if __name__ == "__main__":
    sys.exit(main())
