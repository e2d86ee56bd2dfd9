"""Every planted fault is named, by its rule and at its place; what is right has no findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_gguf.bench.invariants import Finding, check, check_arm, check_cell
from dflash_gguf.bench.records import ArmFacts, Ask, Bench, Cell, Counts, Turn
from dflash_gguf.bench.texts import compare_texts

from ..support.bench import AR, FIXED, TEXT, made_cell, made_turn, plain

ASK = Ask(max_tokens=10)
SERVER = ArmFacts("server", "dflash", 4, "llama-server", {"template": "chat"})


def found_in(
    turns: Sequence[Turn] | None, facts: ArmFacts = FIXED, **changes: Any
) -> list[Finding]:
    return list(check_cell(made_cell(facts, turns, **changes), facts, ASK))


def names(found: Sequence[Finding]) -> list[str]:
    return [finding.name for finding in found]


def bench(
    *cells: Cell, arms: Sequence[ArmFacts] = (AR, FIXED), ask: Ask | None = ASK, **facts: Any
) -> Bench:
    return Bench(facts=facts, arms=tuple(arms), cells=cells, prompts="", ask=ask)


def ar_turn(question: int = 0, turn: int = 0, **changes: Any) -> Turn:
    made = made_turn(question, turn, **changes)
    return replace(made, **plain(made))


def test_what_adds_up_has_no_findings() -> None:
    good = made_cell()
    first, second = ar_turn(0), ar_turn(1, start=1.0)
    assert list(check_cell(good, FIXED, ASK)) == []
    assert check(bench(made_cell(AR, (first, second)), good)) == []
    assert found_in((first, second), AR) == []
    (finding,) = found_in((first,), SERVER, shares={})
    assert (finding.name, finding.level) == ("no-drafts", "warning")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("emitted", {"completion_tokens": 9}),
        ("emitted", {"rounds": 5}),
        ("emitted", {"accepted": 4, "accepted_at": (3, 1, 0)}),
        ("accepted", {"accepted": 13, "rounds": -4, "accepted_at": (4, 4, 4)}),
        ("drafted", {"drafted": 13, "drafted_at": (5, 4, 4)}),
        ("positions", {"drafted": 11}),
        ("positions", {"accepted_at": (3, 1, 0)}),
        ("positions", {"accepted_at": (2, 3, 0)}),
        ("positions", {"accepted_at": (5, 0, 0)}),
        ("positions", {"drafted_at": (3, 4, 5)}),
        ("positions", {"accepted_at": (6, 0, -1)}),
        ("positions", {"drafted_at": (4, 4, 4), "accepted_at": (2, 1, 1, 1)}),
        ("positions", {"drafted_at": (6, 3, 3)}),
        ("untold", {"rounds": None}),
        ("untold", {"drafted": None}),
        ("empty", {"completion_tokens": 0}),
        ("unfinished", {"finish_reason": "cancelled"}),
        ("unfinished", {"finish_reason": "error"}),
        ("times", {"start": 0.3}),
        ("times", {"start": -0.1}),
        ("times", {"first": 1.1}),
        ("times", {"last": 2.1}),
        ("times", {"decode_seconds": 1.1}),
        ("times", {"prefill_seconds": -0.1}),
        ("max-tokens", {"completion_tokens": 11}),
        ("max-tokens", {"completion_tokens": -1}),
    ],
)
def test_a_fault_of_an_answer_is_named(name: str, changes: dict[str, Any]) -> None:
    wrong = replace(made_turn(5), **changes)
    found = found_in((made_turn(0), wrong), concurrency=2)
    assert name in names(found)
    for finding in found:
        assert finding.level == "fault"
        if finding.name == name != "times":
            assert (finding.question, finding.turn) == (5, 0)
            assert f"fault {name}: dflash 4, made, concurrency 2, run 1, question 5, turn 0: " in (
                finding.line()
            )


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("shares", {"shares": {"draft": 2.2}}),
        ("shares", {"shares": {"verify": 1.9}}),
        ("shares", {"shares": {"verify": 2.2, "host": -0.2}}),
        ("shares", {"shares": {"verify": 1.0, "sleep": 1.0}}),
        ("shares", {"shares": {"prefill": 0.3, "verify": 1.7}}),
        ("concurrency", {"turns": (made_turn(0), made_turn(1, start=0.9))}),
        ("times", {"turns": (made_turn(0), made_turn(0, 1, start=0.5)), "concurrency": 2}),
        ("times", {"seconds": 1.5, "shares": {}}),
        (
            "no-drafts",
            {"turns": (ar_turn(0), ar_turn(1, start=1.0))},
        ),
    ],
)
def test_a_fault_of_a_cell_is_named(name: str, changes: dict[str, Any]) -> None:
    found = found_in(changes.get("turns"), **{k: v for k, v in changes.items() if k != "turns"})
    assert set(names(found)) == {name}
    assert {finding.level for finding in found} == {"fault"}


def told_by_server(*counts: Any) -> list[Finding]:
    return found_in((made_turn(),), SERVER, shares={}, counts=Counts(*counts))


def test_a_servers_own_counts_add_up() -> None:
    assert told_by_server(4, 12, 5, (3, 2, 0)) == []
    assert told_by_server(4, 12, 5) == []
    for wrong in ((4, 12, 13), (4, 12, 5, (2, 3)), (4, 12, 5, (3, 1))):
        assert "accepted" in names(told_by_server(*wrong))


def test_a_question_may_be_asked_twice_at_once() -> None:
    talks = [made_turn(0, turn, start=turn + by) for by in (0.0, 0.5) for turn in (0, 1)]
    assert found_in(talks, concurrency=2, seconds=2.5, shares={}) == []
    talks[3] = replace(talks[3], start=1.2)  # its first turn ended at 1.5
    found = found_in(talks, concurrency=3, seconds=2.5, shares={})
    assert [(each.name, each.turn) for each in found] == [("times", 1)]


def test_an_answer_that_came_whole_has_no_first_piece() -> None:
    assert found_in((made_turn(first=None),), shares={}) == []
    assert names(found_in((made_turn(first=None, last=-0.5),), shares={})) == ["times"] * 2


def test_shares_may_be_off_by_a_hundredth() -> None:
    assert found_in((), shares={"verify": 1.985}) == []
    assert names(found_in((), shares={"verify": 1.975})) == ["shares"]
    assert found_in((), shares={}) == []


def test_an_answer_that_ended_before_its_first_token_counts_nothing() -> None:
    nothing = {"completion_tokens": 0, "text": "", "finish_reason": "cancelled"}
    none = {"rounds": 0, "drafted": 0, "accepted": 0, "drafted_at": (), "accepted_at": ()}
    assert names(found_in((made_turn(**nothing, **none),), shares={})) == ["unfinished"]
    late = {**none, "rounds": 1, "completion_tokens": 0}
    assert "emitted" in names(found_in((made_turn(**late),), shares={}))


def test_servers_may_count_more_than_was_written_not_less() -> None:
    behind_the_end = made_turn(accepted=7, accepted_at=())
    assert found_in((behind_the_end,), SERVER, shares={}) == []
    assert names(found_in((made_turn(accepted=4, accepted_at=()),), SERVER, shares={})) == [
        "emitted"
    ]
    silent = made_turn(
        rounds=None,
        drafted=None,
        accepted=None,
        drafted_at=(),
        accepted_at=(),
        prefill_seconds=None,
    )
    assert found_in((silent,), SERVER, shares={}) == []


def test_plain_decoding_drafts_nothing() -> None:
    assert names(found_in((made_turn(),), AR, shares={})) == ["drafted"]


def test_an_arm_that_chooses_widths_may_draft_nothing_and_any_width() -> None:
    auto = replace(FIXED, name="dflash auto", width="auto")
    wide = made_turn(rounds=1, accepted=8, drafted=15, drafted_at=(1,) * 15, accepted_at=(1,) * 8)
    assert found_in((ar_turn(),), auto, shares={}) == []
    assert found_in((wide,), auto, shares={}) == []


@st.composite
def engine_answers(draw: st.DrawFn) -> Turn:
    """An answer as Counters::count_round counts it: a round keeps 1 to its width of tokens."""
    rounds = draw(st.lists(st.integers(0, 3), max_size=12))
    widths = [draw(st.integers(kept, 3)) for kept in rounds]
    at = {
        name: tuple(
            sum(count > place for count in counts) for place in range(max(widths, default=0))
        )
        for name, counts in (("drafted_at", widths), ("accepted_at", rounds))
    }
    return made_turn(
        completion_tokens=1 + len(rounds) + sum(rounds),
        rounds=len(rounds),
        drafted=sum(widths),
        accepted=sum(rounds),
        **at,
    )


@given(engine_answers())
def test_what_rounds_count_has_no_findings(turn: Turn) -> None:
    ask = Ask(max_tokens=50)
    found = list(check_cell(made_cell(FIXED, (turn,), shares={}), FIXED, ask))
    assert set(names(found)) <= {"no-drafts"}


@given(
    engine_answers(),
    st.sampled_from(["completion_tokens", "rounds", "drafted", "accepted"]),
    st.integers(-5, 5).filter(bool),
)
def test_a_count_that_is_off_is_always_found(turn: Turn, name: str, by: int) -> None:
    wrong = replace(turn, **{name: getattr(turn, name) + by})
    inside = {"prefill": 0.2, "host": 1.8}
    found = list(check_cell(made_cell(FIXED, (wrong,), shares=inside), FIXED, Ask(max_tokens=99)))
    assert {finding.name for finding in found} - {"no-drafts"}


def test_a_missing_template_is_warned_of() -> None:
    bare = replace(FIXED, details={"template": "none"})
    (finding,) = check_arm(bare)
    assert (finding.name, finding.level) == ("no-template", "warning")
    assert finding.line().startswith("warning no-template: dflash 4: no chat template was used")
    assert list(check_arm(FIXED)) == list(check_arm(replace(FIXED, details={}))) == []
    ar = made_cell(AR, (ar_turn(0), ar_turn(1, start=1.0)))
    found = check(bench(ar, made_cell(bare), arms=(AR, bare)))
    assert names(found) == ["no-template"]


def said(facts: ArmFacts, texts: Sequence[str], **changes: Any) -> Cell:
    make: Callable[..., Turn] = ar_turn if facts is AR else made_turn
    turns = [make(number, start=float(number), text=text) for number, text in enumerate(texts)]
    return made_cell(facts, turns, seconds=float(len(texts)), shares={}, **changes)


def test_texts_are_compared_with_plain_decoding() -> None:
    tie = TEXT[:40] + "something else altogether."
    cells = (said(AR, [TEXT] * 4), said(FIXED, [TEXT, tie, TEXT, TEXT]))
    (agreement,) = compare_texts(bench(*cells))
    assert (agreement.of, agreement.same, agreement.early) == (4, 3, 0)
    assert agreement.places == ((1, 40),)
    (finding,) = check(bench(*cells))
    assert (finding.name, finding.level, finding.arm) == ("other-text", "warning", "dflash 4")
    assert "1 of 4 texts are not those of ar" in finding.text
    assert "1 after 40" in finding.text


def test_texts_that_differ_from_the_beginning_are_no_ties() -> None:
    cells = (said(AR, [TEXT] * 4), said(FIXED, [TEXT, "No.", "A dog.", "Snow covers it all."]))
    (finding,) = check(bench(*cells))
    assert (finding.name, finding.level) == ("other-text", "fault")
    assert "ties" not in finding.text


def test_later_turns_of_a_conversation_that_strayed_are_left_out() -> None:
    def talk(facts: ArmFacts, *texts: str) -> Cell:
        make: Callable[..., Turn] = ar_turn if facts is AR else made_turn
        turns = [
            make(0, number, start=float(number), text=text) for number, text in enumerate(texts)
        ]
        return made_cell(facts, turns, seconds=3.0, shares={})

    cells = (talk(AR, TEXT, TEXT, TEXT), talk(FIXED, TEXT, TEXT[:50] + "!", "Quite."))
    (agreement,) = compare_texts(bench(*cells))
    assert (agreement.of, agreement.same) == (2, 1)


def test_sampled_and_simulated_texts_are_not_compared() -> None:
    cells = (said(AR, [TEXT]), said(FIXED, ["Other."]))
    assert names(check(bench(*cells))) == ["other-text"]
    assert check(bench(*cells, ask=replace(ASK, temperature=1.0))) == []
    assert check(bench(*cells, simulated=True)) == []


def test_runs_that_say_other_things_are_unsteady() -> None:
    cells = (said(AR, [TEXT, TEXT]), said(AR, [TEXT, TEXT[:-1]], run=2))
    (finding,) = check(bench(*cells))
    assert (finding.name, finding.level) == ("unsteady-text", "warning")
    assert finding.text.startswith("1 answers differ")


def test_loops_are_flagged_once_whatever_the_arm_gains_by_them() -> None:
    cells = [said(facts, [TEXT, "so " * 30], run=run) for facts in (AR, FIXED) for run in (0, 1)]
    found = check(bench(*cells))
    assert [(finding.name, finding.arm, finding.question) for finding in found] == [
        ("one-token-loop", "ar", 1),
        ("one-token-loop", "dflash 4", 1),
    ]
    assert "ends in 'so' 30 times in a row" in found[0].text
    assert check(bench(*cells, simulated=True)) == []


def test_faults_come_before_warnings() -> None:
    wrong = made_cell(FIXED, (made_turn(text="so " * 30), made_turn(1, start=1.0, rounds=5)))
    found = check(bench(wrong, arms=(FIXED,)))
    assert names(found) == ["emitted", "one-token-loop"]
    assert [a.level <= b.level for a, b in pairwise(found)] == [True]


def test_a_whole_answer_has_no_first_piece() -> None:
    cell = made_cell(turns=(made_turn(0, first=None), made_turn(1, start=1.0, first=None)))
    assert list(check_cell(cell, FIXED, ASK)) == []


def test_how_it_was_asked_is_needed_to_check() -> None:
    wrong = made_cell(FIXED, (made_turn(rounds=5), made_turn(1, start=1.0)))
    assert names(check(bench(wrong, arms=(FIXED,)))) == ["emitted"]
    assert check(bench(wrong, arms=(FIXED,), ask=None)) == []


def test_prefill_and_decode_are_apart_in_an_answers_time() -> None:
    # each alone would have room
    both = made_turn(prefill_seconds=0.3, decode_seconds=0.75)
    (finding,) = found_in((both,), shares={})
    assert (finding.name, finding.level) == ("times", "fault")
    assert "prefill took 0.300000 s and decode 0.750000 of an answer that took 1.0" in finding.text


def test_rounds_take_their_time_behind_the_first_token() -> None:
    # what is behind first tokens is 1.5 s
    shares = {"prefill": 0.4, "draft": 0.3, "verify": 1.2, "host": 0.1}
    assert found_in(None, shares=shares) == []
    swapped = {"prefill": 0.4, "draft": 0.3, "verify": 1.25, "host": 0.05}
    (finding,) = found_in(None, shares=swapped)
    assert (finding.name, finding.level) == ("shares", "fault")
    assert "drafts and verifies took 1.550000 s of 1.500000" in finding.text
    assert found_in(None, shares=swapped, concurrency=2) == []


def test_a_server_that_drafts_more_than_its_width_is_warned_of() -> None:
    most = made_turn(drafted=15, drafted_at=())  # four rounds of three, and one that was cut
    assert found_in((most,), SERVER, shares={}) == []
    (finding,) = found_in((replace(most, drafted=16),), SERVER, shares={})
    assert (finding.name, finding.level) == ("drafted", "warning")
    steps = replace(SERVER, mode="mtp", width=3)
    assert found_in((most,), steps, shares={}) == []
    assert names(found_in((replace(most, drafted=16),), steps, shares={})) == ["drafted"]


def test_a_servers_counters_and_answers_tell_of_the_same_drafts() -> None:
    assert found_in(None, SERVER, counts=Counts(8, 24, 10)) == []
    (finding,) = found_in(None, SERVER, counts=Counts(8, 27, 10))
    assert (finding.name, finding.level) == ("drafted", "warning")
    assert "24 tokens were drafted by answer, 27 by the server's counters" in finding.text


@pytest.mark.parametrize("told", ["answers", "counters"])
def test_a_baseline_that_drafts_is_warned_of(told: str) -> None:
    base = replace(SERVER, mode="ar", width=None)
    silent = {"rounds": None, "drafted": None, "accepted": None, "prefill_seconds": None}
    silent |= {"drafted_at": (), "accepted_at": ()}
    turns = None if told == "answers" else (made_turn(**silent), made_turn(1, start=1.0, **silent))
    counts = Counts(8, 24, 10) if told == "counters" else None
    (finding,) = found_in(turns, base, counts=counts)
    assert (finding.name, finding.level) == ("drafts", "warning")
    assert "dflash:8=URL" in finding.text


def test_a_server_of_ours_counts_as_exactly_as_far_as_it_tells() -> None:
    told = made_turn(drafted_at=())
    assert found_in((told,), shares={}) == []
    assert names(found_in((replace(told, rounds=5),), shares={})) == ["emitted"]
    for wrong in ((3, 1), (5, 0, 0)):
        assert "positions" in names(found_in((replace(told, accepted_at=wrong),), shares={}))
    silent = replace(told, rounds=None, drafted=None, accepted=None, accepted_at=())
    assert found_in((silent,), shares={}) == []
