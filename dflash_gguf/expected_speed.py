"""How fast a way of verifying should be: a guess, good enough to rank ways before anything has been measured."""

from __future__ import annotations

from functools import cache

# _SURVIVAL: chance that a drafted token and all before it are accepted (Qwen3.5-27B on GSM8K, z-lab/dflash issue 52);
# _BEYOND: that much less for each token beyond the curve
_SURVIVAL = (
    *(0.904, 0.800, 0.729, 0.639, 0.539, 0.475, 0.400, 0.361),
    *(0.336, 0.304, 0.282, 0.275, 0.246, 0.211, 0.171),
)
_BEYOND = 0.85
_ROW = 0.14  # a row more of a verify, in verifies of one row
_DRAFT = 0.25  # a draft, likewise


def expected_speed(block: int, *, replay: bool) -> float:
    """Guess tokens per time of verifies of up to `block` rows, relative to plain decoding.

    The width of at most `block` rows that pays most counts: the engine may always use less.
    """
    return max(_speed(width, replay) for width in range(1, block + 1))


@cache
def _speed(width: int, replay: bool) -> float:
    survival = [*_SURVIVAL]
    while len(survival) < width:
        survival.append(survival[-1] * _BEYOND)
    drafted = survival[: width - 1]
    cost = _verify(width) + (_DRAFT if drafted else 0)
    if replay:  # after k accepted tokens, k + 1 rows are decoded again, unless all were accepted
        chances = zip([1.0, *drafted], drafted, strict=False)
        cost += sum((reach - go) * _verify(k + 1) for k, (reach, go) in enumerate(chances))
    return (1 + sum(drafted)) / cost


def _verify(rows: int) -> float:
    return 1 + _ROW * (rows - 1)
