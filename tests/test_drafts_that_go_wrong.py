"""Drafters that break while an answer is written (B6), and ones that draft one place off (C12): both are said."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from dflash_gguf import Params
from dflash_gguf._native import core
from dflash_gguf.chat import Screen, Stop, answer_once
from dflash_gguf.shifts import Shifts

from .support.random_pairs import VOCAB, Pair
from .support.scripted import Scripted
from .support.sessions import ENDLESS, finish, open_session, plain
from .test_auto import CHEAP, steer

PROMPT = [72, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100]
BLOCK, LONG = 8, 60
OPTIONS: dict[str, Any] = {"max_tokens": LONG, "ignore_end": True}
WORDS = "scripted failure in round 3"


def test_a_draft_that_fails_in_its_third_round_is_told(  # B6
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    text = plain(pair.target, PROMPT, LONG)
    with Scripted(pair.target, BLOCK) as made:
        expected = made.engine.generate(PROMPT, block=1, **OPTIONS)
        assert expected.tokens == text
        made.script(PROMPT + text, [4])
        made.drafter.fail_at(0, 3)
        answer = answer_once(made.engine, PROMPT, Params(**OPTIONS), Screen(), Stop()).sequence
        shown = capsys.readouterr()
        assert answer.tokens == text
        assert answer.finish_reason == "length"
        stats = answer.stats
        assert stats is not None
        # three rounds of five tokens each, and one of one token for every other
        assert (stats.drafting_rounds, stats.accepted, stats.rounds) == (3, 12, LONG - 1 - 12)
        assert stats.draft_failure == WORDS
        warning = f"drafting stopped, plain decoding goes on: {WORDS}"
        assert made.engine.warnings == [warning]
        assert shown.out == answer.text + "\n"
        said, line = shown.err.splitlines()
        assert said == f"warning: {warning}"
        assert line == stats.line()
        assert line.endswith(f" · drafting failed after 3 of {LONG - 1 - 12} rounds")
        # and so do later answers, once each, and OpenAI's shape
        made.script(PROMPT + text, [4])
        later = made.engine.create_completion(PROMPT, max_tokens=20, temperature=0)
        assert later["speculative"]["draft_failure"] == WORDS
        assert later["speculative"]["drafted"] == 0
        assert made.engine.warnings == [warning]
        own = made.engine.generate(PROMPT, **OPTIONS)
        assert own.tokens == text
        assert own.stats is not None
        assert own.stats.line().endswith(" · no drafts · drafting failed")
        without = made.engine.generate(PROMPT, block=1, **OPTIONS)
        assert without.stats is not None
        assert without.stats.draft_failure is None


def test_drafts_that_work_have_no_failure(pair: Pair) -> None:
    with Scripted(pair.target, BLOCK) as made:
        answer = made.engine.generate(PROMPT, **OPTIONS)
        assert answer.stats is not None
        assert answer.stats.draft_failure is None
        assert "fail" not in answer.stats.line()
        auto = replace(answer.stats, block="auto", draft_failure="broken", rounds=40)
        assert auto.line().endswith(" · no drafts · drafting failed")  # not: it did not pay
        whole = made.engine.create_completion(PROMPT, max_tokens=4, temperature=0)
        assert whole["speculative"]["draft_failure"] is None


def shifted(text: list[int], places: int) -> list[int]:
    """A script whose every token is the one so many places later in the text."""
    whole = PROMPT + text
    return whole[places:] if places > 0 else [0] * -places + whole


@pytest.mark.parametrize("kept", [LONG, 9])
@pytest.mark.parametrize(("places", "words"), [(1, "later"), (-1, "earlier")])
def test_a_drafter_that_is_one_place_off_is_hinted_at_once(
    pair: Pair, places: int, words: str, kept: int
) -> None:
    """In one long answer, and in many short ones."""
    with Scripted(pair.target, BLOCK) as made:
        text = made.engine.generate(PROMPT, block=1, **OPTIONS).tokens
        options = {**OPTIONS, "max_tokens": kept}
        for number in range(6):
            made.script(shifted(text, places), [BLOCK - 1])
            answer = made.engine.generate(PROMPT, **options)
            assert answer.tokens == text[:kept]
            if number == 0 and kept < 16:
                assert made.engine.warnings == []  # too few blocks to tell
        (said,) = made.engine.warnings
    found = re.fullmatch(
        r"the first drafted token was right in (\d+) of (\d+) blocks, and one place (later|earlier) it would "
        r"have been in (\d+): .*; set sample_from_anchor to (true|false) in the checkpoint's config.json and "
        r"convert it again",
        said,
    )
    assert found is not None
    right, blocks, way, shift, value = found.groups()
    assert (way, value) == (words, "true" if places > 0 else "false")
    assert int(right) <= 0.05 * int(blocks)
    assert int(shift) > 0.7 * int(blocks)


@pytest.mark.parametrize(
    ("places", "counts"), [(0, [7]), (0, [0]), (0, [3, 0, 5]), (2, [7]), (-2, [7]), (5, [7])]
)
def test_other_drafters_are_not_hinted_at(pair: Pair, places: int, counts: list[int]) -> None:
    with Scripted(pair.target, BLOCK) as made:
        text = made.engine.generate(PROMPT, block=1, max_tokens=250, ignore_end=True).tokens
        made.script(shifted(text, places), counts)
        made.engine.generate(PROMPT, max_tokens=250, ignore_end=True)
        assert made.engine.warnings == []


@pytest.mark.parametrize("places", [-1, 0, 1, 3])
def test_counts_of_shifts(pair: Pair, places: int) -> None:
    text = plain(pair.target, PROMPT, LONG)
    script = shifted(text, places)
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(pair.target, block=BLOCK, drafter=drafter)
    number = session.add(PROMPT, max_tokens=LONG, block=BLOCK, stops=ENDLESS)
    drafter.script(number, script, [BLOCK - 1])
    said, wanted = 1, Shifts()
    session.step()  # the prompt and a round
    said += session.counters(number).emitted - 1
    at = 1  # tokens before the round that is looked at
    while True:
        if LONG - at >= 3:  # else the block is of one token, or none
            one, two = (script + [0] * BLOCK)[len(PROMPT) + at :][:2]
            right = one == text[at]
            early = not right and one == text[at + 1]
            wanted += Shifts(1, right, early, not right and two == text[at])
        if said == LONG:
            break
        at = said
        said += sum(len(output.tokens) for output in session.step())
    assert Shifts(*session.counters(number).shifts) == wanted
    if places == 0:
        assert wanted.right == wanted.blocks == 8
    elif places < 3:
        assert max(wanted.early, wanted.late) > 0.7 * wanted.blocks > 30


def test_the_rule() -> None:
    assert Shifts(15, 0, 15, 0).hint() is None  # too few
    for healthy in (Shifts(100, 6, 90, 0), Shifts(100, 0, 24, 24), Shifts(100, 0, 0, 0), Shifts()):
        assert healthy.hint() is None
    assert Shifts(100, 5, 25, 3).hint() is not None
    assert Shifts(100, 5, 3, 25).hint() != Shifts(100, 5, 25, 3).hint()
    assert Shifts(1, 2, 3, 4) + Shifts(10, 20, 30, 40) == Shifts(11, 22, 33, 44)


def test_drafts_that_are_only_tried_out_count_too(pair: Pair) -> None:
    """Where the engine chooses widths, blocks that never pay are not verified."""
    text = plain(pair.target, PROMPT, 400)
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(pair.target, block=BLOCK, drafter=drafter)
    steer(session, CHEAP)
    number = session.add(PROMPT, max_tokens=400, block=0, stops=ENDLESS)
    drafter.script(number, shifted(text, -1), [BLOCK - 1])
    assert finish(session, [number])[number] == text
    counters = session.counters(number)
    seen = Shifts(*counters.shifts)
    assert seen.blocks > counters.drafting_rounds
    assert seen.late > 0.7 * seen.blocks
