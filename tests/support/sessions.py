"""A session of the C++ core with a scripted or simulated drafter, below the Engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dflash_gguf._native import core

ENDLESS: set[int] = set()


def open_session(
    target: Path,
    *,
    block: int,
    sequences: int = 1,
    drafter: Any = None,
    n_ctx: int = 512,
    n_batch: int = 64,
    n_ubatch: int | None = None,
    replay: bool = False,
    prefix_memory: int = 0,
    exact: bool = True,
) -> Any:
    """Open a target in f32 with a drafter that needs no model; one thread, so that tests run side by side.

    replay: keep no states to go back to, decode accepted tokens again. exact: without flash attention, whose
    half precision makes logits depend on how a text is cut into batches (by 0.01, else by 0.00001).
    """
    native = core()
    model = native.Model(str(target))
    params = native.ContextParams()
    params.n_ctx = n_ctx
    params.n_batch = n_batch
    params.n_ubatch = n_ubatch or n_batch
    params.n_seq = sequences
    params.n_outputs = sequences * block
    params.n_rollback = block - 1 if model.has_state and not replay else 0
    params.n_threads = params.n_threads_batch = 1
    params.type_kv = 0
    if exact:
        params.flash_attn = 0
    target_context = native.Target(native.Context(model, params), [])
    return native.Session(
        target_context, drafter, block, replay=replay, prefix_memory=prefix_memory
    )


def finish(session: Any, ids: Sequence[int]) -> dict[int, list[int]]:
    """Step until all of `ids` have ended; return their tokens."""
    tokens: dict[int, list[int]] = {number: [] for number in ids}
    waiting = set(ids)
    while waiting:
        for output in session.step():
            tokens[output.id] += output.tokens
            if output.finish != core().Finish.none:
                waiting.discard(output.id)
    return tokens


def plain(target: Path, prompt: list[int], n: int, **options: Any) -> list[int]:
    """Return the target's own greedy continuation, one row at a time."""
    session = open_session(target, block=1, **options)
    number = session.add(prompt, max_tokens=n, block=1, stops=ENDLESS)
    return finish(session, [number])[number]
