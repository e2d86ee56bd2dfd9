"""Questions for arms, and made-up cells in which everything adds up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dflash_gguf.bench.records import ArmFacts, Ask, Cell, Question, Turn

ASK = Ask(max_tokens=24, think=False)
TALKS = (
    Question("made", 0, ("What is 12 + 30?",)),
    Question("made", 1, ("Name a river.", "And a longer one?")),
    Question("made", 2, ("A poem about rain, please.",), before=(("system", "Be brief."),)),
    Question("made", 3, ("Count.", "Backwards.", "Stop now.")),
)
AR = ArmFacts("ar", "ar", None, "dflash-gguf", {"template": "chat"})
FIXED = ArmFacts("dflash 4", "dflash", 4, "dflash-gguf", {"template": "chat"})
TEXT = "Rain falls on the quiet roofs while a grey cat counts the drops behind the window."


def made_turn(question: int = 0, turn: int = 0, *, start: float = 0.0, **changes: Any) -> Turn:
    """An answer of 10 tokens in 4 rounds of 3 drafts, 5 of them accepted, that took a second."""
    fields: dict[str, Any] = {
        "workload": "made",
        "question": question,
        "turn": turn,
        "prompt_tokens": 20,
        "completion_tokens": 10,
        "text": TEXT,
        "finish_reason": "stop",
        "start": start,
        "first": start + 0.25,
        "last": start + 1.0,
        "rounds": 4,
        "drafted": 12,
        "accepted": 5,
        "drafted_at": (4, 4, 4),
        "accepted_at": (3, 2, 0),
        "prefill_seconds": 0.2,
        "decode_seconds": 0.75,
    }
    return Turn(**{**fields, **changes})


def made_cell(arm: ArmFacts = FIXED, turns: Sequence[Turn] | None = None, **changes: Any) -> Cell:
    """Two such answers, one after the other, in 2 seconds."""
    chosen = tuple(turns) if turns is not None else (made_turn(0), made_turn(1, start=1.0))
    shares = {"prefill": 0.2 * len(chosen), "draft": 0.3, "verify": 0.9, "inject": 0.1}
    shares |= {"rollback": 0.05, "host": 2.0 - sum(shares.values()) - 0.05}
    fields: dict[str, Any] = {
        "arm": arm.name,
        "workload": "made",
        "concurrency": 1,
        "run": 1,
        "turns": chosen,
        "seconds": 2.0,
        "shares": shares,
    }
    return Cell(**{**fields, **changes})


def plain(turn: Turn) -> dict[str, Any]:
    """What of an answer is otherwise without a drafter: a verify for each token but the first."""
    return {
        "rounds": turn.completion_tokens - 1,
        "drafted": 0,
        "accepted": 0,
        "drafted_at": (),
        "accepted_at": (),
    }
