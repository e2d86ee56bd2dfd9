"""Typed access to a raw config.json whose values may stand at the top or under dflash_config."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

from .faults import refuse

MAX_COUNT = 1 << 31
_LEAST = 1e-37  # smaller ones lose digits in f32, or become 0


class Keys:
    """The keys of a drafter's config. A null counts as absent, as it does for every reader of these files.

    Every method raises ConvertError, naming key, value and what was expected.
    """

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.where = where
        self.warnings: list[str] = []
        self._top = config
        nested = config.get("dflash_config") or {}
        if not isinstance(nested, dict):
            self.fail("dflash_config", nested, "an object")
        self._nested: Mapping[str, Any] = nested

    def top(self, key: str) -> Any:
        """Return the value of a top-level key, None if absent."""
        return self._top.get(key)

    def nested(self, key: str) -> Any:
        """Return the value of a key under dflash_config, None if absent."""
        return self._nested.get(key)

    def either(self, key: str) -> Any:
        """Return the value under dflash_config, else at the top, else None."""
        inner, outer = self._nested.get(key), self._top.get(key)
        if inner is not None and outer is not None and inner != outer:
            self.warnings.append(
                f"{key} is {inner!r} under dflash_config and {outer!r} at the top; taking {inner!r}"
            )
        return outer if inner is None else inner

    def count(self, key: str, value: Any, *, least: int = 1, limit: int = MAX_COUNT) -> int:
        """Check that `value` of `key` is an integer from `least` to below `limit`."""
        if value is None:
            self.missing(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < limit:
            self.fail(key, value, f"an integer from {least} to {limit - 1}")
        return value

    def number(self, key: str, value: Any, *, positive: bool = True) -> float:
        """Check that `value` of `key` is a finite number that f32 can hold."""
        if value is None:
            self.missing(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(key, value, "a number")
        # the bound first: an integer may be too large to be a float at all
        if abs(value) > 3e38 or not math.isfinite(value) or (positive and value < _LEAST):
            self.fail(key, value, "a finite number" + (" above 0" if positive else ""))
        return float(value)

    def flag(self, key: str, value: Any) -> bool | None:
        """Check that `value` of `key` is true, false or absent."""
        if value is not None and not isinstance(value, bool):
            self.fail(key, value, "true or false")
        return value

    def missing(self, key: str) -> NoReturn:
        """Raise the error for a key that must be there."""
        refuse(
            f"{self.where}: {key} is missing; expected it there or under dflash_config: "
            "take config.json from the drafter's own repository"
        )

    def fail(self, key: str, value: Any, expected: str) -> NoReturn:
        """Raise the error for a value that cannot be."""
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        refuse(f"{self.where}: {key} is {shown}; expected {expected}")
