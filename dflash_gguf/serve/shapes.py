"""Which of openai_choices.py's shapes a request's answers have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..openai_choices import ChatShape, Shape, TextShape

if TYPE_CHECKING:
    from ..engine import Engine
    from .answering import MakeShape
    from .requests import Asked


def chat_shape(asked: Asked) -> MakeShape:
    """Return what makes the shape of a chat's answer, in the engine's thread."""

    def make(engine: Engine, prompt: Any) -> Shape:
        del prompt
        return ChatShape(engine, asked.call.model)

    return make


def text_shape(asked: Asked) -> MakeShape:
    """Return what makes the shape of a continued text."""

    def make(engine: Engine, prompt: Any) -> Shape:
        return TextShape(engine, asked.call.model, prompt)

    return make
