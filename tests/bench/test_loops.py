"""Texts that go round in circles are told from those that do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf.bench.loops import loop

from ..support.bench import TEXT
from ..support.tiny import Tiny

TABLE = "| a | b |\n| --- | --- |\n" + "".join(f"| {k} | {k * k} |\n" for k in range(40))
PROSE = " ".join(f"{TEXT} Number {k} of them fell at {7 * k % 31} o'clock." for k in range(3))


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("Then it says no" + " no" * 20, "ends in 'no' 21 times in a row"),
        ("Well, " + "ha" * 100, "ends in 'ha' 100 times in a row"),
        ("!" * 64, "ends in '!' 64 times in a row"),
        (TEXT + "\n- -" * 40 + "\n", "times in a row"),
        (TEXT + " I am sure that I am right." * 12, "is to "),
        ("1, 2, 3, 4, " * 30, "is to 100% "),
        ("东京" * 50, "ends in '东京' 50 times in a row"),
    ],
)
def test_loops_are_told(text: str, how: str) -> None:
    found = loop(text)
    assert found is not None
    assert how in found


@pytest.mark.parametrize(
    "text", ["", "   ", "\n" * 100, "no", "no no no", TEXT, PROSE, TABLE, "1" * 20, "x = 1\n" * 6]
)
def test_other_texts_are_not(text: str) -> None:
    assert loop(text) is None


def test_written_texts_are_not(tiny: Tiny) -> None:
    texts = [message["content"] for each in tiny.prompts for message in each["messages"]]
    assert len(texts) > 20
    assert [text for text in texts if loop(text)] == []


@given(st.text(max_size=200), st.text("abcde", min_size=1, max_size=8), st.integers(24, 200))
def test_whatever_is_before_a_loop_hides_nothing(before: str, piece: str, times: int) -> None:
    assert loop(before + piece * times) is not None


@given(st.lists(st.integers(0, 10**9), min_size=48, max_size=90, unique=True))
def test_words_that_all_differ_are_no_loop(numbers: list[int]) -> None:
    assert loop(" ".join(f"w{number}" for number in numbers)) is None
