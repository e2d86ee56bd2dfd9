"""Muon: momentum whose matrix updates are made orthogonal, with Adam for everything else.

For small models trained on little text it needs about half the steps of Adam. Matrices of
one shape are handled as one stack, which is what makes it cheap on a CPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

NARROW = 16  # matrices with fewer rows go to Adam


def orthogonal(x: Tensor, rounds: int = 5) -> Tensor:
    """Nearest orthogonal matrices, roughly, of a stack (n, rows, columns); Newton-Schulz."""
    x = x.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(rounds):
        square = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return (x.transpose(1, 2) if tall else x).float()


class Muon:
    """Optimizer over named parameters; matrices but tables and narrow ones get Muon."""

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        rate: float,
        *,
        adam_rate: float,
        momentum: float = 0.95,
        decay: float = 0.01,
    ) -> None:
        self.rate, self.momentum, self.decay = rate, momentum, decay
        stacks: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        others = []
        for name, parameter in parameters:
            table = "embed" in name or "lm_head" in name or min(parameter.shape) < NARROW
            if parameter.ndim == 2 and not table:
                stacks[parameter.shape].append(parameter)
            else:
                others.append(parameter)
        self.stacks = list(stacks.values())
        self.moments = [torch.zeros(len(s), *s[0].shape) for s in self.stacks]
        self.adam = torch.optim.AdamW(others, lr=adam_rate, betas=(0.9, 0.98), weight_decay=0.0)
        self.adam_rate = adam_rate

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """One update from the gradients, with both rates times `scale`."""
        for stack, moment in zip(self.stacks, self.moments, strict=True):
            gradient = torch.stack([p.grad for p in stack])
            moment.lerp_(gradient, 1 - self.momentum)
            update = orthogonal(gradient.lerp(moment, self.momentum))
            rate = self.rate * scale * max(1.0, moment.shape[1] / moment.shape[2]) ** 0.5
            for parameter, change in zip(stack, update, strict=True):
                parameter.mul_(1 - self.rate * scale * self.decay).sub_(change, alpha=rate)
        for group in self.adam.param_groups:
            group["lr"] = self.adam_rate * scale
        self.adam.step()

    def state(self) -> dict[str, object]:
        """What a later run needs to go on."""
        return {"moments": self.moments, "adam": self.adam.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from a saved state."""
        self.moments = list(state["moments"])
        self.adam.load_state_dict(state["adam"])
