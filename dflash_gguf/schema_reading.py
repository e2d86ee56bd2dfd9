"""What a JSON schema says, before it is a grammar: its references, allOf, and the values of its keywords.

Everything here raises UsageError, naming the place, for a schema that is broken or asks for what a grammar cannot keep
to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import unquote

from .errors import UsageError

_ANNOTATIONS = {
    *(
        "$schema",
        "$id",
        "$anchor",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
    ),
    *("examples", "example", "deprecated", "readOnly", "writeOnly", "format", "contentEncoding"),
    *("contentMediaType", "discriminator", "strict"),
}


def refuse(place: str, problem: str) -> NoReturn:
    """Raise UsageError for what stands at a place of the schema."""
    text = f"the JSON schema, at {place}: {problem}"
    raise UsageError(text)


def check(schema: Mapping[str, Any], known: set[str], place: str) -> None:
    """Refuse keywords that are neither `known` nor annotations."""
    for key in schema:
        if key not in known and key not in _ANNOTATIONS:
            with_what = (
                f" beside {', '.join(sorted(known & set(schema)))}" if known & set(schema) else ""
            )
            refuse(place, f"'{key}'{with_what} cannot be kept to; leave it out or write a grammar")


def listed(schema: Mapping[str, Any], name: str, place: str) -> list[Any]:
    """Return the list that a keyword holds."""
    value = schema[name]
    if not isinstance(value, list) or not value:
        refuse(place, f"'{name}' is {value!r}; expected a list with something in it")
    return value


def whole(schema: Mapping[str, Any], name: str, place: str) -> int | None:
    """Return the whole number that a keyword holds, None without it."""
    value = schema.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        refuse(place, f"{name} is {value!r}; expected a whole number")
    return value


def counts(schema: Mapping[str, Any], what: str, place: str) -> tuple[int, int | None]:
    """Return the least and the most that min<what> and max<what> allow."""
    least = whole(schema, f"min{what}", place) or 0
    most = whole(schema, f"max{what}", place)
    if least < 0 or (most is not None and most < least):
        refuse(place, f"min{what} is {least} and max{what} {most}; nothing is like that")
    return least, most


def find(root: Any, ref: Any, place: str) -> Any:
    """Return the schema that a $ref leads to."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        refuse(place, f"$ref is {ref!r}; expected one within the schema, such as #/$defs/name")
    target = root
    for part in [unquote(p).replace("~1", "/").replace("~0", "~") for p in ref.split("/")[1:]]:
        if isinstance(target, list) and part.isdecimal() and int(part) < len(target):
            target = target[int(part)]
        elif isinstance(target, Mapping) and part in target:
            target = target[part]
        else:
            refuse(place, f"$ref {ref} leads nowhere: there is no {part!r}")
    return target


def merged(root: Any, schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return one schema for allOf, of objects or where no keyword stands twice; `root` is what its $ref are of."""
    found: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for i, part in enumerate(listed(schema, "allOf", place)):
        seen = set()
        while isinstance(part, Mapping) and set(part) - _ANNOTATIONS == {"$ref"}:
            ref = part["$ref"]
            part = find(root, ref, f"{place}/allOf/{i}")  # noqa: PLW2901
            if ref in seen:
                refuse(place, f"$ref {ref} leads back to itself")
            seen.add(ref)
        if not isinstance(part, Mapping):
            refuse(f"{place}/allOf/{i}", "expected a schema with keywords")
        given = merged(root, part, f"{place}/allOf/{i}") if "allOf" in part else part
        for key, value in given.items():
            if key in _ANNOTATIONS or key not in found or found[key] == value:
                found[key] = value
            elif key == "properties":
                for name in set(found[key]) & set(value):
                    if found[key][name] != value[name]:
                        refuse(place, f"allOf gives property '{name}' two schemas")
                found[key] = {**found[key], **value}
            elif key == "required":
                found[key] = [*found[key], *value]
            else:
                refuse(place, f"allOf gives '{key}' twice; a grammar cannot keep to both")
    return found


def has_type(value: Any, name: object) -> bool:
    """Whether a value is of a type that "type" names."""
    if isinstance(value, bool) or value is None:
        return name == ("null" if value is None else "boolean")
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return name in {"integer", "number"}
    kinds: dict[type, str] = {float: "number", str: "string", list: "array", dict: "object"}
    return name == kinds.get(type(value))


def same(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal; 1 is not true."""
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)
