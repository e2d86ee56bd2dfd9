"""Sampling that a target's file suggests, in the keys `general.sampling.*`.

The keys are those of llama.cpp's `llama_model_meta_key_str`; read as its tools read them (`common.cpp`,
`common_init_sampler_from_model`): numbers may be written as text, and what is no number is passed over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .errors import UsageError
from .sampling import Sampling

PREFIX = "general.sampling."
# fields of Sampling -> their keys
_KEYS = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_penalty": "penalty_repeat",
    "repeat_last_n": "penalty_last_n",
}
_WHOLE = {"top_k", "repeat_last_n"}
_OFF_BELOW = {"temperature", "top_k", "min_p"}  # what is not above 0 turns them off in llama.cpp
_NOT_HERE = ("xtc_probability", "mirostat")
_ORDER = ("penalties", "top_k", "typ_p", "top_p", "min_p", "temperature")


@dataclass(frozen=True, slots=True)
class Suggested:
    """What a file says.

    Attributes:
        values: fields of Sampling.
        notes: what it says besides and is not followed, a line each.
    """

    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_suggested(meta: Callable[[str], str | None]) -> Suggested:
    """Read a file's suggestions; `meta` returns the text of a key, None if there is no such key."""
    found = Suggested()
    for name, key in _KEYS.items():
        number = _number(meta(PREFIX + key))
        if number is None:
            continue
        if name in _OFF_BELOW:
            number = max(number, 0.0)
        value: dict[str, Any] = {name: int(number) if name in _WHOLE else number}
        try:
            Sampling(**value)
        except UsageError as error:
            found.notes.append(f"{PREFIX}{key} of the target's file is not followed: {error}")
        else:
            found.values.update(value)
    for key in _NOT_HERE:
        if number := _number(meta(PREFIX + key)):
            found.notes.append(
                f"{PREFIX}{key} = {number:g} of the target's file is not followed: there is no such sampling here"
            )
    order = [name for name in (meta(PREFIX + "sequence") or "").split(";") if name in _ORDER]
    if order != sorted(order, key=_ORDER.index):
        found.notes.append(
            f"{PREFIX}sequence of the target's file is not followed: the order here is {', '.join(_ORDER)}"
        )
    return found


def _number(text: str | None) -> float | None:
    """The number that a text begins with, as strtof reads it."""
    parts = re.match(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text or "")
    number = float(parts[0]) if parts else math.nan
    return number if math.isfinite(number) else None
