"""How many drafted tokens each way of sampling drafts keeps, on the same anchors of the tiny pair.

    python benchmarks/draft_sampling.py
    python benchmarks/draft_sampling.py --top-k 20 --top-p 0.95

The target answers the held-out prompts at a temperature. At anchors, every few tokens of its answers, the drafter's
rows are computed, and all ways are judged by the tokens that the target wrote there:

- gumbel: drafted with the target's noise by the draft's distribution sharpened by s (its log-probabilities times s).
  s = inf takes the draft's best tokens, as mainline's tools do.
- learnt: the same, s chosen by the outcomes of the anchors before, as the engine does.
- rejection: drawn from the sharpened distribution q and kept with probability min(1, p / q). The expected number
  kept is the mean, over texts of the target, of the sums of running products of min(1, q / p).

Prints a JSON line for each temperature, way and s: the mean number of accepted tokens, its standard error, and the mean
difference to the first line with its own.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from prompts import spread

import dflash_gguf
from dflash_gguf import Sampling
from dflash_gguf._native import core
from dflash_gguf.convert import convert
from dflash_gguf.pair import check_pair

TINY = Path(__file__).parent.parent / "models" / "tiny"
SHARPNESS = (1.0, 1.25, 1.5, 2.0, 3.0, math.inf)
MOST = 220  # tokens of an answer
Rows = np.ndarray[Any, np.dtype[np.float32]]


@dataclass
class Anchor:
    """A place in an answer: the drafter's rows for what follows, the target's, and what was written."""

    sampling: Any
    position: int  # of the first drafted token
    draft: Rows  # [block - 1, n_vocab]
    target: Rows
    text: list[int]


class Pair:
    """The tiny pair, and blocks of it at any place of a text."""

    def __init__(self, target: Path, draft: Path, block: int) -> None:
        native = core()
        self.block = block
        facts = check_pair(target, draft)
        model, draft_model = native.Model(str(target)), native.Model(str(draft))
        params = native.ContextParams()
        params.n_ctx = params.n_batch = params.n_ubatch = 512
        params.n_outputs, params.n_rollback = block, block - 1
        self.context = native.Context(model, params)
        params.n_outputs, params.n_rollback = params.n_batch, 0
        target_rows = native.Target(self.context, draft_model.taps)
        self.drafter = native.ModelDrafter(
            draft_model, params, self.context, facts.mask, facts.causal
        )
        self.session = native.Session(target_rows, self.drafter, block)
        self.ends = set(model.end_tokens)

    def read(self, tokens: list[int]) -> int:
        """Give both models a text; the answer ends with the prefill."""
        number: int = self.session.add(tokens, max_tokens=1, block=self.block, stops=set())
        while not self.session.step():
            pass
        return number

    def answer(
        self, prompt: list[int], sampling: Any, first: int, every: int
    ) -> tuple[list[int], dict[int, Rows]]:
        """Return the target's answer and, by their index in it, the drafter's rows behind some tokens."""
        options: dict[str, Any] = {"stops": self.ends, "sampling": sampling}
        number = self.session.add(prompt, max_tokens=MOST, block=2, **options)
        tokens: list[int] = []
        rows: dict[int, Rows] = {}
        going = True
        while going:
            for output in self.session.step():
                tokens += output.tokens
                going = output.finish == core().Finish.none
            last = len(tokens) - 1
            if going and last >= first:
                first += every
                place = len(prompt) + last
                block = self.drafter.block_logits(number, place, tokens[-1], self.block - 1)
                rows[last] = np.asarray(block)[1:]
        self.session.remove(number)
        return tokens, rows

    def target_rows(self, prompt: list[int], tokens: list[int]) -> Rows:
        """Logits after each token of an answer, [len(tokens), n_vocab]."""
        number = self.read(prompt)
        found = [
            self.context.evaluate(tokens[i : i + self.block], len(prompt) + i, number)
            for i in range(0, len(tokens), self.block)
        ]
        self.session.remove(number)
        return np.concatenate(found)

    def anchors(
        self, prompts: list[list[int]], settings: dict[str, Any], every: int
    ) -> list[Anchor]:
        """Let the target answer, and take every so many-th place that a whole block follows."""
        found = []
        for number, prompt in enumerate(prompts):
            sampling = Sampling(**settings, seed=1000 + number).native()
            tokens, rows = self.answer(prompt, sampling, number % every, every)
            target = self.target_rows(prompt, tokens)
            for i, draft in rows.items():
                text = tokens[i + 1 : i + self.block]
                if len(text) == len(draft):
                    position = len(prompt) + i + 1
                    own = target[i : i + len(draft)]
                    found.append(Anchor(sampling, position, draft, own, text))
        return found


def sharpened(sampling: Any, sharpness: float) -> Any:
    """Settings whose choice is the one of a distribution sharper by a factor."""
    made = core().Sampling()
    for name in ("top_k", "top_p", "seed"):
        setattr(made, name, getattr(sampling, name))
    made.temperature = sampling.temperature / sharpness
    return made


def right(anchor: Anchor, drafted: list[int]) -> int:
    """Drafted tokens that the target has written."""
    pairs = zip(drafted, anchor.text, strict=True)
    return next((i for i, (own, its) in enumerate(pairs) if own != its), len(drafted))


def by_noise(anchor: Anchor, sharpness: float) -> float:
    """Tokens kept of a draft with shared noise."""
    sampling = sharpened(anchor.sampling, sharpness)
    rows = enumerate(anchor.draft, anchor.position)
    return right(anchor, [core().choose(sampling, row, position) for position, row in rows])


def by_rejection(anchor: Anchor, sharpness: float) -> float:
    """Tokens that rejection sampling is expected to keep, weighed by how likely the text was."""
    if sharpness == math.inf:
        return by_noise(anchor, sharpness)
    q = sharpened(anchor.sampling, sharpness)
    share, total = 1.0, 0.0
    for draft, target, token in zip(anchor.draft, anchor.target, anchor.text, strict=True):
        p = core().Distribution.filtered(target, anchor.sampling).of(token)
        drawn = core().Distribution.filtered(draft, q).of(token)
        share *= min(1.0, drawn / p) if p > 0 else 0.0
        total += share
    return total


def learnt(anchors: list[Anchor]) -> list[int]:
    """Tokens kept by what the anchors before have taught."""
    sharpness, found, reached = core().Sharpness(), [], 1
    for number, anchor in enumerate(anchors):
        compared = core().compared_place(number, 0, 1, reached)
        drafted, picks = core().draft_block(
            anchor.sampling, anchor.draft, anchor.position, sharpness, compared, []
        )
        found.append(right(anchor, drafted))
        reached = min(found[-1] + 1, len(anchor.text))
        if picks and compared < reached:
            sharpness.saw(anchor.sampling.temperature, picks, anchor.text[compared])
    return found


def lines(anchors: list[Anchor]) -> Iterator[dict[str, Any]]:
    """What each way keeps."""
    ways: dict[tuple[str, float | str], list[float]] = {}
    for sharpness in SHARPNESS:
        ways["gumbel", sharpness] = [by_noise(anchor, sharpness) for anchor in anchors]
    ways["gumbel", "learnt"] = [float(count) for count in learnt(anchors)]
    for sharpness in SHARPNESS[:-1]:
        ways["rejection", sharpness] = [by_rejection(anchor, sharpness) for anchor in anchors]
    base = np.array(ways["gumbel", 1.0])
    root = math.sqrt(len(anchors))
    for (way, by), kept in ways.items():
        counts = np.array(kept)
        yield {
            "way": way,
            "s": str(by),
            "anchors": len(anchors),
            "mean_accepted": round(float(counts.mean()), 3),
            "standard_error": round(float(counts.std()) / root, 3),
            "difference": round(float((counts - base).mean()), 3),
            "its_error": round(float((counts - base).std()) / root, 3),
        }


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=8, help="tokens from anchor to anchor")
    parser.add_argument("--prompts", type=int, default=96)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--temperatures", default="0.3,0.6,0.8,1.0")
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--top-p", type=float, default=1.0)
    args = parser.parse_args()
    target = TINY / "target.gguf"
    with dflash_gguf.load(target, None, context=1024) as engine:
        asked = spread(TINY / "prompts.jsonl", args.prompts)
        prompts = [list(engine.generate(messages, max_tokens=1).prompt) for messages in asked]
    with tempfile.TemporaryDirectory() as folder:
        (draft,) = convert(TINY / "draft", target, outdir=Path(folder), outtypes=["bf16"])
        pair = Pair(target, draft.path, args.block)
        for temperature in map(float, args.temperatures.split(",")):
            settings = {"temperature": temperature, "top_k": args.top_k, "top_p": args.top_p}
            for line in lines(pair.anchors(prompts, settings, args.every)):
                print(json.dumps(settings | line), flush=True)


if __name__ == "__main__":
    main()
