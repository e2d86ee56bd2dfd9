"""Our drafts against PyTorch's at every position of the tiny pair's held-out greedy texts. Not part of CI.

    pip install '.[train]'
    python benchmarks/per_anchor.py --server llama-server

One JSON line per figure; the last says whether the limits hold, as does the exit code.

anchors: behind every token of a reply both sides draft a block from the true text, for three masks: the file's own
(`trained`: sliding layers causal, the full one not), all layers bidirectional, all causal. `same_prefix`: share of
anchors whose drafts are equal up to the first that the text contradicts, that one included (at least 0.98);
`ratio`: mean accepted drafts over PyTorch's (0.99 to 1.01). PyTorch begins with the token ids; with --features
`from_features` compares with what it drafts from llama.cpp's features, so that only the drafters differ.

answers: the engine by itself, block by block. accept_length = 1 + accepted / rounds that draft: tokens behind the
first of an answer, up to its end token, by rounds. `pytorch`: the same of PyTorch's drafts, each round behind the
last. Q5_K_M within 5 % of bf16.

draft_cache: the draft's keys, values or both in q8_0; acceptance rate within 3 points of f16.

mainline: llama-server with draft-dflash and n-max = block - 1, by its own counts: 1 + draft_n_accepted / (draft_n /
n-max). It runs all layers bidirectional, and counts what follows the end token inside the last block.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for tests.support

import numpy as np
from peer_arms import Peer, Task
from torch_pair import TorchPair

import dflash_gguf
from tests.support.anchors import Text, agreement, engine_drafts, engine_features
from tests.support.tiny import BLOCK, Tiny

MASKS = {"trained": None, "bidirectional": False, "causal": True}
FIXED = (4, 8, BLOCK)
PAIRS = [("bf16", "bf16"), ("f32", "f32"), ("bf16", "q5_k_m")]  # compared anchor by anchor
QUANTISED = "q5_k_m"
CACHES = [("f16", "f16"), ("q8_0", "f16"), ("f16", "q8_0"), ("q8_0", "q8_0")]
Line = dict[str, Any]


class Bench:
    """The pair's files in all types, its texts, PyTorch's side, and what has failed."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args = args
        self.tiny = Tiny(folder)
        self.targets = {"bf16": self.tiny.target, "f32": self.tiny.target_f32}
        self.drafts = {name: self.tiny.draft(name) for name in ("bf16", "f32", QUANTISED)}
        self.prompts = self.tiny.prompts[:: args.thin]
        self.torch = TorchPair(self.tiny.target)
        self.plain: dict[str, list[dflash_gguf.Sequence]] = {}
        self.failed: list[str] = []

    def load(self, target: str, draft: str | None, **options: Any) -> dflash_gguf.Engine:
        """Open a pair by its types; with an f32 target the caches are f32 too."""
        chosen = {"context": 1024, "threads": self.args.threads, **options}
        if target == "f32":
            chosen["kv_type"] = "f32"
        return dflash_gguf.load(
            self.targets[target], None if draft is None else self.drafts[draft], **chosen
        )

    def texts(self, target: str, every: int = 1) -> list[Text]:
        """Held-out prompts with the target's own greedy replies."""
        if target not in self.plain:
            with self.load(target, None) as engine:
                self.plain[target] = [
                    engine.generate(p["messages"], max_tokens=self.args.n) for p in self.prompts
                ]
        return [
            Text.of([*a.prompt, *a.tokens], len(a.prompt), every, first)
            for first, a in enumerate(self.plain[target])
        ]

    def holds(self, name: str, limit: bool) -> bool:
        """Note a limit that is not held."""
        if not limit:
            self.failed.append(name)
        return limit


def texts(bench: Bench) -> Iterator[Line]:
    """What is compared."""
    for target in bench.targets:
        found = bench.texts(target)
        prompts = [len(answer.prompt) for answer in bench.plain[target]]
        others = [
            bench.torch.other_choices(text.ids, prompt)
            for text, prompt in zip(found, prompts, strict=True)
        ]
        yield {
            "target": target,
            "texts": len(found),
            "tokens_of_replies": sum(len(t.ids) - p for t, p in zip(found, prompts, strict=True)),
            "texts_pytorch_writes_otherwise": sum(map(bool, others)),
        }


def anchors(bench: Bench) -> Iterator[Line]:
    """Block against block, behind every token of the replies."""
    for target, draft in PAIRS:
        places = bench.texts(target, bench.args.every)
        wanted = np.concatenate([text.wanted() for text in places])
        features = []
        if bench.args.features:
            with bench.load(target, draft, block=BLOCK, prefix_memory=0) as engine:
                taps = len(bench.torch.taps)
                features = [engine_features(engine, text.ids[:-1], taps) for text in places]
        for mask, causal in MASKS.items():
            # prefixes in its caches are all that is to be kept
            with bench.load(target, draft, block=BLOCK, causal=causal, prefix_memory=1) as engine:
                ours = np.concatenate([engine_drafts(engine, text) for text in places])
            theirs = np.concatenate([bench.torch.drafts(text, mask) for text in places])
            found = agreement(ours, theirs, wanted)
            line = {"target": target, "draft": draft, "mask": mask, **rounded(asdict(found))}
            line["ratio"] = round(found.ratio, 4)
            if draft != QUANTISED:
                name = f"anchors of {target} with {draft}, {mask}"
                line["holds"] = bench.holds(name, found.holds)
            if features:
                near = [
                    bench.torch.drafts_from(rows, text, mask)
                    for rows, text in zip(features, places, strict=True)
                ]
                line["from_features"] = rounded(
                    asdict(agreement(ours, np.concatenate(near), wanted))
                )
            yield line


