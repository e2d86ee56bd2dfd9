"""An AsyncEngine's OpenAI-shaped answers: those of an Engine, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Any, TypeVar

import pytest

import dflash_gguf
from dflash_gguf import AsyncEngine, Engine, ResourceError, UsageError
from dflash_gguf.openai_choices import ChatShape

from .support.random_pairs import Pair
from .support.tiny import Tiny

T = TypeVar("T")
WAIT = 120  # seconds before a hanging test is called one
HI = [{"role": "user", "content": "hi"}]
CALLS: list[dict[str, Any]] = [
    {"temperature": 0, "max_tokens": 30},
    {"temperature": 0.9, "seed": 3, "max_tokens": 12, "logprobs": True, "top_logprobs": 2},
    {"temperature": 0, "stop": "Python", "model": "a name"},
]
NAMES_AND_TIMES = {"id", "created"}


def run(load: Callable[[], Engine], work: Callable[[AsyncEngine], Awaitable[T]]) -> T:
    """Run a coroutine with an engine that ends with it."""

    async def main() -> T:
        async with AsyncEngine(load) as engine, asyncio.timeout(WAIT):
            return await work(engine)

    return asyncio.run(main())


def opener(pair: Pair, **options: Any) -> Callable[[], Engine]:
    settings: dict[str, Any] = {"threads": 1, "context": 512, "sequences": 2} | options
    return lambda: dflash_gguf.load(pair.target, pair.draft, **settings)


def alike(made: list[Any]) -> Any:
    """What must not differ from call to call: not names, times, what an earlier call has read, and where a
    stream is cut.
    """
    for each in made:
        assert set(each) >= NAMES_AND_TIMES
        if "usage" in each:
            each["usage"].pop("prompt_tokens_details")
    rest = [{key: each[key] for key in each if key not in NAMES_AND_TIMES} for each in made]
    if len(made) == 1:
        return rest
    choices = [choice for each in made for choice in each["choices"]]
    texts = [choice.get("text") or "".join(choice.get("delta", {}).values()) for choice in choices]
    logprobs = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    listed = [
        (key, list(chain.from_iterable(entry[key] or [] for entry in logprobs)))
        for key in (logprobs[0] if logprobs else ())
    ]
    reasons = {choice["finish_reason"] for choice in choices}
    return rest[0]["model"], choices[0].get("delta"), "".join(texts), listed, reasons, rest[-1]


def test_chats_and_texts_are_an_engines(tiny: Tiny) -> None:
    messages: Any = tiny.prompts[40]["messages"]
    include = {"include_usage": True}
    text: dict[str, Any] = {"temperature": 0, "max_tokens": 9, "logprobs": 2}

    def load() -> Engine:
        # one block for all, so that the figures do not depend on the clock
        return dflash_gguf.load(
            tiny.target_f32,
            tiny.draft("f32"),
            threads=1,
            context=1024,
            block=8,
            kv_type="f32",
            prefix_memory=0,
        )

    async def ask(engine: AsyncEngine) -> list[list[Any]]:
        found = []
        for call in CALLS:
            found.append([await engine.create_chat_completion(messages, **call)])
            stream = await engine.create_chat_completion(
                messages, stream=True, stream_options=include, **call
            )
            found.append([piece async for piece in stream])
        found.append([await engine.create_completion("def find_luma(", **text)])
        stream = await engine.create_completion("def find_luma(", stream=True, **text)
        found.append([piece async for piece in stream])
        return found

    expected: list[list[Any]] = []
    with load() as engine:
        for call in CALLS:
            expected.append([engine.create_chat_completion(messages, **call)])
            pieces = engine.create_chat_completion(
                messages, stream=True, stream_options=include, **call
            )
            expected.append(list(pieces))
        expected.append([engine.create_completion("def find_luma(", **text)])
        expected.append(list(engine.create_completion("def find_luma(", stream=True, **text)))
    found = run(load, ask)
    for ours, theirs in zip(found, expected, strict=True):
        assert len({each["id"] for each in ours}) == 1
        assert alike(ours) == alike(theirs)


def test_streams_go_on_side_by_side(dense: Pair) -> None:
    async def read(engine: AsyncEngine) -> str:
        stream = await engine.create_chat_completion(HI, stream=True, max_tokens=40, temperature=0)
        choices = [piece["choices"][0] async for piece in stream]
        assert choices[-1]["finish_reason"] in {"stop", "length"}
        return "".join(choice["delta"].get("reasoning_content", "") for choice in choices)

    async def work(engine: AsyncEngine) -> None:
        texts = await asyncio.gather(*(read(engine) for _ in range(4)))
        whole = await engine.create_chat_completion(HI, max_tokens=40, temperature=0)
        assert set(texts) == {whole["choices"][0]["message"].get("reasoning_content", "")}

    run(opener(dense, kv_type="f32"), work)


def test_leaving_a_stream_cancels_it(dense: Pair) -> None:
    async def work(engine: AsyncEngine) -> None:
        stream = await engine.create_chat_completion(HI, stream=True, max_tokens=-1)
        await anext(stream)
        await stream.aclose()
        assert await engine.call(lambda own: own.busy) is False
        await engine.create_chat_completion(HI, stream=True)  # never begun
        assert await engine.call(lambda own: own.busy) is False
        bans = {str(token): -100.0 for token in range(256, 262)}  # of the end tokens
        task = asyncio.create_task(
            engine.create_chat_completion(HI, logit_bias=bans, max_tokens=-1)
        )
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await engine.call(lambda own: own.busy) is False

    run(opener(dense), work)


def test_closing_ends_a_stream_as_cancelled(dense: Pair) -> None:
    bans = {str(token): -100.0 for token in range(256, 262)}  # of the end tokens

    async def work(engine: AsyncEngine) -> None:
        stream = await engine.create_chat_completion(
            HI, stream=True, logit_bias=bans, stream_options={"include_usage": True}
        )
        await anext(stream)
        await engine.close()
        *_, end, usage = [piece async for piece in stream]
        assert end["choices"][0]["finish_reason"] == "cancelled"
        assert usage["choices"] == []
        with pytest.raises(UsageError, match="the engine is closed"):
            await engine.create_chat_completion(HI)

    run(opener(dense, context=4096), work)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        ({"tools": [{"type": "function"}]}, UsageError, r"tools\[0\].function is None"),
        ({"temperature": -1}, UsageError, "temperature is -1"),
        ({"temperatur": 1}, TypeError, "unexpected keyword argument 'temperatur'"),
        ({"messages": [{"role": "user", "content": "x" * 999}]}, ResourceError, "the prompt has"),
        ({"messages": [1, "x"]}, UsageError, "a message is 1"),
        ({"logit_bias": dict.fromkeys(range(262), float("-inf"))}, UsageError, "every token"),
    ],
)
def test_errors_are_the_callers(
    dense: Pair, call: dict[str, Any], kind: type[Exception], words: str, stream: bool
) -> None:
    async def ask(engine: AsyncEngine) -> None:
        arguments: dict[str, Any] = {"messages": HI, "stream": stream} | call
        found = await engine.create_chat_completion(arguments.pop("messages"), **arguments)
        if stream:
            async for _ in found:
                pass

    async def work(engine: AsyncEngine) -> None:
        with pytest.raises(kind, match=words):
            await ask(engine)
        assert await engine.call(lambda own: own.busy) is False

    run(opener(dense), work)


def test_a_fault_in_the_shaping_ends_the_stream(
    dense: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_shape: ChatShape, _chunk: Any) -> Any:
        raise ZeroDivisionError

    async def work(engine: AsyncEngine) -> None:
        monkeypatch.setattr(ChatShape, "pieces", fail)
        with pytest.raises(ZeroDivisionError):
            async for _ in await engine.create_chat_completion(HI, stream=True):
                pass
        assert await engine.call(lambda own: own.busy) is False

    run(opener(dense), work)
