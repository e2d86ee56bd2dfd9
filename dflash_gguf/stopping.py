"""Strings that end an answer, checked. They are found in cpp_ext/stop_strings.cpp."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from .errors import UsageError

Stop: TypeAlias = str | Iterable[str] | None


def stop_strings(stop: Stop) -> list[str]:
    """Return the stop strings of a request, each once.

    Raises UsageError if one is no string, is empty or holds half of a character.
    """
    if stop is None:
        return []
    if isinstance(stop, bytes) or not isinstance(stop, Iterable):
        text = f"stop is {type(stop).__name__}; expected a string or several"
        raise UsageError(text)
    strings = [stop] if isinstance(stop, str) else list(stop)
    for string in strings:
        if not isinstance(string, str) or not string:
            text = f"stop has {string!r}; expected a string with at least one character"
            raise UsageError(text)
        try:
            string.encode()
        except UnicodeEncodeError:
            text = f"stop has {string!r}, which holds half of a character; leave it out"
            raise UsageError(text) from None
    return list(dict.fromkeys(strings))
