"""Blocks of several sequences in one decode, and the walk through a lattice: pure decisions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf._native import core

TOP_K = 3


def rows(*positions: tuple[list[int], list[list[float]]]) -> Any:
    """A lattice: the empty row of the anchor, then ids and scores of each position; and some padding."""
    width = TOP_K * (TOP_K + 1) + 2
    lattice = np.full((len(positions) + 1, width), 99, np.float32)
    for row, (ids, scores) in zip(lattice[1:], positions, strict=True):
        row[:TOP_K] = ids
        row[TOP_K : TOP_K * (TOP_K + 1)] = np.array(scores).reshape(-1)
    return lattice


FIRST = ([7, 5, 9], [[0.0, 2.0, 1.0]] * 3)  # the anchor is every predecessor


def test_each_token_is_the_best_behind_the_one_before() -> None:
    second = ([4, 7, 2], [[9.0, 0, 0], [0, 0, 3.0], [8.0, 0, 0]])
    third = ([1, 2, 3], [[5.0, 0, 0], [6.0, 0, 0], [0, 1.0, 0]])
    tokens, confidence = core().walk_lattice(rows(FIRST, second, third), TOP_K, 10)
    assert tokens == [5, 2, 2]
    shares = [np.exp([0, 2, 1]), np.exp([0, 0, 3]), np.exp([0, 1, 0])]
    expected = [shares[0][1], shares[1][2], shares[2][1]] / np.array([s.sum() for s in shares])
    np.testing.assert_allclose(confidence, expected, rtol=1e-6)


def test_it_is_no_search_for_the_best_whole_way() -> None:
    """As the reference walks: a token is not given up for what might follow another."""
    second = ([4, 7, 2], [[0, 50.0, 0], [0, 0, 3.0], [50.0, 0, 0]])
    assert core().walk_lattice(rows(FIRST, second), TOP_K, 10)[0] == [5, 2]


@pytest.mark.parametrize("bad", [-1, 10, np.nan, np.inf])
def test_it_ends_at_what_is_no_token(bad: float) -> None:
    lattice = rows(FIRST, FIRST, FIRST)
    lattice[2, 2] = bad
    assert core().walk_lattice(lattice, TOP_K, 10)[0] == [5]


def test_it_ends_where_no_score_is_a_number() -> None:
    lattice = rows(FIRST, FIRST)
    lattice[2, TOP_K : TOP_K * (TOP_K + 1)] = np.nan
    assert core().walk_lattice(lattice, TOP_K, 10)[0] == [5]


@given(st.data())
def test_a_walk_follows_the_scores(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 5))
    score = st.floats(-9, 9, width=32)
    table = st.lists(st.lists(score, min_size=3, max_size=3), min_size=3, max_size=3)
    ids = st.lists(st.integers(0, 30), min_size=3, max_size=3, unique=True)
    positions = [(data.draw(ids), data.draw(table)) for _ in range(count)]
    tokens, confidence = core().walk_lattice(rows(*positions), TOP_K, 31)
    before = 0
    for (names, scores), token, share in zip(positions, tokens, confidence, strict=True):
        behind = np.array(scores[before], np.float32)
        before = int(behind.argmax())
        assert token == names[before]
        assert share == pytest.approx(np.exp(behind[before]) / np.exp(behind).sum(), rel=1e-4)


@given(st.lists(st.tuples(st.integers(1, 16), st.integers(0, 20)), max_size=12))
def test_blocks_of_a_decode_are_equal_and_have_room(wanted: list[tuple[int, int]]) -> None:
    counts = [count for count, _ in wanted]
    rooms = [count + more for count, more in wanted]
    groups = core().equal_blocks(counts, rooms)
    members = [i for _, group in groups for i in group]
    assert sorted(members) == list(range(len(counts)))
    for length, group in groups:
        assert group == sorted(group)
        assert length == max(counts[i] for i in group)
        assert all(rooms[i] >= length for i in group)
    # a later decode is there only because its sequences had no room in the ones before
    for (length, _), (_, later) in pairwise(groups):
        assert all(rooms[i] < length for i in later)


def test_blocks_that_cannot_be_are_refused() -> None:
    for counts, room in (([0], [5]), ([3], [2])):
        with pytest.raises(ValueError, match="1 token or more and the room"):
            core().equal_blocks(counts, room)
    with pytest.raises(ValueError, match="one room per count"):
        core().equal_blocks([1, 2], [3])
