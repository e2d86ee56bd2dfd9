"""Figures of answers in lines, as /stats shows them."""

from __future__ import annotations

from collections.abc import Sequence

from ..stats import Stats


def answer_table(stats: Stats) -> list[str]:
    """Return lines about one answer."""
    lines = [f"last answer: {stats.line()}"]
    first = stats.prefill_seconds
    lines.append(
        f"prompt: {stats.prompt_tokens:,} tokens, {stats.reused_tokens:,} reused, {first:.2f} s"
    )
    if stats.drafting_rounds:
        lines += [
            f"rounds: {stats.rounds:,}, with a draft {stats.drafting_rounds:,}",
            f"drafted {stats.drafted:,}, accepted {stats.accepted:,}",
            "accepted by position: " + " ".join(_rates(stats)),
        ]
    return lines


def chat_table(all_stats: Sequence[Stats]) -> list[str]:
    """Return lines about all answers of a chat."""
    emitted = sum(each.emitted for each in all_stats)
    decode = sum(each.decode_seconds for each in all_stats)
    after_first = emitted - len(all_stats)
    drafting = sum(each.drafting_rounds for each in all_stats)
    accepted = sum(each.accepted for each in all_stats)
    parts = [f"{len(all_stats)} answers", f"{emitted:,} tok"]
    if decode > 0:
        parts.append(f"{after_first / decode:,.1f} tok/s")
    if drafting:
        parts.append(f"accept {1 + accepted / drafting:.1f}")
    return ["chat: " + " · ".join(parts)]


def _rates(stats: Stats) -> list[str]:
    pairs = zip(stats.accepted_at, stats.drafted_at, strict=True)
    return [f"{accepted / drafted:.2f}" for accepted, drafted in pairs if drafted]
