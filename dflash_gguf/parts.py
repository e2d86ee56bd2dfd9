"""What an engine is made of, opened by `load` and closed with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .prompt import Prompter

if TYPE_CHECKING:
    from . import _core
    from .calibration import Notebook
    from .prefix_file import Origin


@dataclass(slots=True)
class Parts:
    """The opened pieces of an engine: `drafter` None and `block` 1 without a draft model.

    `block`: of requests that ask for none. `sequences`: answers that the contexts have room for at the same
    time. `simulated`: see simulation.py. `notebook`: where what is learnt of the pair is kept; None if widths
    are not chosen by the engine.
    """

    model: _core.Model
    target: _core.Target
    drafter: _core.Drafter | None
    block: int | str
    session: _core.Session
    sequences: int
    simulated: bool = False
    origin: Origin | None = None  # which files and what contexts, for saved prefixes
    notebook: Notebook | None = None
    prompter: Prompter = field(init=False)

    def __post_init__(self) -> None:
        self.prompter = Prompter(self.model)
