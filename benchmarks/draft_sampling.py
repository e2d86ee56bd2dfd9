"""How many drafted tokens each way of sampling drafts keeps, on the same anchors of the tiny pair.

    python benchmarks/draft_sampling.py --anchors 600

At every anchor, a place in the held-out texts, the drafter's rows are computed once, and a block is drafted
and put to the target in three ways: with shared noise ("gumbel"), drawn from the draft's distribution and
accepted by min(1, p / q) ("rejection"), and as mainline's tools do, the draft's best tokens against a draw of
the target's own. Prints a JSON line for each temperature and way: the mean number of accepted tokens, its
standard error, and the mean difference to "gumbel" with its own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from dflash_gguf import Sampling
from dflash_gguf._native import core
from dflash_gguf.convert import convert
from dflash_gguf.pair import check_pair

TINY = Path(__file__).parent.parent / "models" / "tiny"
Rows = np.ndarray[Any, np.dtype[np.float32]]


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

    def read(self, tokens: list[int]) -> int:
        """Give both models a text; the answer ends with the prefill."""
        number: int = self.session.add(tokens, max_tokens=1, block=self.block, stops=set())
        while not self.session.step():
            pass
        return number

    def draft_rows(self, text: list[int], anchor: int) -> Rows:
        """Logits of the positions behind the anchor, [block - 1, n_vocab]."""
        number = self.read(text[:anchor])
        rows = self.drafter.block_logits(number, anchor, text[anchor], self.block - 1)
        self.session.remove(number)
        return np.asarray(rows)[1:]

    def target_rows(self, text: list[int], anchor: int, drafted: list[int]) -> Rows:
        """Logits after the anchor and after each drafted token, [len(drafted) + 1, n_vocab]."""
        number = self.read(text[:anchor])
        rows = self.context.evaluate([text[anchor], *drafted], anchor, number)
        self.session.remove(number)
        return np.asarray(rows)


def matching(drafted: list[int], rows: Rows, anchor: int, sampling: Any) -> int:
    """Drafted tokens that the target draws too."""
    choose = core().choose
    for i, token in enumerate(drafted):
        if choose(sampling, rows[i], anchor + 1 + i) != token:
            return i
    return len(drafted)


def kept_by_rejection(
    drafted: list[int], draft: Rows, rows: Rows, temperature: float, random: np.random.Generator
) -> int:
    """Drafted tokens, drawn from the draft's rows, that rejection sampling keeps."""
    whole = core().Distribution.whole
    count, _ = core().accept_drawn(
        drafted,
        [whole(row, temperature) for row in draft],
        lambda i: whole(rows[i], temperature),
        lambda _: 0,
        lambda _: random.random(),
        lambda _: random.random(),
    )
    return int(count)


def accepted(
    pair: Pair, text: list[int], anchor: int, temperature: float, seed: int
) -> dict[str, int]:
    """Accepted tokens of one block, each way."""
    draft = pair.draft_rows(text, anchor)
    random = np.random.default_rng(seed)
    shared = Sampling(temperature=temperature, seed=2 * seed).native()
    other = Sampling(temperature=temperature, seed=2 * seed + 1).native()
    ways = {
        "gumbel": [core().choose(shared, row, anchor + 1 + i) for i, row in enumerate(draft)],
        "rejection": [core().choose(other, row, anchor + 1 + i) for i, row in enumerate(draft)],
        "mainline": [int(row.argmax()) for row in draft],
    }
    found = {}
    for way, drafted in ways.items():
        rows = pair.target_rows(text, anchor, drafted)
        if way == "rejection":
            found[way] = kept_by_rejection(drafted, draft, rows, temperature, random)
        else:
            found[way] = matching(drafted, rows, anchor, shared)
    return found


def anchors(count: int, block: int) -> list[tuple[list[int], int]]:
    """Texts and places in their answers, evenly spread."""
    with np.load(TINY / "reference.npz") as reference:
        ids, starts = reference["ids"], reference["text_start"]
    prompts = [json.loads(line) for line in (TINY / "prompts.jsonl").open(encoding="utf-8")]
    places = []
    for number in range(min(len(prompts), len(starts) - 1)):
        text = ids[starts[number] : starts[number + 1]].tolist()
        for anchor in range(len(text) // 2, len(text) - block):
            places.append((text, anchor))
    step = max(1, len(places) // count)
    return places[::step][:count]


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--anchors", type=int, default=600, help="places to draft at")
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--temperatures", default="0.6,0.8,1.0")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (draft,) = convert(
            TINY / "draft", TINY / "target.gguf", outdir=Path(folder), outtypes=["bf16"]
        )
        pair = Pair(TINY / "target.gguf", draft.path, args.block)
        places = anchors(args.anchors, args.block)
        for temperature in map(float, args.temperatures.split(",")):
            found = [
                accepted(pair, text, anchor, temperature, seed)
                for seed, (text, anchor) in enumerate(places)
            ]
            base = np.array([one["gumbel"] for one in found])
            for way in found[0]:
                counts = np.array([one[way] for one in found])
                apart = counts - base
                root = np.sqrt(len(found))
                line = {
                    "temperature": temperature,
                    "way": way,
                    "anchors": len(found),
                    "mean_accepted": round(float(counts.mean()), 3),
                    "standard_error": round(float(counts.std() / root), 3),
                    "difference": round(float(apart.mean()), 3),
                    "its_error": round(float(apart.std() / root), 3),
                }
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
