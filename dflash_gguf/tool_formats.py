"""The forms in which models write calls of tools, and which of them a chat template speaks.

Both stand between <tool_call> and </tool_call>:

- Hermes' (Qwen2.5, Qwen3): {"name": "add", "arguments": {"a": 1}}
- Qwen3-Coder's and Qwen3.5's: <function=add>, for each argument <parameter=a>, its value and </parameter>, </function>,
  each on a line of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, NoReturn, Protocol, TypeAlias

from .errors import DflashError
from .template import ChatTemplate, Message
from .tools import Tool

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class Unread(Enum):
    """Why a body is no call."""

    OPEN = "it ends within a value"
    BROKEN = "it cannot become one"


@dataclass(frozen=True, slots=True)
class Call:
    """A call: the tool's name and its arguments."""

    name: str
    arguments: Mapping[str, Any]


Verdict: TypeAlias = Call | Unread


class Format(Protocol):
    """A form of calls."""

    name: str

    def begins(self, text: str) -> bool:
        """Whether a call's body, or the beginning of one, may begin like this."""

    def read(self, body: str, tools: Mapping[str, Tool]) -> Verdict:
        """Return the call that stands between the tags."""


class Hermes:
    """JSON with a name and arguments."""

    name = "hermes"
    _STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)

    def begins(self, text: str) -> bool:
        """Whether a call's body may begin like this."""
        found = text.lstrip()
        return not found or found.startswith("{")

    def read(self, body: str, tools: Mapping[str, Tool]) -> Verdict:
        """Return the call that stands between the tags."""
        found = _json(body)
        if found is _NOTHING:
            # a quote is left over: the end that was found stands inside a string
            inside = self.begins(body) and '"' in self._STRINGS.sub("", body)
            return Unread.OPEN if inside else Unread.BROKEN
        if not isinstance(found, Mapping) or not {"name"} <= set(found) <= {"name", "arguments"}:
            return Unread.BROKEN
        arguments = found.get("arguments", {})
        if isinstance(arguments, str):
            arguments = _json(arguments)
        known = isinstance(found["name"], str) and found["name"] in tools
        return Call(found["name"], arguments) if known and _is_object(arguments) else Unread.BROKEN


class Tagged:
    """A tag for the function and one for each argument; Qwen calls it XML, which it is not."""

    name = "tagged"
    _FUNCTION = re.compile(r"\s*<function=([^<>\n]+)>\s*")
    _PARAMETER = re.compile(r"<parameter=([^<>\n]+)>\n?")
    # a value may hold the tag itself; what follows tells
    _END = re.compile(r"\n?</parameter>\s*(?=<parameter=|</function>)")
    _LAST = re.compile(r"</function>\s*")

    def begins(self, text: str) -> bool:
        """Whether a call's body may begin like this."""
        found, tag = text.lstrip(), "<function="
        return found.startswith(tag) or tag.startswith(found)

    def read(self, body: str, tools: Mapping[str, Tool]) -> Verdict:
        """Return the call that stands between the tags."""
        function = self._FUNCTION.match(body)
        if function is None or function[1] not in tools:
            return Unread.BROKEN
        tool, at = tools[function[1]], function.end()
        arguments: dict[str, Any] = {}
        while parameter := self._PARAMETER.match(body, at):
            end = self._END.search(body, parameter.end())
            if end is None:
                return Unread.OPEN
            value = body[parameter.end() : end.start()]
            arguments[parameter[1]] = _typed(value, tool.types(parameter[1]))
            at = end.end()
        return Call(tool.name, arguments) if self._LAST.fullmatch(body, at) else Unread.BROKEN


FORMATS: tuple[Format, ...] = (Tagged(), Hermes())


@lru_cache(maxsize=8)
def format_of(source: str) -> Format | None:
    """Return the form in which a chat template writes calls; None if it knows no tools, or others' forms.

    It is asked by rendering one: what templates say of a form in words differs.
    """
    template = ChatTemplate(source)
    mark, value = "f_5d1c", "v_93ab"
    declared: dict[str, Any] = {
        "name": mark,
        "description": "d",
        "parameters": _object({value: {"type": "string"}}),
    }
    called = {"function": {"name": mark, "arguments": {value: value}}, "type": "function"}
    messages: list[Message] = [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "tool_calls": [called | {"id": "call_0"}]},
        {"role": "tool", "content": "t", "tool_call_id": "call_0"},
    ]
    try:
        told = template.render(
            messages[:1], {"tools": [{"type": "function", "function": declared}]}
        )
        rendered = template.render(messages)
    except DflashError:
        return None
    if mark not in told:
        return None
    tool = Tool(mark, declared["parameters"], declared)
    wanted = Call(mark, {value: value})
    body = rendered.partition(OPEN)[2].partition(CLOSE)[0]
    return next((form for form in FORMATS if form.read(body, {mark: tool}) == wanted), None)


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_NOTHING = object()  # what is no JSON


def _json(text: str) -> Any:
    """Return the JSON value that a text is, line breaks in strings allowed; _NOTHING if it is none."""
    try:
        return json.loads(text, strict=False, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return _NOTHING


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and Infinity are not JSON


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping)


def _typed(text: str, types: frozenset[str]) -> Any:
    """Return an argument's value: JSON where its schema wants that, text as it is otherwise.

    What is no JSON of a type that the schema names stays text, which the tool can complain about. Templates write
    Python's True, False and None, and so do models.
    """
    if types == {"string"}:
        return text
    words = {"true": True, "false": False, "null": None, "none": None}
    found = _json(text)
    if found is _NOTHING:
        found = words.get(text.strip().lower(), _NOTHING)
    kinds = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    kind = "null" if found is None else kinds.get(type(found), "string")
    wanted = kind in types or (kind == "integer" and "number" in types)
    whole = kind == "number" and "integer" in types and found.is_integer()
    if found is _NOTHING or isinstance(found, str) or not (wanted or whole):
        return text
    return int(found) if whole and "number" not in types else found
