"""Texts and tokens, in llama-server's forms. In the engine's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..openai_messages import for_template
from ..text import whole_characters
from .requests import Rules, given, template_arguments
from .schema import DetokenizeRequest, TemplateRequest, TokenizeRequest

if TYPE_CHECKING:
    from ..engine import Engine


def tokenize(engine: Engine, body: TokenizeRequest) -> dict[str, Any]:
    """Return the tokens of a text; pieces that are no text of their own as lists of bytes."""
    parts = engine._open()
    if body.parse_special or body.add_special:
        text = whole_characters(body.content)
        ids = parts.model.tokenize(text, body.add_special, body.parse_special)
    else:
        ids = parts.prompter.plain(body.content)
    if not body.with_pieces:
        return {"tokens": ids}
    return {"tokens": [{"id": token, "piece": _piece(engine, token)} for token in ids]}


def detokenize(engine: Engine, body: DetokenizeRequest) -> dict[str, Any]:
    """Return the text of tokens, special ones included. Raises UsageError for one outside the vocabulary."""
    data = b"".join(engine.piece(token, special=True) for token in body.tokens)
    return {"content": data.decode("utf-8", "replace")}


def apply_template(engine: Engine, body: TemplateRequest, rules: Rules) -> dict[str, Any]:
    """Return the prompt of a conversation as text. Raises UsageError if the template refuses it."""
    arguments = template_arguments(body.chat_template_kwargs, body.reasoning_effort, rules)
    if body.tools is not None:
        arguments["tools"] = body.tools
    return {"prompt": engine.render(for_template(given(body.messages)), arguments)}


def _piece(engine: Engine, token: int) -> str | list[int]:
    data = engine.piece(token, special=True)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
