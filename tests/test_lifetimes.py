"""Whatever is closed or forgotten, in whatever order: exceptions, never a crash (L2).

In processes of their own, so that a crash is a failure and not the end of the tests.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("code", [NATIVE, ENGINES], ids=["native", "engines"])
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
