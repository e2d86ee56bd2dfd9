"""The official Python client asks a server and gets what it expects: types, streams, tools, errors. About 8 seconds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

from ..support.random_pairs import Pair
from ..support.served import serving
from ..support.tiny import Tiny
from ..support.tool_templates import STOP, function

ADD = function("add", ["a", "b"], a={"type": "integer", "maximum": 99, "minimum": 0}, b={"enum": [1, 2]})  # fmt: skip


@pytest.fixture(scope="module")
def client(base: str) -> Iterator[openai.OpenAI]:
    http = httpx2.Client(trust_env=False, timeout=60)
    with openai.OpenAI(
        base_url=f"{base}/v1", api_key="none", http_client=http, max_retries=0
    ) as made:
        yield made


@pytest.fixture(scope="module")
def messages(tiny: Tiny) -> Any:
    return tiny.prompts[40]["messages"]


def ask(client: openai.OpenAI, messages: Any, **more: Any) -> Any:
    return client.chat.completions.create(model="tiny", messages=messages, **more)


def test_an_answer_its_thinking_and_its_figures(client: openai.OpenAI, messages: Any) -> None:
    found = ask(client, messages)
    (choice,) = found.choices
    assert choice.finish_reason == "stop"
    assert choice.message.content
    assert choice.message.reasoning_content
    assert "think>" not in choice.message.content + choice.message.reasoning_content
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    again = ask(client, messages)
    assert again.usage.prompt_tokens_details.cached_tokens > 0
    assert again.choices[0].message == choice.message
    tags = ask(client, messages, extra_body={"reasoning_format": "none"}).choices[0].message
    assert (
        tags.content
        == f"<think>\n{choice.message.reasoning_content}\n</think>\n\n{choice.message.content}"
    )
    plain = ask(client, messages, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    assert not hasattr(plain.choices[0].message, "reasoning_content")
    history = [*messages, choice.message, {"role": "user", "content": "And now?"}]
    assert ask(client, history, max_tokens=4).usage.prompt_tokens > found.usage.prompt_tokens


def test_a_stream_adds_up(client: openai.OpenAI, messages: Any) -> None:
    whole = ask(client, messages)
    stream = ask(client, messages, stream=True, stream_options={"include_usage": True})
    pieces = list(stream)
    assert all(isinstance(piece, ChatCompletionChunk) for piece in pieces)
    assert pieces[-1].choices == []
    assert pieces[-1].usage.completion_tokens == whole.usage.completion_tokens
    choices = [piece.choices[0] for piece in pieces[:-1]]
    assert choices[0].delta.role == "assistant"
    content = "".join(choice.delta.content or "" for choice in choices)
    thought = "".join(getattr(choice.delta, "reasoning_content", None) or "" for choice in choices)
    assert (thought, content) == (
        whole.choices[0].message.reasoning_content,
        whole.choices[0].message.content,
    )
    assert choices[-1].finish_reason == "stop"
    with client.chat.completions.stream(model="tiny", messages=messages) as events:
        assert events.get_final_completion().choices[0].message.content == content


def test_tools_are_called_and_answered(client: openai.OpenAI, messages: Any) -> None:
    asked: dict[str, Any] = {"tools": [ADD, STOP], "tool_choice": {"type": "function", "function": {"name": "add"}}}  # fmt: skip
    (choice,) = ask(client, messages, **asked).choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "add")
    arguments = json.loads(call.function.arguments)
    assert 0 <= arguments["a"] <= 99
    assert arguments["b"] in {1, 2}
    with client.chat.completions.stream(model="tiny", messages=messages, **asked) as events:
        streamed = events.get_final_completion().choices[0]
    assert streamed.finish_reason == "tool_calls"
    assert streamed.message.tool_calls[0].function.arguments == call.function.arguments
    answered = [
        *messages,
        choice.message,
        {"role": "tool", "tool_call_id": call.id, "content": "3"},
    ]
    assert ask(client, answered, tools=[ADD], max_tokens=8).choices[0].finish_reason in {
        "stop",
        "length",
    }
    with pytest.raises(openai.BadRequestError, match="none of the tools"):
        ask(client, messages, tools=[STOP], tool_choice=asked["tool_choice"])


def test_what_an_answer_must_be(client: openai.OpenAI, messages: Any) -> None:
    class Sum(BaseModel):
        value: int
        exact: bool

    found = client.chat.completions.parse(model="tiny", messages=messages, response_format=Sum)
    assert isinstance(found.choices[0].message.parsed, Sum)
    likely = (
        ask(client, messages, logprobs=True, top_logprobs=2, max_tokens=5)
        .choices[0]
        .logprobs.content
    )
    assert len(likely) == 5
    for token in likely:
        assert token.logprob == token.top_logprobs[0].logprob <= 0
        assert len(token.top_logprobs) == 2
        assert bytes(token.bytes)


@pytest.mark.parametrize(
    "more",
    [
        {"max_tokens": None},
        {"max_completion_tokens": 3},
        {"stop": "Plan"},
        {"stop": ["zzz", "Plan"]},
        {"stop": None, "max_tokens": 3},
        {"stream_options": None, "user": "u", "max_tokens": 3},
        {"extra_body": {"unheard_of": {"a": 1}}, "max_tokens": 3},
        {"n": 2, "max_tokens": 3},
        {"store": False, "metadata": {"a": "b"}, "service_tier": "auto", "max_tokens": 3},
    ],
)
def test_settings_that_clients_send(
    client: openai.OpenAI, messages: Any, more: dict[str, Any]
) -> None:
    text = messages[0]["content"]
    parts = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    found, other = ask(client, messages, **more), ask(client, parts, **more)
    assert [choice.message for choice in found.choices] == [
        choice.message for choice in other.choices
    ]
    limit = more.get("max_tokens") or more.get("max_completion_tokens")
    if limit:
        assert found.usage.completion_tokens == limit * len(found.choices)
    if more.get("stop"):
        message = found.choices[0].message
        assert "Plan" not in (message.content or "") + message.reasoning_content
        assert found.choices[0].finish_reason == "stop"


def test_texts_and_models(client: openai.OpenAI) -> None:
    found = client.completions.create(
        model="tiny", prompt="def find_luma(", max_tokens=9, logprobs=1
    )
    assert found.choices[0].text
    assert len(found.choices[0].logprobs.tokens) == 9
    stream = client.completions.create(
        model="tiny", prompt="def find_luma(", max_tokens=9, stream=True
    )
    assert "".join(piece.choices[0].text for piece in stream) == found.choices[0].text
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id) == model


def test_errors_have_their_types(client: openai.OpenAI, messages: Any, dense: Pair) -> None:
    with pytest.raises(openai.BadRequestError) as wrong:
        ask(client, messages, temperature=-1)
    assert (wrong.value.type, wrong.value.param) == ("invalid_request_error", "temperature")
    with pytest.raises(openai.BadRequestError) as long:
        ask(client, [{"role": "user", "content": "x " * 5000}])
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no such model")
    parts = [{"type": "image_url", "image_url": {"url": "data:"}}]
    with pytest.raises(openai.BadRequestError, match="image_url"):
        ask(client, [{"role": "user", "content": parts}])
    with serving(dense, keys=("k",)) as served:
        locked = client.with_options(base_url=f"{served.url}/v1")
        with pytest.raises(openai.AuthenticationError):
            locked.models.list()
        assert locked.with_options(api_key="k").models.list().data


def test_four_streams_at_once(base: str, tiny: Tiny) -> None:
    asked = [tiny.prompts[i]["messages"] for i in (0, 30, 60, 90)]

    async def read(client: openai.AsyncOpenAI, messages: Any) -> str:
        stream: Any = await client.chat.completions.create(
            model="tiny", messages=messages, stream=True, max_tokens=60
        )
        deltas = [piece.choices[0].delta async for piece in stream]
        return "".join(
            (d.content or "") + (getattr(d, "reasoning_content", None) or "") for d in deltas
        )

    async def main() -> tuple[list[str], list[str]]:
        http = httpx2.AsyncClient(trust_env=False, timeout=60)
        async with openai.AsyncOpenAI(
            base_url=f"{base}/v1", api_key="none", http_client=http
        ) as client:
            alone = [await read(client, each) for each in asked]
            return alone, list(await asyncio.gather(*(read(client, each) for each in asked)))

    alone, together = asyncio.run(main())
    assert alone == together
    assert len(set(alone)) == 4
