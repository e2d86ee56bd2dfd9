"""Bytes to text, however they are cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf.errors import DflashError
from dflash_gguf.text import Utf8Stream, whole_characters

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


@given(TEXT, st.lists(st.integers(0, 1000)))
def test_any_chunks_of_a_text_give_the_text(text: str, cuts: list[int]) -> None:
    stream = Utf8Stream()
    assert "".join(map(stream.feed, chunks(text.encode(), cuts))) + stream.close() == text


@given(st.binary(), st.lists(st.integers(0, 1000)))
def test_chunks_make_no_difference_for_broken_bytes(data: bytes, cuts: list[int]) -> None:
    whole, parts = Utf8Stream(), Utf8Stream()
    expected = whole.feed(data) + whole.close()
    assert "".join(map(parts.feed, chunks(data, cuts))) + parts.close() == expected


@given(st.text(st.sampled_from("aé€🙂日本"), min_size=1), st.integers(1, 3))
def test_an_end_cut_inside_a_character_never_shows_a_replacement(text: str, short: int) -> None:
    stream = Utf8Stream()
    data = text.encode()
    said = stream.feed(data[: max(len(data) - short, 0)]) + stream.close()
    assert "\N{REPLACEMENT CHARACTER}" not in said
    assert text.startswith(said)


def test_bytes_that_are_no_character_are_replaced_and_the_rest_stays() -> None:
    stream = Utf8Stream()
    assert stream.feed(b"a\xffb\xe2\x82") + stream.feed(b"\xacc") == "a\N{REPLACEMENT CHARACTER}b€c"


@given(st.text())
def test_whole_characters_can_be_encoded(text: str) -> None:
    whole = whole_characters(text)
    whole.encode()
    assert len(whole) == len(text)


@given(st.text())
def test_errors_are_one_line(text: str) -> None:
    assert "\n" not in str(DflashError(text))
