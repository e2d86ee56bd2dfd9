"""Chat templates that write calls of tools in Qwen's two forms, and a tool; the tests' own, as short as can be."""

from __future__ import annotations

from typing import Any

_TURN = (
    "{% for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}\n"
    "{% if m.role == 'tool' %}<tool_response>\n{{ m.content }}\n</tool_response>"
    "{% elif m.role == 'assistant' %}{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n"
    "{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\nCALL\n</tool_call>{% endfor %}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}{% endif %}"
)
_TOLD = "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
_TAGGED = (
    "<function={{ c.function.name }}>\n{% for k, v in c.function.arguments | items %}<parameter={{ k }}>\n"
    "{{ v if v is string else v | tojson }}\n</parameter>\n{% endfor %}</function>"
)
_HERMES = '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'

TEMPLATES = {
    "tagged": _TOLD + _TURN.replace("CALL", _TAGGED),
    "hermes": _TOLD + _TURN.replace("CALL", _HERMES),
}


def function(name: str, required: list[str], **properties: Any) -> dict[str, Any]:
    """A tool, declared as OpenAI does."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name, "description": "d", "parameters": parameters},
    }


WEATHER = function(
    "get_weather",
    ["city"],
    city={"type": "string"},
    days={"type": "integer"},
    exact={"type": "boolean"},
    near={"type": "array", "items": {"type": "string"}},
    at={"anyOf": [{"type": "number"}, {"type": "null"}]},
    note={},
)
STOP = function("stop", [])
