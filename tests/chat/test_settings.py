"""Settings that change while a chat goes on."""

from __future__ import annotations

from typing import Any

import pytest

from dflash_gguf import Params, Sampling
from dflash_gguf.chat.settings import NAMES, changed, listed
from dflash_gguf.errors import UsageError


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("temp", "0.7", "temperature", 0.7),
        ("--top-k", "40", "top_k", 40),
        ("top_p", "0.9", "top_p", 0.9),
        ("min-p", "0.1", "min_p", 0.1),
        ("typical", "0.9", "typical", 0.9),
        ("repeat-penalty", "1.1", "repeat_penalty", 1.1),
        ("presence-penalty", "1", "presence_penalty", 1.0),
        ("frequency-penalty", "-1", "frequency_penalty", -1.0),
        ("repeat-last-n", "-1", "repeat_last_n", -1),
        ("seed", "7", "seed", 7),
        ("draft-sampling", "rejection", "draft_sampling", "rejection"),
    ],
)
def test_how_tokens_are_chosen(name: str, value: str, field: str, expected: Any) -> None:
    before = Params(sampling=Sampling(seed=3, top_k=9), max_tokens=5)
    after = changed(before, name, value)
    assert getattr(after.sampling, field) == expected
    assert after.max_tokens == 5
    assert field == "top_k" or getattr(after.sampling, "top_k") == 9  # noqa: B009


def test_the_others() -> None:
    assert changed(Params(), "max-tokens", "9").max_tokens == 9
    assert changed(Params(max_tokens=9), "max-tokens", "-1").max_tokens is None
    assert changed(Params(), "block", "4").block == 4
    assert changed(Params(block=4), "block", "auto").block == "auto"
    assert changed(Params(), "stop", "a b").stop == ("a b",)
    assert changed(Params(stop="x"), "stop", "").stop == ()
    drawn = changed(Params(sampling=Sampling(seed=3)), "seed", "-1").sampling
    assert drawn is not None
    assert drawn.seed != 3


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("tmp", "1", "no setting is called 'tmp'; expected perhaps temp"),
        ("xyz", "1", "expected one of temp, top-k"),
        ("temp", "hot", "temp hot: expected a number"),
        ("temp", "-1", "temperature is -1.0; expected a number from 0 to 100"),
        ("top-k", "1.5", "top-k 1.5: expected a whole number"),
        ("seed", "-2", "seed is -2; expected"),
        ("max-tokens", "0", "max_tokens is 0; expected a whole number of at least 1"),
        ("block", "0", "block is 0; expected"),
        ("draft-sampling", "none", "expected gumbel or rejection"),
    ],
)
def test_what_makes_no_sense_is_told(name: str, value: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        changed(Params(), name, value)
    assert told in str(caught.value)


def test_all_are_listed_as_they_can_be_set() -> None:
    params = Params(sampling=Sampling(temperature=0.7, seed=3), max_tokens=9, block=4, stop=["a"])
    shown = dict(listed(params))
    assert list(shown) == list(NAMES)
    assert (shown["temp"], shown["seed"], shown["max-tokens"]) == ("0.7", "3", "9")
    again = params
    for name, value in shown.items():
        again = changed(again, name, value.strip("'"))
    assert again == params
