"""The real drafter in a session: whatever was read, drafted and rejected, its cache is a fresh one's.

Drafts of random pairs are hardly ever right, so the text does not tell; their logits do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from dflash_gguf._native import core

from .support.edited import edited
from .support.random_pairs import MASK, Pair
from .support.sessions import ENDLESS

BLOCK = 8
PROMPTS = [[(i * 37 + 11 * k) % 256 for k in range(7 + 9 * i)] for i in range(3)]


def strengthened(pair: Pair, to: Path) -> Pair:
    """Make the drafter listen to its context, which else moves a random one's logits by too little to see."""
    draft = edited(pair.draft, to)
    reader = GGUFReader(draft, "r+")
    for tensor in reader.tensors:
        if tensor.name.endswith(("attn_v.weight", "attn_output.weight")):
            tensor.data[:] *= 10
    reader.data.flush()
    return Pair(pair.target, draft)


@pytest.fixture(scope="module")
def strong(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return strengthened(pair, tmp_path_factory.mktemp("strong") / "d.gguf")


@pytest.fixture(scope="module")
def strong_dense(dense: Pair, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return strengthened(dense, tmp_path_factory.mktemp("strong") / "d.gguf")


class Rig:
    """A session with the pair's own drafter, its parts at hand."""

    def __init__(
        self,
        pair: Pair,
        *,
        sequences: int = 1,
        n_batch: int = 64,
        mask: int = MASK,
        causal: bool | list[bool] = False,
        taps: list[int] | None = None,
        draft: dict[str, Any] | None = None,
    ) -> None:
        native = core()
        self.model, drafter = native.Model(str(pair.target)), native.Model(str(pair.draft))
        self.params = params = native.ContextParams()
        params.n_ctx, params.n_seq, params.type_kv = 256, sequences, 0
        params.n_threads = params.n_threads_batch = 1
        params.n_batch = params.n_ubatch = n_batch
        params.n_outputs = sequences * BLOCK
        params.n_rollback = BLOCK - 1 if self.model.has_state else 0
        context = native.Context(self.model, params)
        params.n_rollback, params.unified = 0, True
        params.n_batch = params.n_ubatch = params.n_outputs = sequences * BLOCK
        for name, value in (draft or {}).items():
            setattr(params, name, value)
        layers = [causal] * drafter.n_layer if isinstance(causal, bool) else causal
        self.drafter = native.ModelDrafter(drafter, params, context, mask, layers)
        self.target = native.Target(context, taps or drafter.taps)
        self.session = native.Session(self.target, self.drafter, BLOCK)
        self.tokens: dict[int, list[int]] = {}

    def add(self, prompt: list[int], *, block: int = BLOCK, max_tokens: int = 100) -> int:
        options = {"max_tokens": max_tokens, "block": block, "stops": ENDLESS}
        number: int = self.session.add(prompt, **options)
        self.tokens[number] = list(prompt)
        return number

    def step(self) -> None:
        for output in self.session.step():
            self.tokens[output.id] += output.tokens

    def logits(self, number: int, count: int = BLOCK - 1) -> Any:
        *before, anchor = self.tokens[number]
        return self.drafter.block_logits(number, len(before), anchor, count)


def fresh(pair: Pair, tokens: list[int], **options: Any) -> Rig:
    """Read all but the last token in one batch; the last is the anchor of a block."""
    rig = Rig(pair, n_batch=200, **options)
    rig.add(tokens[:-1], max_tokens=1)
    rig.step()
    rig.tokens[0] = tokens
    return rig


def assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


CACHES = pytest.mark.parametrize("unified", [True, False], ids=["unified", "split"])


@CACHES
def test_drafts_after_rounds_are_those_of_a_fresh_reading(  # R6, B7
    strong: Pair, unified: bool
) -> None:
    rig = Rig(strong, sequences=3, n_batch=24, draft={"unified": unified})
    ids = [rig.add(prompt, block=BLOCK - i) for i, prompt in enumerate(PROMPTS)]
    for _ in range(8):
        rig.step()
    rig.session.remove(ids[1])
    ids[1] = rig.add(PROMPTS[1][::-1])  # the id is used again
    for _ in range(4):
        rig.step()
    assert rig.session.draft_failure == ""
    for number in ids:
        assert_close(rig.logits(number), fresh(strong, rig.tokens[number]).logits(0))


@CACHES
def test_drafts_of_many_are_the_best_of_their_own_rows(strong: Pair, unified: bool) -> None:
    rig = Rig(strong, sequences=3, draft={"unified": unified})
    turns = []
    for i, prompt in enumerate(PROMPTS):
        rig.add(prompt)
        while len(rig.tokens[i]) == len(prompt):
            rig.step()
    for i, count in enumerate([5, 7, 2]):
        *before, anchor = rig.tokens[i]
        turns.append((i, len(before), anchor, count))
    drafted = rig.drafter.draft(turns)
    assert [len(tokens) for tokens in drafted] == [5, 7, 2]
    for i, tokens in enumerate(drafted):
        # a split cache takes blocks of one width, and noise that is not read is part of a block
        rows = rig.logits(i, len(tokens) if unified else 7)
        assert tokens == rows.argmax(axis=1)[1 : len(tokens) + 1].tolist()


def test_only_a_causal_drafters_rows_do_not_see_what_follows(strong: Pair) -> None:
    for causal in (True, False):
        rig = fresh(strong, PROMPTS[2], causal=causal)
        same = np.allclose(rig.logits(0, 7)[:4], rig.logits(0, 3), atol=1e-4)
        assert same == causal


def test_a_block_is_the_anchor_and_masks(strong_dense: Pair, tmp_path: Path) -> None:
    text, anchor = PROMPTS[2], PROMPTS[2][-1]
    pair = Pair(edited(strong_dense.target, tmp_path / "t.gguf"), strong_dense.draft)
    reader = GGUFReader(pair.target, "r+")
    (table,) = (t.data for t in reader.tensors if t.name == "token_embd.weight")
    table[250] = table[MASK]  # masks of the same embedding draft alike
    table[251] = table[anchor]
    reader.data.flush()
    rows = fresh(pair, text).logits(0)
    assert_close(fresh(pair, text, mask=250).logits(0), rows)
    assert_close(fresh(pair, [*text[:-1], 251]).logits(0), rows)
    assert not np.allclose(fresh(pair, text, mask=249).logits(0), rows, atol=1e-2)
    assert not np.allclose(fresh(pair, [*text[:-1], MASK]).logits(0), rows, atol=1e-2)
    # a causal first row sees the anchor alone, the others see masks
    one, other = (fresh(pair, text, causal=True, mask=m).logits(0) for m in (MASK, anchor))
    assert_close(one[0], other[0])
    assert not np.allclose(one[1], other[1], atol=1e-2)


def test_features_are_the_inputs_of_the_layers_asked_for(strong: Pair) -> None:
    (table,) = (t.data for t in GGUFReader(strong.target).tensors if t.name == "token_embd.weight")
    rig = Rig(strong)
    context = core().Context(rig.model, rig.params)
    target = core().Target(context, [2, 0])
    with pytest.raises(IndexError, match="no such tap or rows"):
        target.features(0, 1)  # nothing decoded yet
    context.evaluate(PROMPTS[0], 0)
    assert_close(target.features(1, len(PROMPTS[0])), table[PROMPTS[0]])
    assert not np.allclose(target.features(0, len(PROMPTS[0])), table[PROMPTS[0]], atol=1e-1)


def test_every_tap_counts_and_in_its_place(strong: Pair) -> None:
    rows = fresh(strong, PROMPTS[1]).logits(0)
    for taps in ([1, 1], [3, 3], [3, 1]):  # the drafter's are 1 and 3
        assert not np.allclose(fresh(strong, PROMPTS[1], taps=taps).logits(0), rows, atol=1e-2)
    with pytest.raises(RuntimeError, match="gives 64 features of a row, the drafter takes 128"):
        fresh(strong, PROMPTS[1], taps=[1])


def test_parts_that_do_not_fit_are_refused(hybrid: Pair) -> None:
    rig = Rig(hybrid)
    native, params = core(), core().ContextParams()
    params.n_ctx = 64
    faults = [
        ("n_ctx", 0),
        ("n_seq", 0),
        ("n_seq", 257),
        ("n_seq", 2),
        ("n_batch", 0),
        ("n_ubatch", 0),
    ]
    for name, value in [*faults, ("n_rollback", -1), ("n_rollback", 511)]:
        kept = getattr(params, name)
        setattr(params, name, value)
        with pytest.raises(ValueError, match=r"a context's n_\w+ is"):
            native.Context(rig.model, params)
        setattr(params, name, kept)
    with pytest.raises(ValueError, match="type_kv is 999"):
        params.type_kv = 999
    params.n_batch = params.n_ubatch = params.n_outputs = 8
    context = native.Context(rig.model, params)
    with pytest.raises(ValueError, match="'qwen35' is not a drafter"):
        native.ModelDrafter(rig.model, params, context, MASK, [False] * rig.model.n_layer)
    for number in (-2, -1, 1):
        with pytest.raises(RuntimeError, match=f"cannot take sequence {number} back"):
            context.truncate(number, 0)
    with pytest.raises(ValueError, match="1 tokens at position 2147483647 do not fit"):
        context.evaluate([1], 2**31 - 1)
    for make in (lambda: native.Target(None, []), lambda: native.Session(None, None, 1)):
        with pytest.raises(TypeError):
            make()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_confidence_is_the_chance_against_the_best_rival(dense: Pair, temperature: float) -> None:
    rig = fresh(dense, PROMPTS[1])
    *before, anchor = PROMPTS[1]
    logits = rig.logits(0)[1:].astype(np.float64)
    drawn = core().Sampling()
    drawn.temperature, drawn.seed = temperature, 7
    ((tokens, confidence),) = rig.drafter.draft_sampled(
        [(0, len(before), anchor, BLOCK - 1)], drawn
    )
    assert len(tokens) == len(confidence) == BLOCK - 1
    best = logits.argmax(axis=1).tolist()
    assert (tokens == best) is (temperature == 0)
    for row, token, found in zip(logits, tokens, confidence, strict=True):
        rival = max(value for other, value in enumerate(row) if other != token)
        assert found == pytest.approx(1 / (1 + np.exp(rival - row[token])), abs=1e-5)