def answers(bench: Bench) -> Iterator[Line]:
    """The engine by itself."""
    for target in bench.targets:
        lengths: dict[tuple[str, int | str], dict[str, float]] = {}
        for draft in ("bf16", QUANTISED):
            for block in (*FIXED, "auto"):
                line, lengths[draft, block] = answered(bench, target, draft, block)
                yield line
        for block in FIXED:
            of = {draft: lengths[draft, block] for draft in ("bf16", QUANTISED)}
            ratios = {kind: of[QUANTISED][kind] / of["bf16"][kind] for kind in of["bf16"]}
            holds = all(abs(ratio - 1) <= 0.05 for ratio in ratios.values())
            yield {
                "target": target,
                "block": block,
                f"{QUANTISED}_over_bf16": rounded(ratios),
                "holds": bench.holds(f"{QUANTISED} at block {block} of {target}", holds),
            }


def answered(
    bench: Bench, target: str, draft: str, block: int | str
) -> tuple[Line, dict[str, float]]:
    """Answer all prompts; the line, and accept lengths by kind of prompt and over all."""
    own = bench.texts(target)
    with bench.load(target, draft, block=block) as engine:
        found = [engine.generate(p["messages"], max_tokens=bench.args.n) for p in bench.prompts]
    same = sum(a.tokens == b.tokens for a, b in zip(bench.plain[target], found, strict=True))
    lengths = accept_lengths(bench, found)
    line: Line = {"target": target, "draft": draft, "block": block, "same_text": same}
    line["accept_length"] = rounded(lengths)
    if isinstance(block, int):
        length = bench.torch.accept_length(own, "trained", block)
        line |= {"pytorch": round(length, 3), "ratio": round(lengths["all"] / length, 4)}
    stats: list[Any] = [answer.stats for answer in found]
    seconds = sum(s.decode_seconds for s in stats)
    line["tokens_per_second"] = round(sum(s.emitted - 1 for s in stats) / seconds)
    return line, lengths


def accept_lengths(bench: Bench, found: list[dflash_gguf.Sequence]) -> dict[str, float]:
    """1 + accepted / drafting rounds, by kind of prompt and over all."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for prompt, answer in zip(bench.prompts, found, strict=True):
        stats: Any = answer.stats
        for kind in ("all", prompt["kind"]):
            counts[kind][0] += stats.accepted
            counts[kind][1] += stats.drafting_rounds
    return {kind: 1 + accepted / rounds for kind, (accepted, rounds) in counts.items() if rounds}


def draft_cache(bench: Bench) -> Iterator[Line]:
    """Keys and values of the draft in fewer bits."""
    first: float | None = None
    for keys, values in CACHES:
        with bench.load("bf16", "bf16", block=BLOCK, draft_kv_type=(keys, values)) as engine:
            found = [engine.generate(p["messages"], max_tokens=bench.args.n) for p in bench.prompts]
        stats: list[Any] = [answer.stats for answer in found]
        rate = sum(s.accepted for s in stats) / sum(s.drafted for s in stats)
        first = rate if first is None else first
        yield {
            "keys": keys,
            "values": values,
            "accept_length": round(accept_lengths(bench, found)["all"], 3),
            "acceptance_rate": round(rate, 4),
            "points": round(100 * (rate - first), 2),
            "holds": bench.holds(f"draft cache {keys}, {values}", abs(rate - first) <= 0.03),
        }


def mainlines(bench: Bench) -> Iterator[Line]:
    """Mainline by its own counts."""
    own = bench.texts("bf16")
    prompts = [answer.prompt for answer in bench.plain["bf16"]]
    for draft in ("bf16", QUANTISED):
        task = Task(
            target=bench.targets["bf16"],
            draft=bench.drafts[draft],
            peer_draft=bench.drafts[draft],
            threads=bench.args.threads,
            context=1024,
            sequences=1,
            n=bench.args.n,
            ignore_end=False,
            survival=None,
        )
        for block in FIXED:
            peer = Peer(task, bench.args.server, n_max=block - 1)
            replies = [peer.answer([prompt]).replies[0] for prompt in prompts]
            peer.close()
            rounds = sum(reply.drafted for reply in replies) / (block - 1)
            length = bench.torch.accept_length(own, "bidirectional", block)
            yield {
                "target": "bf16",
                "draft": draft,
                "n_max": block - 1,
                "accept_length": round(1 + sum(r.accepted for r in replies) / rounds, 3),
                "pytorch_bidirectional": round(length, 3),
            }


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Cut floats to four decimals."""
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()}


PARTS = {
    "texts": texts,
    "anchors": anchors,
    "answers": answers,
    "draft_cache": draft_cache,
    "mainline": mainlines,
}


def main() -> int:
    """Print one JSON line per figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="which, separated by commas")
    parser.add_argument("--server", type=Path, help="a built llama-server")
    parser.add_argument("--every", type=int, default=1, help="take every so many-th anchor")
    parser.add_argument("--thin", type=int, default=1, help="take every so many-th prompt")
    parser.add_argument("--features", action="store_true", help="PyTorch from llama.cpp's as well")
    parser.add_argument("-n", type=int, default=400)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        for name in args.parts.split(","):
            if name == "mainline" and args.server is None:
                continue
            for line in PARTS[name](bench):
                print(json.dumps({"what": name, **line}), flush=True)
    print(json.dumps({"what": "limits", "held": not bench.failed, "failed": bench.failed}))
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
