"""One cache of keys and values for all sequences, or one for each? Rounds of unequal sequences, interleaved.

    python benchmarks/unified_cache.py --target models/tiny/target.gguf --draft build/demo/tiny-draft-BF16.gguf

Sequences have read prompts of different lengths and write as many tokens each, at a fixed block. Prints a JSON line
for each number of sequences: the seconds of rounds with target and draft split and unified, as ratios to what the
engine uses (both split); medians of pairs, a warm-up dropped. Above 1 is slower.
"""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import product
from pathlib import Path
from typing import Any

from dflash_gguf._native import core
from dflash_gguf.draft_family import make_drafter
from dflash_gguf.hardware import default_threads
from dflash_gguf.pair import check_pair

USED = (False, False)  # target, draft


class Arm:
    """A session whose caches are unified or not."""

    def __init__(self, args: argparse.Namespace, sequences: int, target: bool, draft: bool) -> None:
        native = core()
        facts = check_pair(args.target, args.draft)
        model, drafter = native.Model(str(args.target)), native.Model(str(args.draft))
        rows = sequences * args.block
        params = native.ContextParams()
        params.n_ctx, params.n_seq, params.unified = args.context, sequences, target
        params.n_batch = params.n_ubatch = max(256, rows + 1)
        params.n_outputs = rows
        params.n_rollback = args.block - 1 if model.has_state else 0
        params.n_threads = params.n_threads_batch = args.threads or default_threads()
        context = native.Context(model, params)
        params.n_rollback, params.unified = 0, draft
        params.n_batch = params.n_ubatch = params.n_outputs = max(128, rows)
        own = make_drafter(facts.layout, drafter, params, context, facts.mask, facts.causal)
        own.probe()
        self.session = native.Session(native.Target(context, drafter.taps), own, args.block)
        self.block = args.block

    def run(self, prompts: list[list[int]], n: int) -> float:
        """Return the seconds of all rounds of these requests."""
        before = self.session.times
        start = before.total - before.prefill
        options: dict[str, Any] = {"max_tokens": n, "block": self.block, "stops": set()}
        running = {self.session.add(prompt, **options) for prompt in prompts}
        while running:
            for output in self.session.step():
                if output.finish != core().Finish.none:
                    self.session.remove(output.id)
                    running.discard(output.id)
        after = self.session.times
        return float(after.total - after.prefill - start) * 1e-9


def main() -> None:
    """Print one JSON line per number of sequences."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--sequences", default="1,8,32")
    parser.add_argument("--shortest", type=int, default=20, help="tokens of the shortest prompt")
    parser.add_argument("--longest", type=int, default=700)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("-n", type=int, default=96, help="tokens of each answer")
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    args = parser.parse_args()
    for sequences in (int(number) for number in args.sequences.split(",")):
        span = args.longest - args.shortest
        lengths = [args.shortest + span * i // max(1, sequences - 1) for i in range(sequences)]
        prompts = [
            [1 + (7 * i + 13 * k) % 250 for i in range(size)] for k, size in enumerate(lengths)
        ]
        arms = {
            choice: Arm(args, sequences, *choice) for choice in product((False, True), repeat=2)
        }
        seconds: dict[tuple[bool, ...], list[float]] = {choice: [] for choice in arms}
        for _ in range(1 + args.pairs):
            for choice, arm in arms.items():
                seconds[choice].append(arm.run(prompts, args.n))
        names = {False: "split", True: "unified"}
        line: dict[str, Any] = {"sequences": sequences, "prompts": [min(lengths), max(lengths)]}
        for choice in arms:
            ratios = [a / b for a, b in zip(seconds[choice][1:], seconds[USED][1:], strict=True)]
            name = f"target {names[choice[0]]}, draft {names[choice[1]]}"
            line[name] = round(statistics.median(ratios), 3)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
