"""What answers look like, for the OpenAPI document alone: they are written without these models, by answering.py."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class _Reply(BaseModel):
    model_config = ConfigDict(extra="allow")


class Problem(_Reply):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(_Reply):
    """OpenAI's form of an error."""

    error: Problem


class Usage(_Reply):
    """Tokens; those of the prompt that were not read again are in prompt_tokens_details.cached_tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]


class ChatMessage(_Reply):
    """What was answered."""

    role: Literal["assistant"]
    content: str | None


class ChatChoice(_Reply):
    """One answer."""

    index: int
    message: ChatMessage
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class ChatReply(_Reply):
    """Of POST /v1/chat/completions without `stream`."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class TextChoice(_Reply):
    """One continuation."""

    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length"]


class TextReply(_Reply):
    """Of POST /v1/completions without `stream`."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage


class ModelReply(_Reply):
    """A model that can be asked."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    meta: dict[str, Any]


class ModelsReply(_Reply):
    """Of GET /v1/models."""

    object: Literal["list"]
    data: list[ModelReply]


class HealthReply(_Reply):
    """Of GET /health."""

    status: Literal["ok"]


class TokensReply(_Reply):
    """Of POST /tokenize: ids, or with `with_pieces` objects of an id and what it spells."""

    tokens: list[Any]


class ContentReply(_Reply):
    """Of POST /detokenize."""

    content: str


class PromptReply(_Reply):
    """Of POST /apply-template."""

    prompt: str


class PropsReply(_Reply):
    """Of GET /props."""

    total_slots: int
    model_alias: str
    model_path: str
    chat_template: str


_ERRORS = {
    400: "The request makes no sense, or its prompt is too long.",
    401: "The API key is missing or wrong.",
    403: "The host or the page's origin is not allowed.",
    413: "The request is too large.",
    429: "Too many answers are waiting.",
    500: "The server failed.",
    503: "The models are loading, or the server is stopping.",
}


def told(model: type[BaseModel] | None = None) -> dict[int | str, dict[str, Any]]:
    """Return what FastAPI is told of a path's responses: this model, or an error."""
    made: dict[int | str, dict[str, Any]] = {} if model is None else {200: {"model": model}}
    errors = {
        status: {"model": ErrorReply, "description": text} for status, text in _ERRORS.items()
    }
    return made | errors


def streamed(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return the same of a path that may stream."""
    events = {
        "description": "The answer; with `stream`, server-sent events that end with [DONE].",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
    return told(model) | {200: {"model": model, **events}}
