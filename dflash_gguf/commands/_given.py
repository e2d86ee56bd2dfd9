"""Where the value of an option comes from: the command line, the environment, a person's file, or nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import typer

from ..errors import UsageError

_RANKS = {"COMMANDLINE": 3, "PROMPT": 3, "ENVIRONMENT": 2, "DEFAULT_MAP": 1}


@dataclass(frozen=True, slots=True)
class Given:
    """The options of one call of a command, by their parameters' names."""

    context: typer.Context

    def rank(self, name: str) -> int:
        """How much a value counts: 3 of the command line, 2 of the environment, 1 of the file, 0 of nobody."""
        source = self.context.get_parameter_source(name)
        return _RANKS.get(source.name, 0) if source else 0

    def origin(self, name: str) -> str:
        """Return where a value comes from, in words; empty for a default."""
        option = self._option(name)
        words: dict[int, str] = {3: option.opts[0], 2: str(option.envvar), 1: "config.toml"}
        return words.get(self.rank(name), "")

    def first(self, *names: str) -> str | None:
        """Return which of several options that mean the same counts: the one that ranks first, None if none is given.

        Raises UsageError, naming them, if two rank alike.
        """
        ranked = sorted(((self.rank(name), name) for name in names), reverse=True)
        best = [name for rank, name in ranked if rank and rank == ranked[0][0]]
        if len(best) > 1:
            spelt = " and ".join(self._option(name).opts[0] for name in names if name in best)
            text = f"{spelt} are given; expected one of them"
            raise UsageError(text)
        return best[0] if best else None

    def _option(self, name: str) -> Any:
        return next(each for each in self.context.command.params if each.name == name)
