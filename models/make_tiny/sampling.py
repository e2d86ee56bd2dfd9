"""The drafter's training material: the target's own greedy texts with their tapped states."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import torch
import torch.multiprocessing as mp

from .chat import END
from .generate import Text, generate
from .target import load_target
from .text import training_stream
from .tokenizer import load_tokenizer

RANKS = 2
TEXTS = 4000
BATCH = 125
LIMIT = 300
# few questions, so that the drafter is better at some kinds of prompt than at others
MIXTURE = {"arithmetic": 0.54, "code": 0.36, "qa": 0.10}


def _worker(rank: int, folder: str, seed: int, texts: int) -> None:
    work = Path(folder)
    torch.set_num_threads(1)
    tokenizer = load_tokenizer(work / "tokenizer.json")
    model = load_target(work / "target.pt").bfloat16()
    stream = itertools.islice(training_stream(seed + 1, mixture=MIXTURE), rank, texts, RANKS)
    prompts = sorted((tokenizer.encode(d.prompt).ids for d in stream), key=len)
    began, made, tokens = time.monotonic(), [], 0
    for start in range(0, len(prompts), BATCH):
        batch = prompts[start : start + BATCH]
        made += generate(model, batch, tokenizer.token_to_id(END), LIMIT)
        tokens += sum(len(t.ids) - t.prompt for t in made[-len(batch) :])
        if rank == 0:
            seconds = time.monotonic() - began
            print(f"texts {len(made)}/{len(prompts)} {tokens / seconds:.0f} tokens/s", flush=True)
    torch.save([(t.ids, t.prompt, t.taps) for t in made], work / f"texts-{rank}.pt")


def make_texts(work: Path, seed: int, texts: int = TEXTS) -> None:
    """Leaves work/texts-<rank>.pt; prompts come from the training side, other seed."""
    mp.spawn(_worker, args=(str(work), seed, texts), nprocs=RANKS)


def load_texts(work: Path) -> list[Text]:
    """All texts, mapped from disk, not read; those that were cut off are left out."""
    tokenizer = load_tokenizer(work / "tokenizer.json")
    end_id = tokenizer.token_to_id(END)
    parts = (torch.load(work / f"texts-{rank}.pt", mmap=True) for rank in range(RANKS))
    texts = (Text(*item) for part in parts for item in part)
    return [t for t in texts if int(t.ids[-1]) == end_id]
