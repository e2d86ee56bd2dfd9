"""Built-in survival curves: for each drafted position, the chance that it and all before it are accepted.

One was published position by position (z-lab/dflash issue 52). The others are made of published accept lengths, those of
the model card of z-lab/Qwen3.5-9B-DFlash: a curve's accept length at each width is the card's, and between two of the
card's widths it falls by one factor from position to position, which is our assumption.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

GSM8K = "qwen3.5-27b-gsm8k"
MTP = "-mtp"
_CARD = "qwen3.5-9b-"

# the first 15 drafts of a block of 16, of Qwen3.5-27B's drafter on GSM8K
_PUBLISHED = (
    *(0.904, 0.800, 0.729, 0.639, 0.539, 0.475, 0.400, 0.361),
    *(0.336, 0.304, 0.282, 0.275, 0.246, 0.211, 0.171),
)

# Accept lengths at concurrency 1, greedy, thinking: by workload those of MTP's 3, 7 and 15 steps, then those of DFlash's
# blocks of 4, 8 and 16 rows (the joint retrain's card).
_LENGTHS = {
    "gsm8k": ((3.464, 5.276, 6.388), (3.452, 5.400, 6.949)),
    "math500": ((3.541, 5.466, 6.728), (3.555, 5.757, 7.721)),
    "humaneval": ((3.493, 5.326, 6.399), (3.571, 5.798, 7.927)),
    "mbpp": ((3.338, 4.790, 5.508), (3.454, 5.376, 6.820)),
    "mt-bench": ((3.229, 4.551, 5.438), (3.193, 4.606, 5.716)),
}
_ROWS = (4, 8, 16)
# of the first release's card, which has no others of this workload
_ALPACA = ((4.38, 5.03), (4.35, 5.10))
_ALPACA_ROWS = (8, 16)


def curve_of_lengths(rows: Sequence[int], lengths: Sequence[float]) -> tuple[float, ...]:
    """Return the curve with these accept lengths (1 + the sum of its first rows - 1 values).

    Args:
        rows: of a verify, the row of the last known token included; ascending from 2.
        lengths: tokens of such a verify on average.

    Raises ValueError if no curve that falls by one factor between two widths has them.
    """
    curve: list[float] = []
    widths = pairwise((1, *rows))
    gains = (after - before for before, after in pairwise((1.0, *lengths)))
    for (before, after), gain in zip(widths, gains, strict=True):
        start = curve[-1] if curve else 1.0
        factor = _factor(gain, start, after - before)
        curve += [start * factor**step for step in range(1, after - before + 1)]
    return tuple(curve)


def _factor(gain: float, start: float, count: int) -> float:
    """The factor whose first `count` powers, times `start`, add up to `gain`."""
    if not 0 <= gain <= start * count:
        text = f"accept lengths: {count} positions, {start:.3f} reached, cannot add {gain:.3f}"
        raise ValueError(text)
    total = gain / start if start else 0.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**step for step in range(1, count + 1)) < total:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _curves() -> dict[str, tuple[float, ...]]:
    curves: dict[str, tuple[float, ...]] = {GSM8K: _PUBLISHED}
    for workload, (mtp, dflash) in _LENGTHS.items():
        curves[f"{_CARD}{workload}"] = curve_of_lengths(_ROWS, dflash)
        curves[f"{_CARD}{workload}{MTP}"] = curve_of_lengths(_ROWS, mtp)
    for suffix, lengths in zip((MTP, ""), _ALPACA, strict=True):
        curves[f"{_CARD}alpaca{suffix}"] = curve_of_lengths(_ALPACA_ROWS, lengths)
    return curves


SURVIVAL: dict[str, tuple[float, ...]] = _curves()

# those that are not of MTP's steps
OF_DRAFTERS = {name: curve for name, curve in SURVIVAL.items() if not name.endswith(MTP)}
