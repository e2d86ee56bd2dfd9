"""What may be asked, as pydantic models: OpenAI's fields, llama-server's and SGLang's beside them.

Fields that are not known are ignored, null is the same as leaving a field out. A value of a known field is taken or
refused, never bent.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

_MOST_SEED = 2**64 - 1
_INT_MAX = 2**31 - 1

Number = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]
Token = Annotated[int, Field(ge=0, le=_INT_MAX)]
# OpenAI's form, and llama-server's, where false bans a token
_Bias = Annotated[tuple[Token, Number | bool], Strict(False)]  # a list, in JSON
Biases = dict[str, Number] | list[_Bias]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class Part(_Asked):
    """A piece of a message's content; only text is understood."""

    type: str
    text: str | None = None


class Message(_Asked):
    """One message of a conversation; what is not listed here goes to the chat template as it is."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: Text
    content: str | list[Part] | None = None


class StreamOptions(_Asked):
    """Of `stream_options`."""

    include_usage: bool | None = None


class Settings(_Asked):
    """What chats and texts have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=-1)] | None = None
    temperature: Annotated[Number, Field(ge=0, le=100)] | None = None
    top_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=_INT_MAX)] | None = None
    min_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    typical_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[Number, Field(ge=-100, le=100)] | None = None
    frequency_penalty: Annotated[Number, Field(ge=-100, le=100)] | None = None
    repeat_penalty: Annotated[Number, Field(ge=0.01, le=100)] | None = None
    repetition_penalty: Annotated[Number, Field(ge=0.01, le=100)] | None = None
    repeat_last_n: Annotated[int, Field(ge=-1, le=_INT_MAX)] | None = None
    logit_bias: Biases | None = None
    seed: Annotated[int, Field(ge=-1, le=_MOST_SEED)] | None = None
    stop: Text | list[Text] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    response_format: dict[str, Any] | None = None
    json_schema: dict[str, Any] | None = None
    grammar: str | None = None
    ignore_eos: bool | None = None
    block: Annotated[int, Field(ge=1)] | Literal["auto"] | None = None
    draft_sampling: Literal["gumbel", "rejection"] | None = None
    cache_prompt: bool | None = None
    timings_per_token: bool | None = None
    return_meta_info: bool | None = None


class ChatRequest(Settings):
    """Of POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=-1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    reasoning_format: str | None = None


class TextRequest(Settings):
    """Of POST /v1/completions."""

    prompt: (
        str
        | Annotated[list[Token], Field(min_length=1)]
        | Annotated[list[str], Field(min_length=1, max_length=128)]
        | Annotated[
            list[Annotated[list[Token], Field(min_length=1)]],
            Field(min_length=1, max_length=128),
        ]
    )
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


class TokenizeRequest(_Asked):
    """Of POST /tokenize, as llama-server's."""

    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(_Asked):
    """Of POST /detokenize, as llama-server's."""

    tokens: list[Token]


class TemplateRequest(_Asked):
    """Of POST /apply-template, as llama-server's."""

    messages: Annotated[list[Message], Field(min_length=1)]
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
