"""report.json: accuracy and accept length of the pair on its held-out prompts."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from .accept import rounds
from .drafter import MASKS
from .shape import BLOCK
from .text import Dialogue

Arrays = dict[str, np.ndarray]


def replies(arrays: Arrays, tokenizer: Tokenizer) -> list[str]:
    """The greedy reply to every held-out prompt, without the end token."""
    starts = arrays["text_start"]
    return [
        tokenizer.decode(arrays["ids"][a + p : b - 1].tolist(), skip_special_tokens=False)
        for a, b, p in zip(starts, starts[1:], arrays["prompt_length"], strict=False)
    ]


def is_right(dialogue: Dialogue, reply: str) -> bool:
    """Arithmetic: the last number of the answer; other kinds: the whole reply as written."""
    if dialogue.kind != "arithmetic":
        return reply == dialogue.reply
    numbers = re.findall(r"\d+", reply.partition("</think>")[2])
    return bool(numbers) and numbers[-1] == dialogue.value


def accept_figures(arrays: Arrays, kinds: list[str], masking: str) -> dict[str, Any]:
    """Mean accept length by kind, and the share of rounds that accept each draft position."""
    per_kind: dict[str, list[int]] = defaultdict(list)
    for index, kind in enumerate(kinds):
        counts = arrays[f"accept_{masking}"][arrays["anchor_text"] == index]
        per_kind[kind] += rounds(counts.tolist())
    per_kind["all"] = [n for kind in dict.fromkeys(kinds) for n in per_kind[kind]]
    return {
        kind: {
            "accept_length": round(1 + float(np.mean(counts)), 3),
            "rounds": len(counts),
            "by_position": [
                round(float(np.mean(np.array(counts) >= k)), 3) for k in range(1, BLOCK)
            ],
        }
        for kind, counts in per_kind.items()
    }


def make_report(
    arrays: Arrays, held: list[Dialogue], tokenizer: Tokenizer, seconds: dict[str, float], seed: int
) -> dict[str, Any]:
    """Everything that report.json says."""
    right: dict[str, list[bool]] = defaultdict(list)
    for dialogue, reply in zip(held, replies(arrays, tokenizer), strict=True):
        right[dialogue.kind].append(is_right(dialogue, reply))
    kinds = [d.kind for d in held]
    return {
        "seed": seed,
        "rule": "accept length of a round = 1 + accepted drafts, drafts counted up to the end",
        "accuracy": {kind: round(float(np.mean(r)), 3) for kind, r in right.items()},
        "accept": {masking: accept_figures(arrays, kinds, masking) for masking in MASKS},
        "anchors": len(arrays["anchor_text"]),
        "mean_text_tokens": round(float(np.diff(arrays["text_start"]).mean()), 1),
        "seconds": seconds,
    }


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Writes report.json."""
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
