"""An engine under asyncio: many streams, cancellation anywhere, closing at any time."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

import dflash_gguf
from dflash_gguf import AsyncEngine, ModelError, ResourceError, UsageError

from .support.random_pairs import Pair

T = TypeVar("T")
PROMPT = [72, 101, 108, 108, 111]
LONG = [(i * 7) % 256 for i in range(3000)]
WAIT = 60  # seconds before a hanging test is called one


def opener(pair: Pair, **options: Any) -> Callable[[], dflash_gguf.Engine]:
    settings: dict[str, Any] = {"threads": 1, "context": 4096, "kv_type": "f32", "sequences": 4}
    return lambda: dflash_gguf.load(pair.target, pair.draft, **(settings | options))


def run(pair: Pair, work: Callable[[AsyncEngine], Awaitable[T]], **options: Any) -> T:
    """Run a coroutine with an engine that ends with it."""

    async def main() -> T:
        async with AsyncEngine(opener(pair, **options)) as engine:
            return await work(engine)

    return within(main())


def within(work: Awaitable[T]) -> T:
    """Run a coroutine in an event loop of its own; one that hears of nothing is no test that goes on forever."""

    async def main() -> T:
        async with asyncio.timeout(WAIT):
            return await work

    return asyncio.run(main())


async def collect(engine: AsyncEngine, *args: Any, **options: Any) -> list[Any]:
    return [chunk async for chunk in engine.stream(*args, **options)]


def test_eight_streams_equal_their_solo_runs(pair: Pair) -> None:
    prompts = [[(i * 31 + k) % 256 for k in range(5 + 20 * i)] for i in range(8)]

    async def ask(engine: AsyncEngine, i: int) -> tuple[str, list[int], str]:
        chunks = await collect(engine, prompts[i], max_tokens=20 + 5 * i, ignore_end=True)
        tokens = [token for chunk in chunks for token in chunk.tokens]
        return "".join(chunk.text for chunk in chunks), tokens, chunks[-1].finish_reason

    async def work(engine: AsyncEngine) -> list[tuple[str, list[int], str]]:
        return await asyncio.gather(*(ask(engine, i) for i in range(8)))

    found = run(pair, work)
    with opener(pair)() as alone:
        for i, (text, tokens, reason) in enumerate(found):
            own = alone.generate(prompts[i], max_tokens=20 + 5 * i, ignore_end=True)
            assert (text, tokens, reason) == (own.text, own.tokens, own.finish_reason)


def test_the_event_loop_goes_on_meanwhile(dense: Pair) -> None:
    async def work(engine: AsyncEngine) -> int:
        turns = 0
        asked = asyncio.create_task(collect(engine, LONG, max_tokens=8, ignore_end=True))
        while not asked.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert run(dense, work) > 100


def test_a_cancelled_task_ends_its_answer_and_the_next_request_is_right(pair: Pair) -> None:
    async def work(engine: AsyncEngine) -> None:
        expected = (await engine.generate(PROMPT, max_tokens=20, ignore_end=True)).tokens
        for after in (0, 1, 3):  # chunks: in prefill, right behind it, in decode
            seen = asyncio.Semaphore(0)

            async def read(seen: asyncio.Semaphore = seen) -> None:
                async for _ in engine.stream(LONG, ignore_end=True):
                    seen.release()

            task = asyncio.create_task(read())
            for _ in range(after):
                await seen.acquire()
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # asked for after the cancellation, in the same inbox
            assert await engine.call(lambda e: e.busy) is False
            again = await engine.generate(PROMPT, max_tokens=20, ignore_end=True)
            assert again.tokens == expected

    run(pair, work)


def test_a_waiting_request_can_be_cancelled(dense: Pair) -> None:
    async def work(engine: AsyncEngine) -> None:
        first = asyncio.create_task(collect(engine, PROMPT, ignore_end=True))
        second = asyncio.create_task(collect(engine, PROMPT, ignore_end=True))
        await asyncio.sleep(0.05)
        for task in (second, first):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await engine.call(lambda e: e.free) == 1

    run(dense, work, sequences=1)


def test_leaving_the_loop_cancels_the_answer(dense: Pair) -> None:
    async def work(engine: AsyncEngine) -> None:
        async for chunk in engine.stream(PROMPT, ignore_end=True):
            assert chunk.finish_reason is None
            break
        gc.collect()
        for _ in range(1000):
            await asyncio.sleep(0.001)
            if not await engine.call(lambda e: e.busy):
                return
        pytest.fail("the answer goes on")

    run(dense, work)


def test_a_timeout_is_a_cancellation(dense: Pair) -> None:
    async def work(engine: AsyncEngine) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await engine.generate(LONG, ignore_end=True)
        assert await engine.call(lambda e: e.busy) is False

    run(dense, work)


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ({"prompt": []}, UsageError),
        ({"prompt": [1] * 5000}, ResourceError),
        ({"prompt": "x", "stop": ""}, UsageError),
        ({"prompt": "x", "nonsense": 1}, TypeError),
    ],
)
def test_errors_are_the_callers(
    dense: Pair, request_: dict[str, Any], kind: type[Exception]
) -> None:
    async def work(engine: AsyncEngine) -> None:
        for ask in (collect, AsyncEngine.generate):
            with pytest.raises(kind):
                await ask(engine, **request_)
        assert (await engine.generate(PROMPT, max_tokens=2, ignore_end=True)).tokens

    run(dense, work)


def test_a_settings_own_error_follows_its_chunk(dense: Pair) -> None:
    bans = {token: float("-inf") for token in range(262)}

    async def work(engine: AsyncEngine) -> None:
        sampling = dflash_gguf.Sampling(temperature=1, logit_bias=bans)
        for ask in (collect, AsyncEngine.generate):
            with pytest.raises(UsageError, match="bans every token"):
                await ask(engine, PROMPT, sampling=sampling)

    run(dense, work)


def test_closing_ends_streams_as_cancelled(dense: Pair) -> None:
    async def main() -> None:
        engine = await AsyncEngine(opener(dense, sequences=1)).open()
        running = asyncio.create_task(collect(engine, PROMPT, ignore_end=True))
        waiting = asyncio.create_task(engine.generate(PROMPT))
        await asyncio.sleep(0.05)
        await engine.close()
        await engine.close()
        assert (await running)[-1].finish_reason == "cancelled"
        with pytest.raises(UsageError, match="closed before the request began"):
            await waiting
        with pytest.raises(UsageError, match="the engine is closed"):
            await engine.generate(PROMPT)
        assert (await engine.open()) is engine  # it stays closed

    within(main())


def test_one_engine_serves_several_event_loops(dense: Pair) -> None:
    engine = AsyncEngine(opener(dense))
    within(engine.open())
    answers = [
        within(engine.generate(PROMPT, max_tokens=9, ignore_end=True)).tokens for _ in range(2)
    ]
    assert answers[0] == answers[1]

    # a loop that is closed in the middle of a stream: nobody is left to hear of it
    loop = asyncio.new_event_loop()
    stream = engine.stream(PROMPT, ignore_end=True)
    loop.run_until_complete(asyncio.wait_for(stream.__anext__(), WAIT))
    loop.close()

    async def idle() -> bool:
        while await engine.call(lambda e: e.busy):
            await asyncio.sleep(0.01)
        return True

    assert within(idle())
    within(engine.close())


def test_opening_twice_at_once_loads_once(dense: Pair) -> None:
    load, loads = opener(dense), list[int]()

    def counted() -> dflash_gguf.Engine:
        loads.append(1)
        return load()

    async def main() -> None:
        engine = AsyncEngine(counted)
        await asyncio.gather(engine.open(), engine.open(), engine.open())
        assert (await engine.generate(PROMPT, max_tokens=2, ignore_end=True)).tokens
        await engine.close()

    within(main())
    assert loads == [1]


@pytest.mark.parametrize("cancelled", [False, True])
def test_closing_while_it_is_opened_leaves_nothing_open(dense: Pair, cancelled: bool) -> None:
    load, loading = opener(dense), threading.Event()
    opened: list[dflash_gguf.Engine] = []

    def slow() -> dflash_gguf.Engine:
        loading.set()
        opened.append(load())
        return opened[-1]

    async def main() -> None:
        engine = AsyncEngine(slow)
        opening = asyncio.create_task(engine.open())
        await asyncio.to_thread(loading.wait)
        if cancelled:
            opening.cancel()
        await engine.close()
        with pytest.raises(UsageError, match="the engine is closed"):
            await engine.generate(PROMPT)
        await asyncio.gather(opening, return_exceptions=True)

    within(main())
    with pytest.raises(UsageError, match="the engine is closed"):
        _ = opened[0].n_ctx


def test_an_engine_that_is_not_open_says_so(tmp_path: Any) -> None:
    async def main() -> None:
        engine = AsyncEngine(lambda: dflash_gguf.load(tmp_path / "none.gguf"))
        with pytest.raises(UsageError, match="not open; use `async with`"):
            await engine.generate(PROMPT)
        with pytest.raises(ModelError, match="cannot be read"):
            await engine.open()
        await engine.close()

    within(main())
