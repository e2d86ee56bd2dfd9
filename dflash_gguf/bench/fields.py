"""Dataclasses from plain values, such as JSON's, with every field's type checked."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Misfit(ValueError):
    """A value is not what a field holds; the text says which and what was expected."""


def filled(kind: type[T], values: Any) -> T:
    """Return a dataclass with these fields; lists become tuples. Fields left out take their defaults.

    Raises Misfit for values that are no dict, for fields that are missing or unknown, and for values of another
    type; numbers must be finite.
    """
    if not isinstance(values, dict):
        text = f"it is {type(values).__name__}, expected an object"
        raise Misfit(text)
    hints = get_type_hints(kind)
    known = fields(kind)  # type: ignore[arg-type]
    unknown = [str(key) for key in values if key not in hints]
    needed = [f.name for f in known if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in values]
    if unknown or missing:
        text = f"missing fields: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}"
        raise Misfit(text)
    return kind(**{name: _value(hints[name], value, name) for name, value in values.items()})


def _value(hint: Any, value: Any, name: str) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        return filled(hint, value)
    if origin in {Union, UnionType}:
        return _one_of(parts, value, name)
    if hint is float and type(value) in {int, float} and math.isfinite(value):
        return float(value)
    if origin is Literal:
        good = value in parts
    elif origin is tuple and isinstance(value, list | tuple):
        return tuple(_value(parts[0], part, name) for part in value)
    elif origin is dict and isinstance(value, dict):
        return {
            _value(parts[0], key, name): _value(parts[1], part, name) for key, part in value.items()
        }
    else:
        good = type(value) is hint and hint is not float
    if not good:
        text = f"'{name}' is {value!r:.60}, expected {getattr(hint, '__name__', hint)}"
        raise Misfit(text)
    return value


def _one_of(parts: tuple[Any, ...], value: Any, name: str) -> Any:
    for part in parts:
        try:
            return _value(part, value, name)
        except Misfit:
            continue
    text = (
        f"'{name}' is {value!r:.60}, expected {' or '.join(str(part.__name__) for part in parts)}"
    )
    raise Misfit(text)
