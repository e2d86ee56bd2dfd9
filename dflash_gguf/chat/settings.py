"""What can be set while a chat goes on: names and values as on the command line."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import UsageError
from ..params import AUTO, Params
from ..sampling import Sampling

# as `run` spells them, without dashes -> as Sampling does
SAMPLING = {
    "temp": "temperature",
    "top-k": "top_k",
    "top-p": "top_p",
    "min-p": "min_p",
    "typical": "typical",
    "repeat-penalty": "repeat_penalty",
    "presence-penalty": "presence_penalty",
    "frequency-penalty": "frequency_penalty",
    "repeat-last-n": "repeat_last_n",
    "seed": "seed",
    "draft-sampling": "draft_sampling",
}
_WHOLE = {"top-k", "repeat-last-n", "seed"}
_HIDDEN = {"seed"}  # told below each answer
NAMES = (*SAMPLING, "max-tokens", "block", "stop")


def changed(params: Params, name: str, value: str) -> Params:
    """Return `params` with one setting changed.

    Args:
        params: as they are.
        name: one of NAMES, with underscores or dashes before it or not.
        value: as typed; for seed and max-tokens -1 is "any" and "no limit", for stop "" is "none".

    Raises UsageError, naming what was expected, for an unknown name or a value that makes no sense.
    """
    plain = name.lstrip("-").replace("_", "-")
    if plain not in NAMES:
        text = f"no setting is called {name!r}; expected {_nearest(plain)}"
        raise UsageError(text)
    if plain in SAMPLING:
        return replace(params, sampling=_sampling(params, plain, value))
    if plain == "max-tokens":
        tokens = _number(plain, value, int)
        if tokens < -1:
            text = f"max-tokens {tokens}: expected a number of tokens, or -1 for no limit"
            raise UsageError(text)
        return replace(params, max_tokens=None if tokens < 0 else tokens)
    if plain == "stop":
        return replace(params, stop=[value] if value else None)
    return replace(params, block=value if value == AUTO else _number(plain, value, int))


def in_force(params: Params, origins: Mapping[str, str]) -> str:
    """Return in a line how tokens are chosen, and who says so; what is off and what nobody has set is left out."""
    sampling = params.sampling or Sampling()
    groups: dict[str, list[str]] = {}
    for name, field in SAMPLING.items():
        if (origin := origins.get(name, "")) and name not in _HIDDEN:
            groups.setdefault(origin, []).append(f"{name} {_shown(getattr(sampling, field))}")
    parts = [f"{', '.join(settings)} ({origin})" for origin, settings in groups.items()]
    if sampling.greedy:
        greedy = "the most likely token" if "temp" in origins else "the most likely token (default)"
        parts.insert(0, greedy)
    return "sampling " + " · ".join(parts)


def listed(params: Params) -> list[tuple[str, str]]:
    """Return names and values of all settings."""
    sampling = params.sampling or Sampling()
    shown = {name: _shown(getattr(sampling, field)) for name, field in SAMPLING.items()}
    shown["max-tokens"] = _shown(-1 if params.max_tokens is None else params.max_tokens)
    shown["block"] = _shown("the engine's" if params.block is None else params.block)
    shown["stop"] = ", ".join(map(repr, stop_list(params))) or "none"
    return list(shown.items())


def stop_list(params: Params) -> list[str]:
    """Return the texts that end an answer."""
    return [params.stop] if isinstance(params.stop, str) else list(params.stop or ())


def _sampling(params: Params, name: str, value: str) -> Sampling:
    before = params.sampling or Sampling()
    if name == "draft-sampling":
        return replace(before, draft_sampling=value)
    kind: Callable[[str], Any] = int if name in _WHOLE else float
    number = _number(name, value, kind)
    if name == "seed" and number == -1:
        number = None
    return replace(before, **{SAMPLING[name]: number})


def _number(name: str, value: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(value)
    except ValueError:
        expected = "a whole number" if kind is int else "a number"
        text = f"{name} {value[:40]}: expected {expected}"
        raise UsageError(text) from None


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, NAMES, 1)
    return f"perhaps {close[0]}" if close else "one of " + ", ".join(NAMES)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
