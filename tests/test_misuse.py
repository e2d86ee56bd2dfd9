"""Misuse of an engine in threads, callbacks, garbage and forks: a clear error, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import AsyncEngine, Engine, UsageError, Worker
from dflash_gguf import engine as engine_module
from dflash_gguf._native import core

from .support.random_pairs import Pair
from .support.waiting import WAIT, collect

PROMPT = [72, 101, 108, 108, 111]


def opener(pair: Pair, **options: Any) -> Callable[[], Engine]:
    settings: dict[str, Any] = {"threads": 1, "context": 512, "kv_type": "f32", "sequences": 2}
    return lambda: dflash_gguf.load(pair.target, pair.draft, **(settings | options))


@pytest.mark.parametrize("made", [None, 5, lambda: None])
def test_an_opener_that_makes_no_engine_is_refused(made: Any) -> None:
    with pytest.raises(UsageError, match=r"open_engine returned .*; expected an Engine"):
        Worker(lambda: made)


def test_an_engine_of_another_thread_is_refused(dense: Pair) -> None:
    with opener(dense)() as engine:
        with pytest.raises(UsageError, match=r"the worker cannot use .*; have it load one"):
            Worker(lambda: engine)
        assert engine.generate(PROMPT, max_tokens=2, ignore_end=True).tokens


def test_an_action_that_exits_tells_its_caller_and_the_worker_lives_on(dense: Pair) -> None:
    with Worker(opener(dense)) as worker:
        with pytest.raises(SystemExit):
            worker.call(lambda _engine: sys.exit(3)).result(WAIT)
        assert collect(worker.submit(PROMPT, max_tokens=2, ignore_end=True))


def test_a_callback_that_exits_loses_its_own_request_alone(dense: Pair) -> None:
    with Worker(opener(dense)) as worker:
        other = worker.submit(PROMPT, max_tokens=60, ignore_end=True)
        worker.deliver(lambda _item: sys.exit(3), PROMPT, ignore_end=True)
        assert collect(other)[-1].finish_reason == "length"
        assert worker.call(lambda engine: engine.busy).result(WAIT) is False


def test_a_prompt_that_exits_is_its_tickets(dense: Pair) -> None:
    class Leaving(list[int]):
        def __iter__(self) -> Any:
            sys.exit(3)

    with Worker(opener(dense)) as worker:
        with pytest.raises(SystemExit):
            collect(worker.submit(Leaving()))
        assert collect(worker.submit(PROMPT, max_tokens=2, ignore_end=True))


def test_an_action_that_reads_a_ticket_is_told_so(dense: Pair) -> None:
    with Worker(opener(dense)) as worker:
        with pytest.raises(UsageError, match="own thread would wait for itself"):
            worker.call(lambda _engine: list(worker.submit(PROMPT))).result(WAIT)
        assert collect(worker.submit(PROMPT, max_tokens=2, ignore_end=True))


def test_an_action_that_closes_the_engine_ends_all_requests(dense: Pair) -> None:
    worker = Worker(opener(dense, sequences=1))
    running, waiting = (worker.submit(PROMPT, ignore_end=True) for _ in range(2))
    chunks = iter(running)
    next(chunks)
    worker.call(lambda engine: engine.close()).result(WAIT)
    assert collect(chunks)[-1].finish_reason == "cancelled"
    assert collect(waiting)[-1].finish_reason == "cancelled"
    assert running.sequence is not None
    assert running.sequence.stats is not None
    with pytest.raises(UsageError, match="the engine is closed"):
        worker.submit(PROMPT)


def test_an_action_that_takes_steps_takes_no_chunks(dense: Pair) -> None:
    long = 400
    with Worker(opener(dense)) as worker, opener(dense)() as alone:
        ticket = worker.submit(PROMPT, max_tokens=40, ignore_end=True)
        chunks = iter(ticket)
        first = next(chunks)

        def answer(engine: Engine) -> list[int]:
            return engine.generate([1, 2], max_tokens=long, ignore_end=True).tokens

        assert len(worker.call(answer).result(WAIT)) == long
        found = [first, *collect(chunks)]
        own = alone.generate(PROMPT, max_tokens=40, ignore_end=True)
        assert [token for chunk in found for token in chunk.tokens] == own.tokens
        assert "".join(chunk.text for chunk in found) == own.text
        assert found[-1].finish_reason == "length"


def test_an_exit_in_what_a_stream_is_made_of_reaches_its_reader(
    dense: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dflash_gguf.openai_choices import ChatShape

    monkeypatch.setattr(ChatShape, "pieces", lambda *_: sys.exit(3))

    async def main() -> None:
        async with AsyncEngine(opener(dense)) as engine, asyncio.timeout(WAIT):
            turns = [{"role": "user", "content": "hi"}]
            try:
                async for _ in await engine.create_chat_completion(turns, stream=True):
                    pass
            except SystemExit:
                return
        pytest.fail("nobody heard of it")

    asyncio.run(main())


def test_garbage_collected_in_the_middle_of_a_step_waits_for_its_end(
    dense: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opener(dense, sequences=3)() as engine:

        def forget() -> None:
            cycle: dict[str, Any] = {}
            cycle["itself"] = cycle
            cycle["stream"] = engine.stream(PROMPT, ignore_end=True)
            next(cycle["stream"])

        gc.disable()
        try:
            first = engine.start(PROMPT, max_tokens=4, ignore_end=True)
            forget()
            last = engine.start(PROMPT[::-1], max_tokens=4, ignore_end=True)
            reason = engine_module.finish_reason

            def collecting(*args: Any) -> Any:
                gc.collect()
                return reason(*args)

            monkeypatch.setattr(engine_module, "finish_reason", collecting)
            while last.finish_reason is None:
                engine.step()
        finally:
            gc.enable()
        assert (first.finish_reason, last.finish_reason) == ("length", "length")
        engine.step()
        assert not engine.busy


def test_an_answer_of_another_engine_cannot_be_followed(dense: Pair) -> None:
    with opener(dense)() as one, opener(dense)() as other:
        theirs = one.start(PROMPT)
        with pytest.raises(UsageError, match="belongs to another engine"):
            next(other.follow(theirs))
        assert theirs.finish_reason is None
        one.cancel(theirs)


FORKED = """
import os, signal, sys
import dflash_gguf
from dflash_gguf import UsageError, Worker
target, draft = sys.argv[1:]

