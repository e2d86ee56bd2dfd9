"""Prompts are read a piece at a time, and the pieces are short enough to wait for."""

from __future__ import annotations

from typing import Any

import pytest

import dflash_gguf
from dflash_gguf._native import core
from dflash_gguf.calibration import prefill_rows

from .support.random_pairs import Pair
from .support.sessions import ENDLESS, finish, open_session, plain

PROMPT = [3 * i % 256 for i in range(100)]


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_a_prompt_may_be_read_in_pieces(pair: Pair, rows: int) -> None:
    expected = plain(pair.target, PROMPT, 20)
    session = open_session(pair.target, block=1)
    session.prefill_rows = rows
    number = session.add(PROMPT, max_tokens=20, block=1, stops=ENDLESS)
    steps = 0
    while not session.step():
        steps += 1
    assert steps == (len(PROMPT) - 1) // rows
    finish(session, [number])
    assert session.counters(number).emitted == len(expected)


def test_rows_that_make_no_sense_are_refused(dense: Pair) -> None:
    session = open_session(dense.target, block=1)
    for rows in (0, -1, 65):
        with pytest.raises(ValueError, match="prefill_rows is"):
            session.prefill_rows = rows


@pytest.mark.parametrize(("milliseconds", "rows"), [(0.1, 256), (10, 128), (40, 32), (5000, 16)])
def test_slow_targets_read_less_at_a_time(
    dense: Pair, monkeypatch: pytest.MonkeyPatch, milliseconds: float, rows: int
) -> None:
    def rounds(*_: Any, **__: Any) -> list[tuple[int, int, int, int]]:
        return [(0, int(milliseconds * 1e6) + extra, 0, 0) for extra in (90, 0, 50)]

    monkeypatch.setattr(core(), "bare_rounds", rounds)
    assert prefill_rows(None, 256) == rows  # type: ignore[arg-type]
    monkeypatch.undo()
    with dflash_gguf.load(dense.target, threads=1, context=256) as engine:
        assert engine._parts is not None
        assert 16 <= engine._parts.session.prefill_rows <= 256


def test_short_prompts_are_read_together_and_no_longer_than_a_long_one(pair: Pair) -> None:
    """With 64 rows for a step: three prompts fit, the fourth waits."""
    session = open_session(pair.target, block=1, sequences=5)

    def add(length: int) -> int:
        number: int = session.add(PROMPT[:length], max_tokens=9, block=1, stops=ENDLESS)
        return number

    def begun() -> set[int]:
        return {output.id for output in session.step()}

    first, last = {add(40), add(10), add(14)}, {add(30)}
    assert begun() == first
    assert begun() == first | last
    long = add(100)
    assert begun() == first | last  # a piece of 64
    assert begun() == {*first, *last, long}
