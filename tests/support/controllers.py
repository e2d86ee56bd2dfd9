"""Controllers with made-up costs, about what the tiny pair costs."""

from __future__ import annotations

from typing import Any

from dflash_gguf._native import core

MS = 1e6
WIDEST = 16
# about what the tiny pair costs, in ms: width -> (draft, verify)
COSTS = {1: (0, 0.6), 2: (0.3, 1.2), 4: (0.4, 1.5), 8: (0.55, 2.2), 12: (0.7, 3.0), 16: (0.9, 3.6)}


def points(costs: dict[int, tuple[float, float]] = COSTS, sequences: int = 1) -> list[Any]:
    return [
        (sequences, width, draft * MS, verify * MS, 0.1 * MS, max(1, width // 2))
        for width, (draft, verify) in costs.items()
    ]


def controller(**options: Any) -> Any:
    return core().Controller(options.pop("points", points()), **{"widest": WIDEST, **options})


def play(made: Any, accepted: Any, *, rounds: int, sequences: int = 1) -> list[int]:
    """Let it decode: `accepted()` says how many drafts of a block would be right. Returns widths drafted."""
    widths = []
    for _ in range(rounds):
        order = made.order(sequences, WIDEST, False)
        if order.depth >= 0:
            made.saw_shift(order.depth, int(5 * MS))
        if order.probe:
            made.saw_probe_cost(int(0.5 * MS))
            right = min(accepted(), order.probe - 1)
            made.saw_probe([0.9] * (order.probe - 1), min(order.probe - 1, right + 1), right)
        costs = {
            width: (draft, verify) for width, draft, verify, _ in made.estimates(WIDEST, sequences)
        }
        draft, verify = costs[order.width]
        for _ in range(sequences if order.width > 1 else 0):
            right = min(accepted(), order.width - 1)
            made.saw_block([0.9] * (order.width - 1), order.width - 1, right)
        made.saw_round(
            sequences=sequences,
            drafted_width=order.width,
            width=order.width,
            draft=int(draft),
            verify=int(verify),
            total=int(draft + verify),
        )
        widths.append(order.width)
    return widths
