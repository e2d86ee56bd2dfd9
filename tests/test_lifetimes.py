"""Whatever is closed or forgotten, in whatever order: exceptions, never a crash (L2).

In processes of their own, so that a crash is a failure and not the end of the tests.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import dflash_gguf
from dflash_gguf import Worker

from .support.random_pairs import Pair

NATIVE = """
import gc, itertools, random, sys
from dflash_gguf._native import core
native = core()
target_path, draft_path, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])

def parts():
    model = native.Model(target_path)
    params = native.ContextParams()
    params.n_ctx, params.n_outputs, params.n_rollback = 256, 8, 7 if model.has_state else 0
    params.n_threads = params.n_threads_batch = 1
    context = native.Context(model, params)
    draft_model = native.Model(draft_path)
    params = native.ContextParams()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_outputs, params.unified = 256, 64, 64, 64, True
    params.n_threads = params.n_threads_batch = 1
    drafter = native.ModelDrafter(draft_model, params, context, 259, [True] + [False] * (draft_model.n_layer - 1))
    target = native.Target(context, draft_model.taps)
    session = native.Session(target, drafter, 8)
    return dict(model=model, context=context, draft_model=draft_model, drafter=drafter,
                target=target, session=session)

choose = random.Random(seed)
for _ in range(12):
    held = parts()
    number = held["session"].add([1, 2, 3], max_tokens=200, block=8, stops=set())
    names = list(held)
    choose.shuffle(names)
    for name in names:
        if "session" in held:
            held["session"].step()
        del held[name]
        gc.collect()
print("fine")
"""

ENGINES = """
import gc, random, sys
import dflash_gguf
from dflash_gguf import DflashError
target, draft, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
choose = random.Random(seed)
held = []
for _ in range(120):
    what = choose.randrange(8)
    try:
        if what == 0 and len(held) < 4:
            held.append(dflash_gguf.load(target, draft if choose.random() < 0.7 else None, threads=1, context=256,
                                         sequences=choose.choice([1, 2])))
        elif not held:
            continue
        elif what == 1:
            choose.choice(held).close()
        elif what == 2:
            del held[choose.randrange(len(held))]
        elif what == 3:
            gc.collect()
        elif what == 4:
            next(choose.choice(held).stream([1, 2, 3]))
        elif what == 5:
            choose.choice(held).start([choose.randrange(256)] * 300 if choose.random() < 0.2 else [7])
        else:
            for _ in range(choose.randrange(5)):
                choose.choice(held).step()
    except DflashError:
        pass
print("fine")
"""

GENERATORS = """
import gc, random, sys, threading
import dflash_gguf
from dflash_gguf import DflashError
target, draft, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
choose = random.Random(seed)

def elsewhere(action):
    thread = threading.Thread(target=action)
    thread.start()
    return thread

engines, streams, threads = [], [], []
for _ in range(80):
    what = choose.randrange(9)
    try:
        if what == 0 and len(engines) < 3:
            engines.append(dflash_gguf.load(target, draft, threads=1, context=256, sequences=3))
        elif what in (1, 2) and engines:
            engine = choose.choice(engines)
            make = choose.choice([engine.stream, lambda p: engine.create_chat_completion(p, stream=True)])
            streams.append(make([{"role": "user", "content": "hi"}]))
            next(streams[-1])
        elif what in (3, 4) and streams:
            next(choose.choice(streams), None)
        elif what == 5 and streams:
            forgotten = [streams.pop(choose.randrange(len(streams)))]
            threads.append(elsewhere(forgotten.clear))
        elif what == 6 and engines:
            threads.append(elsewhere(engines.pop(choose.randrange(len(engines))).close))
        elif what == 7 and engines:
            del engines[choose.randrange(len(engines))]
        else:
            gc.collect()
    except DflashError:
        pass
    if seed:
        [thread.join() for thread in threads]
print("fine")
"""

WORKERS = """
import gc, random, sys, threading
import dflash_gguf
from dflash_gguf import UsageError, Worker
target, draft, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
choose = random.Random(seed)

def elsewhere(action):
    threading.Thread(target=action).start()

def load():
    return dflash_gguf.load(target, draft, threads=1, context=512, sequences=choose.choice([1, 3]))

workers, tickets = [], []
for _ in range(80):
    what = choose.randrange(9)
    try:
        if what == 0 and len(workers) < 3:
            workers.append(Worker(load))
        elif what in (1, 2) and workers:
            length = choose.choice([1, 300, 600])
            tickets.append(iter(choose.choice(workers).submit([1] * length, ignore_end=True)))
        elif what == 3 and tickets:
            next(choose.choice(tickets), None)
        elif what == 4 and workers:
            worker = choose.choice(workers)
            elsewhere(worker.close)
            elsewhere(worker.close)
        elif what == 5 and workers:
            del workers[choose.randrange(len(workers))]
        elif what == 6 and tickets:
            del tickets[choose.randrange(len(tickets))]
        elif what == 7 and workers:
            ticket = choose.choice(workers).submit([7])
            elsewhere(ticket.cancel)
            elsewhere(ticket.cancel)
        else:
            gc.collect()
    except dflash_gguf.DflashError:
        pass
