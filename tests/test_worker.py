"""An engine in its own thread: requests from anywhere, none lost, none left hanging."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import DflashError, Engine, ModelError, ResourceError, UsageError, Worker

from .support.random_pairs import Pair
from .support.waiting import WAIT, collect

PROMPT = [72, 101, 108, 108, 111]


def opener(pair: Pair, **options: Any) -> Any:
    settings: dict[str, Any] = {"threads": 1, "context": 1024, "kv_type": "f32"} | options
    return lambda: dflash_gguf.load(pair.target, pair.draft, **settings)


@pytest.fixture(scope="module")
def worker(dense: Pair) -> Iterator[Worker]:
    with Worker(opener(dense, sequences=2)) as worker:
        yield worker


def test_requests_of_many_threads_are_each_answered(dense: Pair, worker: Worker) -> None:
    prompts = [[(i * 31 + k) % 256 for k in range(5 + i)] for i in range(8)]
    texts = [""] * len(prompts)

    def ask(i: int) -> None:
        ticket = worker.submit(prompts[i], max_tokens=20 + i, ignore_end=True)
        texts[i] = "".join(chunk.text for chunk in collect(ticket))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with opener(dense)() as engine:
        assert texts == [
            engine.generate(prompt, max_tokens=20 + i, ignore_end=True).text
            for i, prompt in enumerate(prompts)
        ]


def test_requests_beyond_the_engines_room_wait_their_turn(worker: Worker) -> None:
    tickets = [worker.submit(PROMPT, max_tokens=10 + i, ignore_end=True) for i in range(6)]
    for i, ticket in enumerate(tickets):
        chunks = collect(ticket)
        assert sum(len(chunk.tokens) for chunk in chunks) == 10 + i
        assert chunks[-1].finish_reason == "length"


def test_a_second_iteration_ends_at_once(worker: Worker) -> None:
    ticket = worker.submit(PROMPT, max_tokens=3)
    assert collect(ticket)
    assert collect(ticket) == []
    refused = worker.submit([])
    with pytest.raises(UsageError):
        collect(refused)
    assert collect(refused) == []


def test_a_cancelled_request_ends_and_the_next_is_right(worker: Worker) -> None:
    expected = collect(worker.submit(PROMPT, max_tokens=20, ignore_end=True))
    for _ in range(5):
        ticket = worker.submit(PROMPT, ignore_end=True)
        next(iter(ticket))
        ticket.cancel()
        assert collect(ticket)[-1].finish_reason == "cancelled"
        assert collect(worker.submit(PROMPT, max_tokens=20, ignore_end=True)) == expected
        ticket.cancel()  # harmless now


def test_a_waiting_request_can_be_cancelled(worker: Worker) -> None:
    running = [worker.submit(PROMPT, ignore_end=True) for _ in range(2)]
    waiting = worker.submit(PROMPT)
    waiting.cancel()
    assert [chunk.finish_reason for chunk in collect(waiting)] == ["cancelled"]
    assert waiting.sequence is None
    for ticket in running:
        ticket.cancel()
        collect(ticket)


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ({"prompt": []}, UsageError),
        ({"prompt": [1] * 1024}, ResourceError),
        ({"prompt": "x", "block": 99}, UsageError),
        ({"prompt": "x", "nonsense": 1}, TypeError),
        ({"prompt": object()}, UsageError),
    ],
)
def test_errors_reach_the_ticket_and_the_worker_lives_on(
    worker: Worker, request_: dict[str, Any], kind: type[Exception]
) -> None:
    arguments = dict(request_)
    with pytest.raises(kind):
        collect(worker.submit(arguments.pop("prompt"), **arguments))
    assert collect(worker.submit(PROMPT, max_tokens=2, ignore_end=True))


def test_calls_return_what_they_find_or_raise(worker: Worker) -> None:
    assert worker.call(lambda engine: engine.n_ctx).result(WAIT) == 1024
    with pytest.raises(ZeroDivisionError):
        worker.call(lambda _engine: 1 // 0).result(WAIT)
    assert worker.call(lambda engine: engine.free).result(WAIT) == 2


def test_a_call_that_nobody_waits_for_is_not_made(worker: Worker) -> None:
    ready, made = threading.Event(), []
    worker.call(lambda _engine: ready.wait(WAIT))
    forgotten = worker.call(lambda _engine: made.append(1))
    assert forgotten.cancel()
    ready.set()
    assert worker.call(lambda engine: engine.free).result(WAIT) == 2
    assert made == []


def test_an_answer_begun_by_a_call_disturbs_nobody(worker: Worker) -> None:
    answer = worker.call(lambda engine: engine.start(PROMPT, max_tokens=4)).result(WAIT)
    assert collect(worker.submit(PROMPT, max_tokens=20, ignore_end=True))
    assert answer.finish_reason is not None


def test_a_failing_engine_ends_its_requests_and_goes_on(
    dense: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Worker(opener(dense, sequences=2)) as worker:
        step = Engine.step

        def fail(engine: Engine) -> Any:
            monkeypatch.setattr(Engine, "step", step)
            raise failure

        for failure in (DflashError("the target broke"), ZeroDivisionError("a bug")):
            ready = threading.Event()
            worker.call(lambda _engine, ready=ready: ready.wait(WAIT))
            tickets = [worker.submit(PROMPT, ignore_end=True) for _ in range(2)]
            monkeypatch.setattr(Engine, "step", fail)
            ready.set()
            for ticket in tickets:
                with pytest.raises(type(failure)):
                    collect(ticket)
            assert worker.call(lambda engine: engine.free).result(WAIT) == 2
            assert collect(worker.submit(PROMPT, max_tokens=2, ignore_end=True))


def test_closing_ends_running_and_waiting_requests(dense: Pair) -> None:
    worker = Worker(opener(dense))
    running, waiting = (worker.submit(PROMPT, ignore_end=True) for _ in range(2))
    next(iter(running))
    worker.close()
    worker.close()
    for ticket in (running, waiting):
        assert collect(ticket)[-1].finish_reason == "cancelled"
        ticket.cancel()
    with pytest.raises(UsageError, match="the engine is closed"):
        worker.submit(PROMPT)
    with pytest.raises(UsageError, match="the engine is closed"):
        worker.call(lambda engine: engine.n_ctx)


def test_requests_that_race_with_closing_all_end(dense: Pair) -> None:
    worker = Worker(opener(dense))
    ended: list[str] = []

    def ask() -> None:
        while True:
            try:
                ticket = worker.submit(PROMPT, max_tokens=3)
            except UsageError:
                return
            ended.append(collect(ticket)[-1].finish_reason)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(ended) < 8:
        threading.Event().wait(0.01)
    worker.close()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert set(ended) <= {"length", "stop", "cancelled"}


def test_closing_from_its_own_thread_does_not_wait_for_itself(dense: Pair) -> None:
    worker = Worker(opener(dense))
    worker.call(lambda _engine: worker.close()).result(WAIT)
    worker.close()


def test_errors_at_opening_are_the_callers(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        Worker(lambda: dflash_gguf.load(tmp_path / "none.gguf"))


def test_the_engine_belongs_to_the_worker(worker: Worker) -> None:
    engines: list[Engine] = []
    worker.call(engines.append).result(WAIT)
    with pytest.raises(UsageError, match="use a Worker"):
        engines[0].generate("hi")


def test_a_process_may_end_with_a_worker_at_work(dense: Pair, tmp_path: Path) -> None:
    code = f"""
import dflash_gguf
worker = dflash_gguf.Worker(lambda: dflash_gguf.load({str(dense.target)!r}, {str(dense.draft)!r}, threads=1))
ticket = worker.submit([1, 2, 3], ignore_end=True)
print(next(iter(ticket)).finish_reason)
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "None\n", "")
