"""Answers at the same time whose sequences end, leave gaps and begin: each is as if it were alone.

llama.cpp cuts a decode of sequences whose ids have gaps into several, and where recurrent states lie apart from the
order of ids it moves them in between, without the snapshots that a rejected draft is undone with.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import dflash_gguf

from .support.tiny import Tiny

PROMPTS = slice(80, 96)


@pytest.mark.parametrize(
    ("sequences", "block", "forgets", "options"),
    [
        (12, 16, False, {"prefix_memory": 0}),
        (16, 8, False, {"prefix_memory": 0}),
        (12, 16, True, {}),
    ],
)
def test_gaps_between_sequences_change_no_text(
    tiny: Tiny, sequences: int, block: int, forgets: bool, options: dict[str, Any]
) -> None:
    options |= {"context": 512, "flash_attn": False, "block": block}
    draft = tiny.draft("bf16")
    waiting = [prompt["messages"] for prompt in tiny.prompts[PROMPTS]]
    with dflash_gguf.load(tiny.target_f32, draft, sequences=sequences, **options) as engine:
        alone = [engine.generate(prompt, max_tokens=200, block=1).tokens for prompt in waiting]
        answers = []
        while waiting or engine.busy:
            while waiting and engine.free:
                answers.append(engine.start(waiting.pop(0), max_tokens=200))
            engine.step()
            if forgets:
                engine.forget_prefixes()
    assert [answer.tokens for answer in answers] == alone
    assert all(answer.stats and answer.stats.drafting_rounds > 2 for answer in answers)


def test_no_order_of_beginning_and_ending_changes_a_text(tiny: Tiny) -> None:
    """Of 80 such orders this one went wrong as long as ids that were never used left cells to others."""
    prompts = [prompt["messages"] for prompt in tiny.prompts[60:100]]
    options: dict[str, Any] = {"context": 512, "flash_attn": False, "threads": 2}
    draft = tiny.draft("bf16")
    random = Random(130)
    options["prefix_memory"] = 0 if random.random() < 0.5 else 2**29
    block = random.choice([8, 16])
    answers = []
    with dflash_gguf.load(tiny.target_f32, draft, sequences=12, block=block, **options) as engine:
        alone = [engine.generate(prompt, max_tokens=60, block=1).tokens for prompt in prompts]
    with dflash_gguf.load(tiny.target_f32, draft, sequences=12, block=block, **options) as engine:
        waiting = [random.randrange(len(prompts)) for _ in range(120)]
        while waiting or engine.busy:
            while waiting and engine.free and random.random() < 0.7:
                asked = waiting.pop()
                answer = engine.start(prompts[asked], max_tokens=random.choice([1, 1, 20, 60]))
                answers.append((alone[asked], answer))
                if random.random() < 0.6:
                    engine.cancel(answer)
            if random.random() < 0.1:
                for _, answer in answers:
                    if answer.finish_reason is None and random.random() < 0.3:
                        answer.interrupt()
            if random.random() < 0.05:
                engine.forget_prefixes()
            engine.step()
    assert sum(len(answer.tokens) for _, answer in answers) > 500
    for expected, answer in answers:
        assert answer.tokens == expected[: len(answer.tokens)]