worker = Worker(load)  # and the process ends with it at work
worker.submit([1] * 400, ignore_end=True)
print("fine")
"""

COROUTINES = """
import asyncio, gc, random, sys
import dflash_gguf
from dflash_gguf import AsyncEngine, DflashError
target, draft, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
choose = random.Random(seed)

async def read(engine, chunks):
    try:
        stream = engine.stream([1] * choose.choice([1, 300, 600]), ignore_end=True)
        if choose.random() < 0.4:
            stream = await engine.create_chat_completion([{"role": "user", "content": "hi"}], stream=True)
        async for _ in stream:
            chunks -= 1
            if chunks == 0:
                break
    except DflashError:
        pass

async def main(engine):
    await engine.open()
    tasks = []
    for _ in range(25):
        tasks.append(asyncio.create_task(read(engine, choose.randrange(6))))
        await asyncio.sleep(choose.choice([0, 0.001, 0.01]))
        if choose.random() < 0.4:
            choose.choice(tasks).cancel()
        if choose.random() < 0.1:
            gc.collect()
    if choose.random() < 0.5:
        await engine.close()
    # the loop ends with tasks in progress

for _ in range(3):
    engine = AsyncEngine(lambda: dflash_gguf.load(target, draft, threads=1, context=512, sequences=4))
    asyncio.run(main(engine))
print("fine")
"""

LOOPS = """
import asyncio, gc, random, sys
import dflash_gguf
from dflash_gguf import AsyncEngine, DflashError
target, draft, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
choose = random.Random(seed)
TURNS = [{"role": "user", "content": "hi"}]

def load():
    return dflash_gguf.load(target, draft, threads=1, context=1024, sequences=2)

def stream(loop, engine):
    if choose.random() < 0.5:
        return engine.stream([1] * choose.choice([1, 300]), ignore_end=True)
    return loop.run_until_complete(engine.create_chat_completion(TURNS, stream=True))

loop, engines, streams = asyncio.new_event_loop(), [], []  # each stream with the loop it was begun in
ACTIONS = "open stream read forget leave lose close drop collect".split()
for _ in range(60):
    (what,) = choose.choices(ACTIONS, [4, 8, 4, 1, 1, 3, 1, 1, 1])
    try:
        if what == "open" and len(engines) < 2:
            engines.append(AsyncEngine(load))
            loop.run_until_complete(engines[-1].open())
        elif what == "stream" and engines:
            streams.append((loop, stream(loop, choose.choice(engines))))
            loop.run_until_complete(anext(streams[-1][1]))
        elif what == "read" and streams:
            own, begun = choose.choice(streams)
            if not own.is_closed():
                own.run_until_complete(anext(begun, None))
        elif what == "forget" and streams:
            del streams[choose.randrange(len(streams))]
        elif what == "leave" and streams:
            own, begun = streams.pop(choose.randrange(len(streams)))
            if not own.is_closed():
                own.run_until_complete(begun.aclose())
        elif what == "lose":
            loop.close()  # with whatever is open in it
            loop = asyncio.new_event_loop()
            for engine in engines:  # whose thread must not die of it
                loop.run_until_complete(asyncio.wait_for(engine.call(lambda own: own.free), 60))
        elif what == "close" and engines:
            engine = choose.choice(engines)
            loop.run_until_complete(engine.close())
            engines.remove(engine)
        elif what == "drop" and engines:
            del engines[choose.randrange(len(engines))]
        else:
            gc.collect()
    except DflashError:
        pass
print("fine")
"""


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "code",
    [NATIVE, ENGINES, GENERATORS, WORKERS, COROUTINES, LOOPS],
    ids=["native", "engines", "generators", "workers", "coroutines", "loops"],
)
def test_nothing_crashes(pair: Pair, tmp_path: Path, code: str, seed: int) -> None:
    result = subprocess.run(
        [
            sys.executable,
            "-X",
            "faulthandler",
            "-c",
            code,
            str(pair.target),
            str(pair.draft),
            str(seed),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout.strip()) == (0, "fine"), result.stderr
    assert "Exception ignored" not in result.stderr, result.stderr
    assert "Exception in thread" not in result.stderr, result.stderr


def test_a_worker_that_nobody_holds_frees_its_engine(dense: Pair) -> None:
    def threads() -> int:
        return sum(thread.name == "dflash-engine" for thread in threading.enumerate())

    before = threads()
    worker = Worker(lambda: dflash_gguf.load(dense.target, threads=1, context=256))
    chunks = iter(worker.submit([1, 2, 3], max_tokens=40, ignore_end=True))
    next(chunks)
    del worker
    assert [chunk.finish_reason for chunk in chunks][-1] == "length"  # its request still ends
    del chunks
    for _ in range(200):
        gc.collect()
        if threads() == before:
            return
        time.sleep(0.05)
    pytest.fail("its thread goes on")


def test_a_stream_that_another_thread_forgets_is_cancelled(dense: Pair) -> None:
    with dflash_gguf.load(dense.target, threads=1, context=256) as engine:
        streams = [engine.stream([1, 2, 3], ignore_end=True)]
        next(streams[0])
        thread = threading.Thread(target=streams.clear)
        thread.start()
        thread.join()
        assert engine.generate([1, 2, 3], max_tokens=5, ignore_end=True).finish_reason == "length"
