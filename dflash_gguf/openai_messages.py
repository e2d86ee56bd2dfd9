"""OpenAI's messages as chat templates want them.

As llama.cpp does: `developer` is `system`; text in parts is one text; no content is empty content; the arguments of
calls are objects, not JSON text. The rest (reasoning_content, tool_call_id, ...) goes to the template as it is, which
takes what it knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import UsageError
from .template import Message


def for_template(messages: Sequence[Message]) -> list[Message]:
    """Return the messages in that form.

    Raises UsageError, naming the place, for parts that are no text and for arguments that are no JSON object.
    What is no message at all is left for the prompt's reader to refuse.
    """
    return [
        _message(message, f"messages[{i}]") if isinstance(message, Mapping) else message
        for i, message in enumerate(messages)
    ]


def _message(message: Message, place: str) -> Message:
    made = dict(message)
    if made.get("role") == "developer":
        made["role"] = "system"
    made["content"] = _text(made.get("content"), f"{place}.content")
    if calls := made.pop("tool_calls", None):
        if not isinstance(calls, Sequence) or isinstance(calls, str):
            text = f"{place}.tool_calls is {calls!r}; expected a list of calls"
            raise UsageError(text)
        made["tool_calls"] = [
            _call(call, f"{place}.tool_calls[{i}]") for i, call in enumerate(calls)
        ]
    return made


def _text(content: object, place: str) -> object:
    if content is None:
        return ""
    if not isinstance(content, Sequence) or isinstance(content, str):
        return content
    texts = []
    for i, part in enumerate(content):
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str) or part.get("type", "text") != "text":
            kind = part.get("type") if isinstance(part, Mapping) else part
            problem = f"{place}[{i}] is {kind!r}; this engine takes text only: a type of 'text' and the text"
            raise UsageError(problem)
        texts.append(text)
    return "\n".join(texts)


def _call(call: object, place: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        text = f"{place} is {call!r}; expected a mapping with a function, of a name and arguments"
        raise UsageError(text)
    if not isinstance(function.get("name"), str):
        text = f"{place}.function.name is {function.get('name')!r}; expected the function's name"
        raise UsageError(text)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            text = f"{place}.function.arguments is not JSON: {error}"
            raise UsageError(text) from None
    if not isinstance(arguments, Mapping | None):
        text = f"{place}.function.arguments is {arguments!r}; expected a JSON object"
        raise UsageError(text)
    return {**call, "function": {**function, "arguments": arguments or {}}}
