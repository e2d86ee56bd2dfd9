"""Answers at the same time whose sequences end, leave gaps and begin: each is as if it were alone.

llama.cpp cuts a decode of sequences whose ids have gaps into several, and where recurrent states lie apart from the
order of ids it moves them in between, without the snapshots that a rejected draft is undone with.
"""

from __future__ import annotations

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
