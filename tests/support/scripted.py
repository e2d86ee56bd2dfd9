"""An engine whose drafts are a script: what users get of rounds whose outcomes are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from dflash_gguf import Engine
from dflash_gguf._native import core
from dflash_gguf.parts import Parts

from .random_pairs import VOCAB


class Scripted:
    """An Engine for one answer at a time over a ScriptedDrafter, in f32. Use as a context manager."""

    def __init__(self, target: Path, block: int) -> None:
        native = core()
        model, params = native.Model(str(target)), native.ContextParams()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_outputs = 512, 64, 64, block
        params.n_rollback = block - 1 if model.has_state else 0
        params.n_threads = params.n_threads_batch = 1
        params.type_kv = 0
        context = native.Target(native.Context(model, params), [])
        self.drafter = native.ScriptedDrafter(VOCAB)
        self.session = native.Session(context, self.drafter, block)
        self.engine = Engine(Parts(model, context, self.drafter, block, self.session, 1))

    def script(self, tokens: list[int], counts: list[int]) -> None:
        """Have the next answer's drafts right so often, round by round; tokens: prompt and answer."""
        self.drafter.script(0, tokens, counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()


def letters_only() -> dict[str, Any]:
    """Settings of completions whose text is of different printable letters, one a token."""
    shown = range(33, 94)  # tokens are bytes in the order of byte-level BPE, "!" first
    banned = {token: -1e9 for token in range(VOCAB) if token + 33 not in shown}
    return {"temperature": 0, "repeat_penalty": 1, "presence_penalty": 100, "logit_bias": banned}
