"""Server-sent events are read as the standard says, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf.bench.sse import events

STREAM = (
    b"\xef\xbb\xbfdata: one\n\n: a comment\n\ndata:two\r\n\r\nevent: x\rid: 3\rdata: three\rdata\rdata: \xc3\xa9 \r\r"
    b"data:  four\n\nretry: 5\n\ndata: lost"
)
FOUND = ["one", "two", "three\n\n\xe9 ", " four"]


def test_rules() -> None:
    assert [data for _, data in events([(0.0, STREAM)])] == FOUND


@given(st.lists(st.integers(0, len(STREAM))))
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    reads = [(0.0, STREAM[a:b]) for a, b in pairwise(places)]
    assert [data for _, data in events(reads)] == FOUND


def test_an_event_has_the_time_of_its_end() -> None:
    reads = [(1.0, b"data: a\n"), (2.0, b"\ndata: b\n\nda"), (3.0, b"ta: c\n\n")]
    assert list(events(reads)) == [(2.0, "a"), (2.0, "b"), (3.0, "c")]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_line_ends(end: bytes) -> None:
    assert list(events([(0.0, b"data: a" + end + end)])) == [(0.0, "a")]


def test_a_line_end_that_is_cut_is_one() -> None:
    assert list(events([(0.0, b"data: a\r"), (1.0, b"\ndata: b\r\n\r\n")])) == [(1.0, "a\nb")]
