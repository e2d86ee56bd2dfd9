"""Whatever a drafter or a remade context fails at, and when: the answers go on, and are the target's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

import dflash_gguf
from dflash_gguf import DflashError, Engine, Sampling
from dflash_gguf._native import core

from .support.edited import edited
from .support.random_pairs import VOCAB, Pair
from .support.sessions import ENDLESS, finish, open_session, plain
from .test_auto import CHEAP, steer

PROMPTS = [[(i * 37 + 11 * k) % 256 for k in range(8 + 5 * i)] for i in range(3)]
QUICK: dict[str, Any] = {"threads": 1, "context": 512, "kv_type": "f32"}


def answered(pair: Pair, drafter: Any, blocks: list[int], *, auto: bool = False) -> str:
    """Answer three prompts together and check the texts; return why drafting stopped."""
    expected = [plain(pair.target, prompt, 60) for prompt in PROMPTS]
    session = open_session(pair.target, block=8, sequences=3, drafter=drafter)
    if auto:
        steer(session)
    said: dict[int, list[int]] = {}
    for prompt, text, block in zip(PROMPTS, expected, blocks, strict=True):
        number = session.add(prompt, max_tokens=60, block=block, stops=ENDLESS)
        drafter.script(number, prompt + text, [5, 0, 7, 2])
        said[number] = []
        for output in session.step():
            said[output.id] += output.tokens
    for number, rest in finish(session, list(said)).items():
        said[number] += rest
    assert list(said.values()) == expected
    failure: str = session.draft_failure
    return failure


@pytest.mark.parametrize("rows", [0, 7, 8, 20, 25, 60, 100])
@pytest.mark.parametrize("auto", [False, True])
def test_an_injection_fails(pair: Pair, rows: int, auto: bool) -> None:
    """In a prompt, behind a verify, and of features that have waited."""
    drafter = core().ScriptedDrafter(VOCAB)
    drafter.fail_behind(rows)
    blocks = [0, 0, 0] if auto else [8, 8, 3]
    assert answered(pair, drafter, blocks, auto=auto) == "scripted failure of an injection"


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize(("number", "round_"), [(0, 0), (1, 2), (2, 1)])
def test_a_draft_of_several_fails(pair: Pair, number: int, round_: int, auto: bool) -> None:
    drafter = core().ScriptedDrafter(VOCAB)
    drafter.fail_at(number, round_)
    blocks = [0, 0, 0] if auto else [8, 8, 3]
    assert answered(pair, drafter, blocks, auto=auto) == f"scripted failure in round {round_}"


@pytest.mark.parametrize("sampling", [None, Sampling(temperature=0.8, seed=3)])
def test_drafts_that_are_not_numbers_are_none(
    pair: Pair, tmp_path: Path, sampling: Sampling | None
) -> None:
    broken = Pair(pair.target, edited(pair.draft, tmp_path / "d.gguf"))
    reader = GGUFReader(broken.draft, "r+")
    (norm,) = (tensor for tensor in reader.tensors if tensor.name == "output_norm.weight")
    norm.data[:] = np.float32("nan")
    reader.data.flush()
    options: dict[str, Any] = {"max_tokens": 40, "ignore_end": True, "sampling": sampling}
    with dflash_gguf.load(pair.target, **QUICK) as engine:
        expected = [engine.generate(prompt, **options).tokens for prompt in PROMPTS]
    with dflash_gguf.load(broken.target, broken.draft, sequences=3, **QUICK) as engine:
        answers = [engine.start(prompt, block=5, **options) for prompt in PROMPTS]
        while engine.busy:
            engine.step()
    assert [answer.tokens for answer in answers] == expected
    assert all(a.stats is not None and a.stats.drafted == 0 for a in answers)


def wide(session: Any, drafter: Any, prompt: list[int], expected: list[int]) -> int:
    """Begin an answer whose drafts are all right, so that the widest blocks pay."""
    number: int = session.add(prompt, max_tokens=len(expected), block=0, stops=ENDLESS)
    drafter.script(number, prompt + expected, [7])
    return number


def hybrid_session(hybrid: Pair, drafter: Any) -> tuple[Any, Any]:
    native = core()
    model, params = native.Model(str(hybrid.target)), native.ContextParams()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_outputs = 512, 64, 64, 16
    params.n_seq, params.n_rollback, params.type_kv = 2, 7, 0
    params.n_threads = params.n_threads_batch = 1
    target = native.Target(native.Context(model, params), [])
    return native.Session(target, drafter, 8, prefix_memory=10**8), target


@pytest.mark.parametrize("room", [0, 2, 5])
def test_without_memory_for_more_snapshots_blocks_stay_narrow(hybrid: Pair, room: int) -> None:
    expected = [plain(hybrid.target, prompt, 80) for prompt in PROMPTS[:2]]
    drafter = core().ScriptedDrafter(VOCAB)
    session, target = hybrid_session(hybrid, drafter)
    steer(session, CHEAP, depth=7)
    target.reshape(room)
    target.pretend_room(room)
    numbers = [wide(session, drafter, p, e) for p, e in zip(PROMPTS, expected, strict=False)]
    texts = finish(session, numbers)
    assert [texts[number] for number in numbers] == expected
    assert "snapshots has no room" in session.shift_failure
    assert session.depth <= room
    assert all(len(session.counters(number).drafted_at) <= room for number in numbers)


def test_a_target_that_is_lost_says_so_to_every_request(hybrid: Pair) -> None:
    with dflash_gguf.load(hybrid.target, hybrid.draft, sequences=2, **QUICK) as engine:
        answers = [engine.start(prompt) for prompt in PROMPTS[:2]]
        engine.step()
        lose(engine)
        with pytest.raises(DflashError, match="no memory was left for the target's context"):
            engine.step()
        assert [answer.finish_reason for answer in answers] == ["cancelled", "cancelled"]
        for _ in range(2):
            with pytest.raises(DflashError, match="no memory was left for the target's context"):
                engine.generate(PROMPTS[0])
        assert engine.free == 2


def lose(engine: Engine) -> None:
    """Leave the engine without its target's context, as a failure in the middle of a change would."""
    assert engine._parts is not None
    target = engine._parts.target
    target.pretend_room(-1)
    with pytest.raises(RuntimeError, match="has no room"):
        target.reshape(target.depth + 1)
