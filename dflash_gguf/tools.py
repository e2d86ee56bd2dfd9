"""Tools that a model may call: what is declared of them, and of which types their arguments are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from .errors import UsageError
from .schema_reading import find

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "pattern"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}
_DEEPEST = 16  # schemas inside schemas that are looked into for a type


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that a model may call.

    Attributes:
        name: what it is called by.
        parameters: JSON schema of its arguments, an object.
        declared: as it was given, for the chat template.
    """

    name: str
    parameters: Mapping[str, Any]
    declared: Mapping[str, Any]

    def types(self, argument: str) -> frozenset[str]:
        """Return the JSON types that an argument may have, all where the schema leaves it open.

        One that is not declared is a string, as in Qwen's own reader of its calls.
        """
        properties = self.parameters.get("properties")
        if not isinstance(properties, Mapping) or argument not in properties:
            return frozenset({"string"})
        try:
            return frozenset(_types(self.parameters, properties[argument], _DEEPEST))
        except TypeError:  # lists that are none
            return _TYPES


def declared_tools(tools: object) -> tuple[Tool, ...]:
    """Return the tools of OpenAI's `tools`.

    Raises UsageError, naming the place, for what is no function with a name and a schema of an object.
    """
    if tools is None:
        return ()
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        _refuse("tools", tools, "a list of functions")
    found = tuple(_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools))
    names = [tool.name for tool in found]
    for name in names:
        if names.count(name) > 1:
            text = f"tools has two functions named {name!r}; give each a name of its own"
            raise UsageError(text)
    return found


def _tool(tool: object, place: str) -> Tool:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(tool, Mapping) or tool.get("type", "function") != "function":
        _refuse(place, tool, 'a mapping with a type of "function"')
    if not isinstance(function, Mapping):
        _refuse(f"{place}.function", function, "a mapping with a name and parameters")
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        _refuse(f"{place}.function.name", name, "1 to 128 letters, digits, _, . and -")
    parameters = {} if parameters is None else parameters
    if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        _refuse(f"{place}.function.parameters", parameters, "the JSON schema of an object")
    return Tool(name, parameters, tool)


def _refuse(place: str, found: object, expected: str) -> NoReturn:
    text = f"{place} is {found!r}; expected {expected}"
    raise UsageError(text)


def _types(root: Mapping[str, Any], schema: object, depth: int) -> Iterable[str]:
    """The types that a schema names or that its values and keywords imply; all if it names none."""
    found: Iterable[str] = ()
    if not isinstance(schema, Mapping) or depth == 0:
        found = _TYPES
    elif "$ref" in schema:
        with suppress(UsageError):
            found = _types(root, find(root, schema["$ref"], "#"), depth - 1)
    elif "type" in schema:
        found = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    elif parts := schema.get("anyOf") or schema.get("oneOf"):
        found = {name for part in parts for name in _types(root, part, depth - 1)}
    elif "const" in schema or "enum" in schema:
        found = map(_type, schema.get("enum", [schema.get("const")]))
    else:
        found = {name for name, keys in _KEYWORDS.items() if keys & set(schema)}
    return _TYPES.intersection(name for name in found if isinstance(name, str)) or _TYPES


def _type(value: object) -> str:
    kinds = {bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
    return "null" if value is None else kinds.get(type(value), "object")
