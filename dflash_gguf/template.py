"""Chat templates, rendered as transformers renders them, in a sandbox: they come from files of strangers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeAlias

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .errors import ModelError, UsageError

Message: TypeAlias = Mapping[str, Any]


class _Generation(Extension):
    """Accept `{% generation %}...{% endgeneration %}`, which marks training text, as its content."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's interface)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        # variables set inside stay inside, as with transformers' own tag
        return nodes.Scope(body, lineno=line)


def _raise_exception(text: str) -> NoReturn:
    raise TemplateError(text)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


class ChatTemplate:
    """A model's chat template; `tokens` are its variables bos_token and eos_token.

    Raises ModelError if `source` is not a template that jinja2 understands.
    """

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self.source = source
        # transformers passes these two even if there are none: templates ask whether they are none
        self._variables: dict[str, Any] = {"tools": None, "documents": None, **(tokens or {})}
        try:
            self._template = environment.from_string(source)
        except Exception as error:  # deep nesting fails in Python's own compiler
            text = f"the model's chat template is not valid ({error}); convert the target again"
            raise ModelError(text) from error

    def render(
        self, messages: Sequence[Message], arguments: Mapping[str, Any] | None = None
    ) -> str:
        """Return the prompt of a conversation; `arguments` go to the template (enable_thinking, tools).

        Raises UsageError, in the template's own words, if it refuses the messages.
        """
        variables: dict[str, Any] = {"add_generation_prompt": True} | self._variables
        variables |= {"messages": messages, **(arguments or {})}
        try:
            return self._template.render(variables)
        except Exception as error:  # a template is a program: it may fail in any way
            text = f"the chat template refuses these messages: {error or type(error).__name__}"
            raise UsageError(text) from error


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of a JSON-like value with every string changed, keys of objects too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {map_strings(k, change): map_strings(v, change) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [map_strings(item, change) for item in value]
    return value
