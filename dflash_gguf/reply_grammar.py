"""Grammars of whole chat answers: thinking first where the template has it, then JSON of a schema, or calls of tools."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import UsageError
from .json_schema import quoted, schema_rules, written
from .thinking import CLOSE as THOUGHT_END
from .thinking import OPEN as THOUGHT
from .tool_formats import CLOSE, OPEN, Format, Tagged
from .tools import Tool

_VALUE_END = "\n</parameter>\n"
_CUTS = {"minLength", "maxLength", "pattern"}  # what a text without quotes is not held to


class ReplyGrammar:
    """Rules of an answer, put together from what it may be.

    Raises UsageError, naming the tool or the schema's place, for what a grammar cannot keep to.
    """

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._options: list[str] = []

    def allow_json(self, schema: Mapping[str, Any] | str | bool) -> None:
        """Let the answer be a value that a JSON schema takes."""
        if isinstance(schema, str):
            schema = json.loads(schema)
        self._options.append(self._value(schema, schema, "json-", "#"))

    def allow_calls(self, form: Format, tools: Sequence[Tool], *, many: bool) -> None:
        """Let the answer be a call of one of the tools, or several."""
        tagged = isinstance(form, Tagged)
        bodies = [
            (self._tagged if tagged else self._hermes)(tool, f"tool-{i}-")
            for i, tool in enumerate(tools)
        ]
        self._rules["call"] = (
            f"{quoted(OPEN)} {quoted(chr(10))} ({' | '.join(bodies)}) {quoted(CLOSE)}"
        )
        self._options.append('call ("\\n" call)*' if many else "call")

    def text(self, *, opened: bool, thinks: bool) -> str:
        """Return it as GBNF.

        Args:
            opened: the prompt has opened the thinking, which comes first then.
            thinks: thinking may come first.
        """
        answer = " | ".join(self._options)
        if opened or thinks:
            until(THOUGHT_END, "thought-", self._rules)
            thought = 'thought-0 "\\n"? "\\n"?'
            if not opened:
                thought = f"({quoted(THOUGHT)} {thought})?"
            answer = f"{thought} ({answer})"
        return written({"root": answer, **self._rules})

    def _value(self, root: Any, schema: Any, prefix: str, place: str) -> str:
        try:
            value, rules = schema_rules(root, schema, place, prefix)
        except RecursionError:
            text = f"the JSON schema, at {place}, is nested too deeply; a grammar for it cannot be made"
            raise UsageError(text) from None
        self._rules |= rules
        return value

    def _hermes(self, tool: Tool, prefix: str) -> str:
        schema = {"type": "object", **tool.parameters}
        arguments = self._of(tool, lambda: self._value(schema, schema, prefix, "#"))
        head = quoted(f'{{"name": {json.dumps(tool.name)}, "arguments": ')
        return f"{head} {arguments} {quoted('}' + chr(10))}"

    def _tagged(self, tool: Tool, prefix: str) -> str:
        properties = tool.parameters.get("properties", {})
        required = tool.parameters.get("required", [])
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            text = f"tool {tool.name}: properties or required of its parameters are not in JSON schema's form"
            raise UsageError(text)
        parts = []
        for i, (name, schema) in enumerate(properties.items()):
            value = self._of(
                tool, lambda s=schema, n=name, i=i: self._argument(tool, n, s, f"{prefix}{i}-")
            )
            parameter = f"{quoted(f'<parameter={name}>' + chr(10))} {value}"
            parts.append(parameter if name in required else f"({parameter})?")
        function = quoted(f"<function={tool.name}>\n")
        return " ".join([function, *parts, quoted("</function>\n")])

    def _argument(self, tool: Tool, name: str, schema: Any, prefix: str) -> str:
        """A value and the tag that ends it. Text stands there without quotes; what may be text may be any."""
        if not set("<>\n").isdisjoint(name):
            text = f"argument {name!r}: names with <, > or line breaks cannot be written in this template's form"
            raise UsageError(text)
        place = f"#/properties/{name}"
        if "string" not in tool.types(name):
            return f"{self._value(tool.parameters, schema, prefix, place)} {quoted(_VALUE_END)}"
        if isinstance(schema, Mapping):
            if cuts := _CUTS & set(schema):
                text = f"{place}: '{min(cuts)}' of a text without quotes cannot be kept to; leave it out"
                raise UsageError(text)
            values = schema.get("enum", [schema["const"]] if "const" in schema else None)
            if (
                isinstance(values, list)
                and values
                and all(isinstance(value, str) for value in values)
            ):
                return f"({' | '.join(quoted(value + _VALUE_END) for value in values)})"
        until(_VALUE_END, "text-", self._rules)
        return "text-0"

    @staticmethod
    def _of(tool: Tool, make: Any) -> str:
        try:
            made: str = make()
        except UsageError as error:
            text = f"tool {tool.name} cannot be asked for through a grammar: {error}; use tool_choice auto"
            raise UsageError(text) from None
        return made


def until(end: str, prefix: str, rules: dict[str, str]) -> None:
    """Add rules of which the first, `prefix`0, is any text up to and with the first `end`.

    One rule for each character that is known to have been written of it (Knuth, Morris and Pratt's automaton).
    """
    letters = sorted(set(end))
    for known in range(len(end)):
        options = [f"{_class(letters, negated=True)} {prefix}0"]
        for letter in letters:
            seen = end[:known] + letter
            now = next(n for n in range(len(seen), -1, -1) if seen.endswith(end[:n]))
            options.append(quoted(letter) + (f" {prefix}{now}" if now < len(end) else ""))
        rules[f"{prefix}{known}"] = " | ".join(options)


def _class(letters: Sequence[str], *, negated: bool) -> str:
    escapes = {"\n": "\\n", "]": "\\]", "\\": "\\\\", "-": "\\-", "^": "\\^"}
    return f"[{'^' if negated else ''}{''.join(escapes.get(letter, letter) for letter in letters)}]"