def load():
    return dflash_gguf.load(target, draft, threads=2, context=256)

engine, worker = load(), Worker(load)
engine.generate([1, 2, 3], max_tokens=4)
begun = worker.submit([1, 2, 3], ignore_end=True)
next(iter(begun))
child = os.fork()
if child == 0:
    signal.alarm(60)  # a hang is no success
    for use in (
        lambda: engine.generate([1, 2, 3]),
        lambda: worker.submit([1, 2, 3]),
        lambda: next(iter(begun)),
        lambda: worker.call(lambda engine: engine.free),
    ):
        try:
            use()
        except UsageError as error:
            print(error, flush=True)
    begun.cancel()
    worker.close()
    sys.exit(0)
status = os.waitpid(child, 0)[1]
assert engine.generate([1, 2, 3], max_tokens=4).tokens
begun.cancel()
print("child", status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_is_told_to_load_its_own(dense: Pair, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, str(dense.target), str(dense.draft)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * WAIT,
    )
    lines = result.stdout.splitlines()
    assert lines[0] == "an engine stays in the process that loaded it; load one in this process"
    assert set(lines[1:4]) == {
        "a worker stays in the process that made it; make one in this process"
    }
    assert lines[4:] == ["child 0"], result.stderr


def test_closing_from_another_thread_ends_its_answers(dense: Pair) -> None:
    engine = opener(dense)()
    answer = engine.start(PROMPT, ignore_end=True)
    engine.step()
    thread = threading.Thread(target=engine.close)
    thread.start()
    thread.join(WAIT)
    assert engine.closed
    assert answer.finish_reason == "cancelled"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"n_threads": 0}, "n_threads is 0, expected 1 to 512"),
        ({"n_threads_batch": 513}, "n_threads_batch is 513, expected 1 to 512"),
        ({"flash_attn": 7}, "flash_attn is 7, expected -1"),
        ({"n_ctx": 2**31 - 1, "n_seq": 2, "n_outputs": 2}, "at most 2147483647 of all sequences"),
    ],
)
def test_what_llama_cpp_would_end_the_process_on_is_refused(
    dense: Pair, settings: dict[str, int], expected: str
) -> None:
    def make() -> None:
        params = core().ContextParams()
        params.n_ctx = 64
        for name, value in settings.items():
            setattr(params, name, value)
        core().Context(core().Model(str(dense.target)), params)

    with pytest.raises(ValueError, match=expected):
        make()


def test_errors_of_loads_at_the_same_time_are_not_mixed(dense: Pair, tmp_path: Path) -> None:
    whole = dense.target.read_bytes()
    files = [tmp_path / f"{number}.gguf" for number in range(6)]

    def fault(path: Path) -> str:
        with pytest.raises(RuntimeError) as caught:
            core().Model(str(path))
        return str(caught.value)

    def ask(path: Path, into: set[str]) -> None:
        into.update(fault(path) for _ in range(40))

    for number, path in enumerate(files):
        path.write_bytes(whole[: len(whole) - 1000 - 60_000 * number])
    alone = [{fault(path)} for path in files]  # each names a tensor
    assert len({text for texts in alone for text in texts}) == len(files)
    together: list[set[str]] = [set() for _ in files]
    threads = [
        threading.Thread(target=ask, args=each) for each in zip(files, together, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert together == alone
