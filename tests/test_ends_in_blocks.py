"""Answers that end at every position of a block (R13): text, counts, usage and reason are exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .support.edited import edited
from .support.random_pairs import Pair
from .support.scripted import Scripted, letters_only

PROMPT = [72, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100]
BLOCK = 8
LONG = 30
SETTINGS = letters_only()
# The prompt gives token 0, each round of right drafts a block of 8: 1 to 8, 9 to 16.
PLACES = [0, *range(1, 17)]
# right drafts as far as can be, and none behind the last token: it is a draft, or the target's own choice
WAYS = ["drafted", "chosen"]


@pytest.fixture(scope="module")
def opened(pair: Pair) -> Iterator[Scripted]:
    with Scripted(pair.target, BLOCK) as made:
        yield made


def said(made: Scripted) -> list[int]:
    """The target's own tokens, each another letter."""
    answer = made.engine.create_completion(PROMPT, max_tokens=LONG, block=1, logprobs=0, **SETTINGS)
    letters = answer["choices"][0]["text"]
    tokens = [ord(letter) - 33 for letter in letters]
    assert len(set(tokens)) == len(tokens) == LONG
    return tokens


def spelled(tokens: list[int]) -> str:
    return "".join(chr(token + 33) for token in tokens)


def counts(place: int, way: str) -> list[int]:
    """How many drafts are right, round by round, of an answer that ends with the token at `place`."""
    full, rest = divmod(max(place - 1, 0), BLOCK)
    return [BLOCK - 1] * full + [BLOCK - 1 if way == "drafted" else rest]


def check(
    made: Scripted, text: list[int], place: int, way: str, shown: int, reason: str, **ends: Any
) -> None:
    """Ask for an answer that ends with the token at `place`, at once and as a stream."""
    rounds = -(-place // BLOCK)
    usage = {
        "prompt_tokens": len(PROMPT),
        "completion_tokens": place + 1,
        "total_tokens": len(PROMPT) + place + 1,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    request: dict[str, Any] = {"max_tokens": LONG} | SETTINGS | ends
    made.script(PROMPT + text, counts(place, way))
    whole = made.engine.create_completion(PROMPT, **request)
    assert whole["choices"][0]["text"] == spelled(text[:shown])
    assert whole["choices"][0]["finish_reason"] == reason
    made.script(PROMPT + text, counts(place, way))
    *pieces, last = made.engine.create_completion(
        PROMPT, stream=True, stream_options={"include_usage": True}, **request
    )
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == spelled(text[:shown])
    reasons = [piece["choices"][0]["finish_reason"] for piece in pieces]
    assert reasons == [None] * (len(pieces) - 1) + [reason]
    for answer in (whole, last):
        assert answer["usage"] == usage
        figures = answer["speculative"]
        assert (figures["steps"], figures["accepted"]) == (rounds, place - rounds)
    assert not made.engine.busy


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_max_tokens(opened: Scripted, place: int, way: str) -> None:
    text = said(opened)
    check(opened, text, place, way, place + 1, "length", max_tokens=place + 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_a_stop_string_of_one_token(opened: Scripted, place: int, way: str) -> None:
    text = said(opened)
    check(opened, text, place, way, place, "stop", stop=["~~", spelled([text[place]])])
    # the limit on the same token: the string has ended it
    stop = spelled([text[place]])
    check(opened, text, place, way, place, "stop", stop=stop, max_tokens=place + 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("tokens", "place"), [(n, at) for n in (2, 3, 10) for at in PLACES if at >= n - 1]
)
def test_a_stop_string_of_several(opened: Scripted, tokens: int, place: int, way: str) -> None:
    """Also where the block begins within it."""
    first = place + 1 - tokens
    text = said(opened)
    stop = spelled(text[first : place + 1])
    check(opened, text, place, way, first, "stop", stop=stop)
    # all but its last token is no stop
    almost = stop[:-1] + "~"
    check(opened, text, place, way, place + 1, "length", stop=almost, max_tokens=place + 1)


@pytest.mark.parametrize("place", PLACES)
def test_an_end_token(pair: Pair, opened: Scripted, tmp_path: Path, place: int) -> None:
    text = said(opened)
    changed = {"tokenizer.ggml.eos_token_id": text[place]}
    with Scripted(edited(pair.target, tmp_path / "t.gguf", change=changed), BLOCK) as made:
        for way in WAYS:
            check(made, text, place, way, place, "stop")
            # it counts as the limit's token too, and is no length
            check(made, text, place, way, place, "stop", max_tokens=place + 1)
