"""An AsyncEngine's OpenAI-shaped methods: the arguments and dictionaries of openai_shape.py, awaited.

>>> answer = await engine.create_chat_completion(messages)
>>> async for piece in await engine.create_chat_completion(messages, stream=True): ...
"""

from __future__ import annotations

from collections import abc
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from .async_request import Request
from .openai_choices import ChatShape, Shape, Shaped, TextShape
from .openai_shape import Call, Settings

if TYPE_CHECKING:
    from .asynchronous import AsyncEngine
    from .engine import Engine
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
    call = Call.chat(settings)
    return await _answered(engine, messages, call, lambda own: ChatShape(own, call.model), stream)


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
    call = Call.text(settings)
    return await _answered(
        engine, prompt, call, lambda own: TextShape(own, call.model, prompt), stream
    )


async def _answered(
    engine: AsyncEngine,
    prompt: Prompt,
    call: Call,
    make_shape: Callable[[Engine], Shape],
    stream: bool,
) -> Shaped | AsyncGenerator[Shaped, None]:
    shape = await engine.call(make_shape)
    if stream:
        return _streamed(engine, prompt, call, shape)
    answer = await engine.generate(prompt, call.params)
    return await engine.call(lambda _: shape.whole(answer))  # which spells tokens


async def _streamed(
    engine: AsyncEngine, prompt: Prompt, call: Call, shape: Shape
) -> AsyncGenerator[Shaped, None]:
    request = Request(engine._opened(), prompt, call.params, shape.pieces)
    async with aclosing(request.follow()) as made:
        async for pieces in made:
            for piece in pieces:
                yield piece
    if call.include_usage:
        yield shape.usage(request.sequence)
