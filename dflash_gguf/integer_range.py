"""Whole numbers from one to another, as GBNF."""

from __future__ import annotations

_MOST_DIGITS = 16


def between(low: int | None, high: int | None) -> str:
    """Return an expression for the whole numbers from `low` to `high`, both included; None: no bound.

    Numbers without a bound on their side have at most 16 digits.
    """
    if low is not None and high is not None and low > high:
        text = f"no whole number is at least {low} and at most {high}"
        raise ValueError(text)
    parts = []
    if low is None or low < 0:
        nearest = 1 if high is None or high >= 0 else -high
        parts.append(f'"-" ({_positive(nearest, None if low is None else -low)})')
    if (low is None or low <= 0) and (high is None or high >= 0):
        parts.append('"0"')
    if high is None or high > 0:
        parts.append(_positive(max(1, low or 1), high))
    return " | ".join(parts)


def _positive(low: int, high: int | None) -> str:
    """From low, at least 1, on: number of digits by number of digits."""
    parts = []
    longest = len(str(high)) if high is not None else max(_MOST_DIGITS, len(str(low)) + 1)
    for digits in range(len(str(low)), longest + 1):
        first, last = 10 ** (digits - 1), 10**digits - 1
        start, end = max(low, first), last if high is None else min(high, last)
        if (start, end) == (first, last) and high is None and digits < longest:
            parts.append(f"[1-9] [0-9]{{{digits - 1},{longest - 1}}}")
            break
        parts.append(_of_length(str(start), str(end)))
    return " | ".join(parts)


def _of_length(low: str, high: str) -> str:
    """Return digits from low to high, which are equally long."""
    if low == high:
        return f'"{low}"'
    same = next(i for i in range(len(low)) if low[i] != high[i])
    if same:
        return f'"{low[:same]}" ({_of_length(low[same:], high[same:])})'
    if len(low) == 1:
        return f"[{low}-{high}]"
    rest = len(low) - 1
    parts = []
    first, last = int(low[0]), int(high[0])
    if low[1:] != "0" * rest:
        parts.append(f'"{first}" ({_of_length(low[1:], "9" * rest)})')
        first += 1
    cut = high[1:] != "9" * rest
    if first <= last - cut:
        parts.append(f"[{first}-{last - cut}] [0-9]{{{rest}}}")
    if cut:
        parts.append(f'"{last}" ({_of_length("0" * rest, high[1:])})')
    return " | ".join(parts)
