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

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


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
    return datetime.now().astimezone().strftime(form)


class ChatTemplate:
    """A model's chat template.

    Raises ModelError if `source` is not a template that jinja2 understands.
    """

    def __init__(self, source: str, *, bos: str = "", eos: str = "") -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self.source = source
        self._tokens = {"bos_token": bos, "eos_token": eos}
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            text = f"the model's chat template is not valid ({error}); convert the target again"
            raise ModelError(text) from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        **arguments: object,
    ) -> str:
        """Return the prompt of a conversation; `arguments` go to the template (enable_thinking, tools).

        Raises UsageError, in the template's own words, if it refuses the messages.
        """
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                **self._tokens,
                **arguments,
            )
        except (TemplateError, TypeError, ValueError, KeyError, IndexError) as error:
            text = f"the chat template refuses these messages: {error}"
            raise UsageError(text) from error


def map_strings(value: Any, change: Callable[[str], str], *, skip: frozenset[str]) -> Any:
    """Return a copy of a JSON-like value with every string changed, but for keys and values of `skip`."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {k: v if k in skip else map_strings(v, change, skip=skip) for k, v in value.items()}
    if isinstance(value, Sequence):
        return [map_strings(v, change, skip=skip) for v in value]
    return value
