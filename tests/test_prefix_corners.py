"""Kept prefixes where something has gone wrong, or where the draft keeps only the newest rows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

import dflash_gguf
from dflash_gguf import DflashError, Engine
from dflash_gguf._native import core

from .support.edited import edited, spoilt
from .support.random_pairs import VOCAB, Pair
from .support.sessions import ENDLESS, finish, open_session, plain
from .test_prefix import ids, reused

BAD = 200  # the token whose embedding is no number
QUICK: dict[str, Any] = {
    "threads": 1,
    "context": 768,
    "kv_type": "f32",
    "block": 8,
    "flash_attn": False,
}
ANSWER: dict[str, Any] = {"max_tokens": 24, "ignore_end": True}


def text(seed: int, count: int) -> list[int]:
    """Return random ids without BAD."""
    return [token if token != BAD else 1 for token in ids(seed, count)]


@pytest.fixture
def failing(pair: Pair, tmp_path: Path) -> Pair:
    """The pair with a target that fails on BAD."""
    target = edited(pair.target, tmp_path / "t.gguf")
    reader = GGUFReader(target, "r+")
    (table,) = (tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    table.data[BAD] = np.nan
    reader.data.flush()
    return Pair(target, pair.draft)


@pytest.mark.parametrize("at", [10, 300, 59])  # in the first chunk, in the second, the last token
def test_a_failing_target_spoils_no_kept_text(failing: Pair, at: int) -> None:
    good = text(1, 60)
    with (
        dflash_gguf.load(failing.target, failing.draft, sequences=2, **QUICK) as engine,
        dflash_gguf.load(failing.target, failing.draft, prefix_memory=0, **QUICK) as fresh,
    ):
        first = engine.generate(good, **ANSWER)
        expected = fresh.generate(good, **ANSWER).tokens
        assert first.tokens == expected
        broken = text(2, 400 if at > 59 else 60)
        broken[at] = BAD
        other = engine.start(text(3, 50), **ANSWER)  # ends too, whatever it has read
        with pytest.raises(DflashError, match="logits are not numbers"):
            engine.generate(broken, **ANSWER)
        assert other.finish_reason == "cancelled"
        for prompt in (good, broken[:at] + [7] * 5, text(3, 50), [*good, *first.tokens, 9]):
            for _ in range(3):  # in either sequence, kept or not
                again = engine.generate(prompt, **ANSWER)
                assert again.tokens == fresh.generate(prompt, **ANSWER).tokens
        with pytest.raises(DflashError, match="logits are not numbers"):
            engine.generate(broken, **ANSWER)
        assert reused(engine.generate(good, **ANSWER)) > 0


def both(engine: Engine, fresh: Engine, prompt: list[int], least: int) -> list[int]:
    """Answer in both engines; the first must have read at most what follows `least` tokens."""
    answer, again = engine.generate(prompt, **ANSWER), fresh.generate(prompt, **ANSWER)
    assert answer.tokens == again.tokens
    assert answer.stats is not None
    assert again.stats is not None
    assert answer.stats.accepted_at == again.stats.accepted_at
    assert answer.stats.rounds == again.stats.rounds
    assert reused(answer) >= least
    return answer.tokens


@pytest.mark.parametrize("window", [24, 100])
def test_a_windowed_draft_goes_on_from_what_is_kept(pair: Pair, window: int) -> None:
    options = {**QUICK, "draft_window": window}
    with (
        dflash_gguf.load(pair.target, pair.draft, **options) as engine,
        dflash_gguf.load(pair.target, pair.draft, prefix_memory=0, **options) as fresh,
    ):
        prompt = text(4, 300)
        for turn in range(4):
            known = len(prompt) - 8 if turn else 0
            prompt = [*prompt, *both(engine, fresh, prompt, known - 1), *text(turn, 7)]
        both(engine, fresh, text(5, 200), 0)  # takes the sequence
        both(engine, fresh, prompt, len(prompt) - 9)
        both(engine, fresh, [*prompt[:40], *text(6, 30)], 0)
        both(engine, fresh, prompt, 0)


@pytest.mark.parametrize("window", [24, 100])
def test_a_windowed_drafts_prefix_is_saved_and_restored(
    pair: Pair, tmp_path: Path, window: int
) -> None:
    options, path = {**QUICK, "draft_window": window}, tmp_path / "prefix"
    prompt = text(7, 300)
    with dflash_gguf.load(pair.target, pair.draft, **options) as engine:
        assert engine.save_prefix(path, prompt) == 300
    with (
        dflash_gguf.load(pair.target, pair.draft, **options) as engine,
        dflash_gguf.load(pair.target, pair.draft, prefix_memory=0, **options) as fresh,
    ):
        assert engine.restore_prefix(path) == 300
        both(engine, fresh, [*prompt, *text(8, 9)], 299)
        # a draft that keeps fewer rows than were written since cannot go back
        both(engine, fresh, prompt, 299 if window > 40 else 0)
    # what a wider draft would need beside it is not in the file
    for other in (None, 300):
        with (
            dflash_gguf.load(
                pair.target, pair.draft, **{**options, "draft_window": other}
            ) as engine,
            dflash_gguf.load(
                pair.target, pair.draft, **{**options, "draft_window": other, "prefix_memory": 0}
            ) as fresh,
        ):
            with suppress(dflash_gguf.ModelError):
                engine.restore_prefix(path)
            both(engine, fresh, [*prompt, *text(8, 9)], 0)


def test_a_drafter_that_failed_leaves_the_kept_texts_right(pair: Pair) -> None:
    prompts = [text(seed, 50) for seed in range(3)]
    expected = [plain(pair.target, prompt, 40, exact=True) for prompt in prompts]
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(
        pair.target, block=8, drafter=drafter, prefix_memory=2**26, exact=True, sequences=2
    )

    def answer(index: int, fail_at: int) -> int:
        number = session.add(prompts[index], max_tokens=40, block=8, stops=ENDLESS)
        drafter.script(number, prompts[index] + expected[index], [3])
        drafter.fail_at(number, fail_at)
        assert finish(session, [number])[number] == expected[index]
        kept: int = session.counters(number).reused_tokens
        session.remove(number)
        return kept

    assert answer(0, -1) == 0
    assert answer(1, 2) == 0  # fails in its third round
    assert session.draft_failure
    # what was read before the failure and behind it is of use all the same
    assert answer(0, -1) >= 49
    assert answer(1, -1) >= 49
    assert answer(2, -1) == 0
    assert answer(2, -1) >= 49


def test_prefixes_are_saved_after_the_drafters_failure(dense: Pair, tmp_path: Path) -> None:
    draft = spoilt(dense.draft, tmp_path / "d.gguf")
    with (
        dflash_gguf.load(dense.target, draft, **QUICK) as engine,
        dflash_gguf.load(dense.target, **{**QUICK, "block": 1}) as alone,
    ):
        prompt = text(9, 100)
        for _ in range(2):
            answer = engine.generate(prompt, **ANSWER)
            assert answer.tokens == alone.generate(prompt, **ANSWER).tokens
        assert engine.save_prefix(tmp_path / "prefix", prompt) == 100
        engine.forget_prefixes()
        assert engine.restore_prefix(tmp_path / "prefix") == 100
        longer = [*prompt, *answer.tokens, 4]
        assert engine.generate(longer, **ANSWER).tokens == alone.generate(longer, **ANSWER).tokens
