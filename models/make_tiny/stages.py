"""The stages that make the pair, in order; each leaves files in a work folder.

A finished stage leaves `<stage>.json` with the seconds it took and is not run again; delete
that file to repeat it. Everything follows from the seed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from .text import (
    DRILL_SEED,
    LATE_MIXTURE,
    LATE_SEED,
    check_split,
    held_out_prompts,
    training_stream,
    write_prompts,
)
from .tokenizer import MASK, load_tokenizer, train_tokenizer

SEED = 1
TOKENIZER_TEXTS = 4000
CHECKED_TEXTS = 20_000  # of each stream, more than the target is trained on


@dataclass(frozen=True)
class Job:
    """Where to work, where the finished pair goes, and the seed."""

    work: Path
    out: Path
    seed: int


def make_text(job: Job) -> None:
    """prompts.jsonl, the check of the held-out rule, tokenizer.json."""
    from .sampling import MIXTURE

    held = held_out_prompts(job.seed)
    training = list(itertools.islice(training_stream(job.seed), CHECKED_TEXTS))
    check_split(training, held)
    for stream in (
        training_stream(job.seed + DRILL_SEED, drills=True),
        training_stream(job.seed + LATE_SEED, late=True, mixture=LATE_MIXTURE),
        training_stream(job.seed + 1, mixture=MIXTURE),  # the drafter's prompts
    ):
        check_split(list(itertools.islice(stream, CHECKED_TEXTS)), held)
    write_prompts(job.out / "prompts.jsonl", held)
    tokenizer = train_tokenizer(d.text for d in training[:TOKENIZER_TEXTS])
    tokenizer.save(str(job.work / "tokenizer.json"))


def make_target(job: Job) -> None:
    """target.pt."""
    from .target import train_target

    train_target(job.work, job.seed)


def make_texts(job: Job) -> None:
    """texts-<rank>.pt, the target's own greedy texts."""
    from .sampling import make_texts

    make_texts(job.work, job.seed)


def make_drafter(job: Job) -> None:
    """drafter.pt."""
    from .distill import train_drafter

    train_drafter(job.work, job.seed)


def make_pair(job: Job) -> None:
    """target.gguf, draft/model.safetensors and draft/config.json."""
    from .export import export_draft, export_target

    target, drafter, tokenizer = _load(job)
    export_target(job.out / "target.gguf", target.state_dict(), target.config, tokenizer)
    export_draft(job.out / "draft", drafter.state_dict(), drafter.config)


def make_reference(job: Job) -> None:
    """reference.npz; the report follows from it."""
    from .chat import END
    from .reference import greedy_texts, make_reference, save_reference

    target, drafter, tokenizer = _load(job)
    held = held_out_prompts(job.seed)
    prompts = [tokenizer.encode(d.prompt).ids for d in held]
    texts = greedy_texts(target, prompts, tokenizer.token_to_id(END))
    arrays = make_reference(target, drafter, texts, [d.kind for d in held])
    save_reference(job.out / "reference.npz", arrays)


def make_report(job: Job) -> None:
    """report.json."""
    import numpy as np

    from .report import make_report, write_report

    with np.load(job.out / "reference.npz") as file:
        arrays = dict(file)
    seconds = {
        name: json.loads(path.read_text())["seconds"]
        for name in STAGES
        if (path := job.work / f"{name}.json").exists()
    }
    tokenizer = load_tokenizer(job.work / "tokenizer.json")
    report = make_report(arrays, held_out_prompts(job.seed), tokenizer, seconds, job.seed)
    write_report(job.out / "report.json", report)


def _load(job: Job) -> tuple[Any, Any, Tokenizer]:
    from .distill import load_drafter
    from .target import load_target

    tokenizer = load_tokenizer(job.work / "tokenizer.json")
    drafter = load_drafter(job.work / "drafter.pt", tokenizer.token_to_id(MASK))
    return load_target(job.work / "target.pt"), drafter, tokenizer


STAGES: dict[str, Callable[[Job], None]] = {
    "text": make_text,
    "target": make_target,
    "texts": make_texts,
    "drafter": make_drafter,
    "pair": make_pair,
    "reference": make_reference,
    "report": make_report,
}


def run(job: Job, until: str | None = None) -> None:
    """Runs the stages that are not done yet."""
    job.work.mkdir(parents=True, exist_ok=True)
    job.out.mkdir(parents=True, exist_ok=True)
    for name, stage in STAGES.items():
        done = job.work / f"{name}.json"
        if done.exists():
            print(f"{name}: done before", flush=True)
        else:
            began = time.monotonic()
            stage(job)
            seconds = round(time.monotonic() - began, 1)
            done.write_text(json.dumps({"seconds": seconds}))
            print(f"{name}: {seconds} s", flush=True)
        if name == until:
            break


def main() -> None:
    """The command line."""
    models = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(prog="make_tiny", description=__doc__)
    parser.add_argument("--work", type=Path, default=models / "work", help="checkpoints and texts")
    parser.add_argument("--out", type=Path, default=models / "tiny", help="the finished pair")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--until", choices=STAGES, help="stop after this stage")
    arguments = parser.parse_args()
    run(Job(arguments.work, arguments.out, arguments.seed), arguments.until)
