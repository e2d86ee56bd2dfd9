"""One answer as a document, for programs: the keys of OpenAI's and of llama-server's answers where they have one."""

from __future__ import annotations

from typing import Any

from ..engine import Engine
from ..openai_choices import figures
from ..params import Params
from ..sampling import Sampling
from ..stats import Stats
from .answering import Answer
from .settings import SAMPLING


def document(engine: Engine, params: Params, came: Answer) -> dict[str, Any]:
    """Return an answer as a dictionary that JSON can hold.

    model, text, reasoning, finish_reason, seed (None if nothing is random), sampling (how tokens were chosen), usage and speculative as in
    `create_chat_completion`, timings as in llama-server, simulated if the drafts were.
    """
    sampling, stats = params.sampling, came.sequence.stats
    random = sampling is not None and not sampling.greedy
    made: dict[str, Any] = {
        "model": engine.name,
        "text": came.said.content,
        "reasoning": came.said.reasoning,
        "finish_reason": came.sequence.finish_reason,
        "seed": sampling.seed if sampling is not None and random else None,
        "sampling": _settings(sampling or Sampling()),
        **figures(came.sequence),
    }
    if stats is not None:
        made["timings"] = timings(stats)
        made["simulated"] = stats.simulated
    return made


def _settings(sampling: Sampling) -> dict[str, Any]:
    return {field: getattr(sampling, field) for field in SAMPLING.values() if field != "seed"}


def timings(stats: Stats) -> dict[str, float | int | None]:
    """Return times as llama-server names them: counts, milliseconds, and tokens per second.

    `predicted_*` leave out the token that the prompt itself gives, which is counted in its time. A rate that
    nothing was measured for is None.
    """
    read, written = stats.prompt_tokens - stats.reused_tokens, stats.emitted - 1
    prompt, predicted = 1e3 * stats.prefill_seconds, 1e3 * stats.decode_seconds
    made: dict[str, float | int | None] = {
        "cache_n": stats.reused_tokens,
        "prompt_n": read,
        "prompt_ms": prompt,
        "prompt_per_token_ms": prompt / read if read else None,
        "prompt_per_second": stats.prompt_tokens_per_second,
        "predicted_n": written,
        "predicted_ms": predicted,
        "predicted_per_token_ms": predicted / written if written else None,
        "predicted_per_second": stats.tokens_per_second,
    }
    if stats.drafted:
        made |= {"draft_n": stats.drafted, "draft_n_accepted": stats.accepted}
    return made
