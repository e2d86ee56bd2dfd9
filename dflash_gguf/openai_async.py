"""An AsyncEngine's OpenAI-shaped methods: the arguments and dictionaries of openai_shape.py, awaited.

>>> answer = await engine.create_chat_completion(messages)
>>> async for piece in await engine.create_chat_completion(messages, stream=True): ...
"""

from __future__ import annotations

from collections import abc
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from .async_request import Request
from .openai_choices import Shaped
from .openai_shape import Asked, Call, Settings

if TYPE_CHECKING:
    from .asynchronous import AsyncEngine
    from .prompt import Prompt
    from .template import Message


@overload
async def create_chat_completion(
    engine: AsyncEngine,
    messages: abc.Sequence[Message],
    *,
    stream: Literal[False] = False,
    **settings: Unpack[Settings],
) -> Shaped: ...
@overload
async def create_chat_completion(
    engine: AsyncEngine,
    messages: abc.Sequence[Message],
    *,
    stream: Literal[True],
    **settings: Unpack[Settings],
) -> AsyncGenerator[Shaped, None]: ...
async def create_chat_completion(
    engine: AsyncEngine,
    messages: abc.Sequence[Message],
    *,
    stream: bool = False,
    **settings: Any,
) -> Shaped | AsyncGenerator[Shaped, None]:
    """Answer a conversation in the shape of OpenAI's chat completions.

    Arguments and errors as of `Engine.create_chat_completion`. A stream's request begins with its iteration;
    leaving that early cancels the answer.
    """
    return await _answered(engine, messages, Call.chat(settings), stream)


@overload
async def create_completion(
    engine: AsyncEngine,
    prompt: Prompt,
    *,
    stream: Literal[False] = False,
    **settings: Unpack[Settings],
) -> Shaped: ...
@overload
async def create_completion(
    engine: AsyncEngine, prompt: Prompt, *, stream: Literal[True], **settings: Unpack[Settings]
) -> AsyncGenerator[Shaped, None]: ...
async def create_completion(
    engine: AsyncEngine, prompt: Prompt, *, stream: bool = False, **settings: Any
) -> Shaped | AsyncGenerator[Shaped, None]:
    """Continue a text, taken as it is, in the shape of OpenAI's (legacy) completions.

    As `create_chat_completion`; 16 tokens unless `max_tokens` says otherwise.
    """
    return await _answered(engine, prompt, Call.text(settings), stream)


async def _answered(
    engine: AsyncEngine, prompt: Prompt, call: Call, stream: bool
) -> Shaped | AsyncGenerator[Shaped, None]:
    asked = await engine.call(lambda own: call.asked(own, prompt))
    if stream:
        return _streamed(engine, asked)
    answer = await engine.generate(asked.prompt, asked.params)
    return await engine.call(lambda _: asked.shape.whole(answer))  # which spells tokens


async def _streamed(engine: AsyncEngine, asked: Asked) -> AsyncGenerator[Shaped, None]:
    request = Request(engine._opened(), asked.prompt, asked.params, asked.shape.pieces)
    async with aclosing(request.follow()) as made:
        async for pieces in made:
            for piece in pieces:
                yield piece
    if asked.include_usage:
        yield asked.shape.usage(request.sequence)
