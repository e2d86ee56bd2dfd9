"""Acceptance drawn from a survival curve, for timing pairs whose weights mean nothing.

The drafter does all of its work; how many of its tokens count is drawn. The text is then nobody's, so everything that
comes of it is marked as simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ._native import core
from .errors import UsageError
from .survival_curves import GSM8K, MTP, SURVIVAL

if TYPE_CHECKING:
    from . import _core


@dataclass(frozen=True, slots=True)
class Simulation:
    """How many drafted tokens are accepted, whatever the target would choose.

    Attributes:
        survival: name of a curve in SURVIVAL, or one's own: for each drafted position, the probability that it
            and all before it are accepted. Positions beyond its end never are.
        seed: of the draws, from 0; they go on from request to request.
    """

    survival: str | Sequence[float] = GSM8K
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown name, values that are no survival curve, or a seed that cannot be."""
        curve = self.curve()
        falls = all(later <= earlier for earlier, later in pairwise((1.0, *curve)))
        if not curve or not falls or not all(value >= 0 for value in curve):
            text = (
                f"the survival curve is {list(curve)}; expected one value or more, from 1 to 0, that do not "
                "increase"
            )
            raise UsageError(text)
        if not 0 <= self.seed < 1 << 64:
            text = f"the simulation's seed is {self.seed}; expected 0 to 2^64 - 1"
            raise UsageError(text)

    def curve(self) -> tuple[float, ...]:
        """Return the probabilities, one for each drafted position."""
        if not isinstance(self.survival, str):
            try:
                return tuple(float(value) for value in self.survival)
            except (TypeError, ValueError):
                text = f"the survival curve is {self.survival!r}; expected a name or numbers"
                raise UsageError(text) from None
        if self.survival not in SURVIVAL:
            text = f"there is no survival curve '{self.survival}'; expected one of {', '.join(SURVIVAL)}"
            raise UsageError(text)
        return SURVIVAL[self.survival]

    def of_mtp(self) -> Simulation:
        """Return what MTP's steps draw from beside this: the curve of the same source, else this one."""
        name = f"{self.survival}{MTP}" if isinstance(self.survival, str) else ""
        return replace(self, survival=name) if name in SURVIVAL else self

    @property
    def label(self) -> str:
        """The curve's name, or its values."""
        if isinstance(self.survival, str):
            return self.survival
        return ",".join(f"{value:g}" for value in self.survival)

    def around(self, drafter: _core.Drafter) -> _core.Drafter:
        """Return a drafter that does the work of this one."""
        simulated: _core.Drafter = core().SimulatedDrafter(self.curve(), self.seed, drafter)
        return simulated
