"""The figures of an answer, in the words of llama-server (timings), OpenAI (usage) and SGLang (meta_info)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..stats import Stats


def usage(answers: Sequence[Stats]) -> dict[str, Any]:
    """Return OpenAI's `usage`.

    Args:
        answers: the choices of one prompt, which counts once, as often as they were all read.
    """
    first = answers[0]
    written = sum(stats.emitted for stats in answers)
    return {
        "prompt_tokens": first.prompt_tokens,
        "completion_tokens": written,
        "total_tokens": first.prompt_tokens + written,
        "prompt_tokens_details": {"cached_tokens": first.reused_tokens},
    }


def added(usages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the `usage` of several prompts together."""
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    cached = sum(each["prompt_tokens_details"]["cached_tokens"] for each in usages)
    total: dict[str, Any] = {name: sum(each[name] for each in usages) for name in names}
    return total | {"prompt_tokens_details": {"cached_tokens": cached}}


def timings(stats: Stats) -> dict[str, Any]:
    """Return llama-server's eleven `timings`, and `speculative`, which is ours.

    As there, the first token counts as the prompt's in speeds, what no time was spent on has speed 0, and the two
    draft figures are left out where nothing was drafted.
    """
    read, steps = stats.prompt_tokens - stats.reused_tokens, max(stats.emitted - 1, 0)
    prompt_ms, predicted_ms = stats.prefill_seconds * 1e3, stats.decode_seconds * 1e3
    drafts = {"draft_n": stats.drafted, "draft_n_accepted": stats.accepted}
    return {
        "cache_n": stats.reused_tokens,
        "prompt_n": read,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": _over(prompt_ms, read),
        "prompt_per_second": _over(1e3 * read, prompt_ms),
        "predicted_n": stats.emitted,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": _over(predicted_ms, steps),
        "predicted_per_second": _over(1e3 * steps, predicted_ms),
        **(drafts if stats.drafted else {}),
        "speculative": speculative(stats),
    }


def speculative(stats: Stats) -> dict[str, Any]:
    """Return how drafts fared; null where nothing was drafted."""
    return {
        "steps": stats.rounds,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "accept_length": stats.accept_length,
        "acceptance_rate": stats.acceptance_rate,
        "accepted_per_position": list(stats.accepted_at),
        "draft_failure": stats.draft_failure,
    }


def meta_info(stats: Stats, finish_reason: str | None) -> dict[str, Any]:
    """Return SGLang's `meta_info`, as far as it means something here.

    `spec_accept_length` is completion tokens by verifies, as there; it is left out if there was no verify.
    """
    length = stats.card_accept_length
    return {
        "finish_reason": {"type": finish_reason},
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.emitted,
        "cached_tokens": stats.reused_tokens,
        "spec_verify_ct": stats.rounds,
        "spec_accept_token_num": stats.accepted,
        "spec_draft_token_num": stats.drafted,
        **({} if length is None else {"spec_accept_length": length}),
    }


def _over(amount: float, parts: float) -> float:
    return amount / parts if parts > 0 else 0.0
