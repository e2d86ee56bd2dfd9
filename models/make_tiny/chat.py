"""The chat form: ChatML with a thinking switch, as a Jinja template and as text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = dict[str, str]

END = "<|im_end|>"
# A reply's thinking is dropped once the next turn begins; without a switch thinking is on.
TEMPLATE = """\
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' + message.content.split('</think>')[-1].strip('\\n') }}
{{- '<|im_end|>\\n' }}
{%- elif message.role in ('system', 'user') %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- else %}
{{- raise_exception('Unexpected message role: ' + message.role) }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n<think>\\n' }}
{%- if enable_thinking is defined and not enable_thinking %}
{{- '\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}
"""


@cache
def _compiled() -> jinja2.Template:
    def fail(message: str) -> None:
        raise ValueError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = fail
    return environment.from_string(TEMPLATE)


def render(messages: Sequence[Message], *, think: bool) -> str:
    """The prompt text up to and including the opened (or closed) thinking part."""
    return _compiled().render(
        messages=list(messages), add_generation_prompt=True, enable_thinking=think
    )
