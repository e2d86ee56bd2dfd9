"""Accept figures of other engines, from what came with an answer or from their /metrics. What is not told stays None.

llama-server's `timings` count tokens: `predicted_n` = 1 (the prompt gives it) + `draft_n_accepted` + target decodes. It
counts accepted tokens behind an end token too, and then the number of decodes does not follow; unless every block is
known to have been of one length, when it is `draft_n` divided by that. SGLang counts verifications itself
(`spec_verify_ct`). vLLM does so in /metrics only, of all requests together: of a cell, the difference counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from .records import Counts

_SAMPLE = re.compile(r"^(?:vllm|llamacpp):spec_decode_num_(\w+?)(?:_total)?(?:\{(.*)\})? (\S+)")
_POSITION = re.compile(r'\bposition="(\d+)"')


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one answer; each as in Turn."""

    rounds: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    accepted_at: tuple[int, ...] = ()
    prefill_seconds: float | None = None
    decode_seconds: float | None = None


def figures(told: Mapping[str, Any], finish_reason: str, steps: int | None = None) -> Figures:
    """Read what came with an answer.

    Args:
        told: its `timings`, `meta_info`, `speculative`, where they came.
        finish_reason: of the answer; only "length" tells that no token was cut off behind the end.
        steps: tokens in each draft, if the engine was told to draft so many and never fewer.
    """
    timings = _section(told, "timings")
    prefill, decode = (_seconds(timings, name) for name in ("prompt_ms", "predicted_ms"))
    rounds, drafted, accepted, accepted_at = (
        _of_speculative(_section(told, "speculative") or _section(timings, "speculative"))
        or _of_meta_info(_section(told, "meta_info"))
        or _of_timings(timings, finish_reason, steps)
        or (None, None, None, ())
    )
    return Figures(rounds, drafted, accepted, accepted_at, prefill, decode)


def counts_between(before: str | None, after: str | None) -> Counts | None:
    """Return what was counted between two readings of /metrics.

    None: there is nothing to read, there are no such counters, or they began anew in between.
    """
    if before is None or after is None:
        return None
    old, new = _counters(before), _counters(after)
    grown = {key: value - old.get(key, 0) for key, value in new.items()}
    names = ("drafts", "draft_tokens", "accepted_tokens")
    if any((name, None) not in grown for name in names) or min(grown.values()) < 0:
        return None
    rounds, drafted, accepted = (grown[name, None] for name in names)
    at = {place: count for (_, place), count in grown.items() if place is not None}
    places = range(max(at, default=-1) + 1)
    return Counts(rounds, drafted, accepted, tuple(at.get(place, 0) for place in places))


_Told = tuple[int | None, int | None, int | None, tuple[int, ...]]


def _of_speculative(section: Mapping[str, Any]) -> _Told | None:
    """Our own section: every count as Stats has it."""
    rounds, drafted, accepted = (_count(section, name) for name in ("steps", "drafted", "accepted"))
    if rounds is None:
        return None
    at = section.get("accepted_per_position")
    return rounds, drafted, accepted, _counts(at)


def _of_meta_info(section: Mapping[str, Any]) -> _Told | None:
    """SGLang's. Its histogram counts verifications by how many tokens they accepted."""
    rounds = _count(section, "spec_verify_ct")
    if rounds is None:
        return None
    accepted = _count(section, "spec_accept_token_num")
    histogram = _counts(section.get("spec_accept_histogram"))
    reached = tuple(accumulate(reversed(histogram)))[::-1][1:]
    # other versions may count otherwise: only where the sums agree
    agrees = sum(reached) == accepted and sum(histogram) == rounds
    return rounds, _count(section, "spec_draft_token_num"), accepted, reached if agrees else ()


def _of_timings(section: Mapping[str, Any], finish_reason: str, steps: int | None) -> _Told | None:
    count = _count(section, "predicted_n")
    if count is None:
        return None
    drafted = _count(section, "draft_n") or 0  # told only where there are any
    accepted = _count(section, "draft_n_accepted") or 0
    least = max(count - 1 - accepted, 0)
    if finish_reason == "length" or drafted == 0:
        return least, drafted, accepted, ()
    if not steps or drafted % steps or not least <= drafted // steps <= least + steps:
        return None, drafted, None, ()
    rounds = drafted // steps
    return rounds, drafted, min(accepted, count - rounds), ()


def _counters(text: str) -> dict[tuple[str, int | None], int]:
    """Speculation's counters by name and position, summed over engines and models."""
    sums: dict[tuple[str, int | None], int] = {}
    for name, labels, value in _samples(text):
        found = _POSITION.search(labels)
        key = (name, int(found[1]) if found is not None else None)
        sums[key] = sums.get(key, 0) + round(value)
    return sums


def _samples(text: str) -> Iterator[tuple[str, str, float]]:
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found is not None and not found[1].endswith("_created"):
            try:
                yield found[1], found[2] or "", float(found[3])
            except ValueError:
                continue


def _section(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = told.get(name)
    return found if isinstance(found, dict) else {}


def _count(section: Mapping[str, Any], name: str) -> int | None:
    found = section.get(name)
    whole = isinstance(found, int | float) and not isinstance(found, bool) and found == int(found)
    return int(found) if whole and found is not None and found >= 0 else None


def _counts(found: Any) -> tuple[int, ...]:
    if not isinstance(found, list) or not all(isinstance(count, int) for count in found):
        return ()
    return tuple(found)


def _seconds(section: Mapping[str, Any], name: str) -> float | None:
    found = section.get(name)
    return found / 1000 if isinstance(found, int | float) and found >= 0 else None
