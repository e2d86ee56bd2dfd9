"""Rounds with a scripted drafter: whatever is drafted and accepted, the text is the target's own."""

from __future__ import annotations

import random

import pytest

from dflash_gguf._native import core

from .support.random_pairs import VOCAB, Pair
from .support.sessions import ENDLESS, finish, open_session, plain

PROMPT = [72, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100]


@pytest.mark.parametrize("block", [2, 4, 8, 16])
def test_text_is_plain_for_every_number_accepted(pair: Pair, block: int) -> None:  # R1
    expected = plain(pair.target, PROMPT, 120)
    for count in range(block):
        drafter = core().ScriptedDrafter(VOCAB)
        session = open_session(pair.target, block=block, drafter=drafter)
        number = session.add(PROMPT, max_tokens=120, block=block, stops=ENDLESS)
        drafter.script(number, PROMPT + expected, [count])
        assert finish(session, [number])[number] == expected
        counters = session.counters(number)
        assert counters.emitted == 120 == 1 + counters.rounds + counters.accepted
        # all rounds but the last one or two, which the limit cuts, accept exactly `count`
        assert counters.rounds == -(-119 // (count + 1))
        assert counters.drafted == sum(counters.drafted_at)
        assert counters.accepted == sum(counters.accepted_at)


def test_rejected_drafts_leave_no_trace(pair: Pair) -> None:  # R3
    expected = plain(pair.target, PROMPT, 1000, n_ctx=1024)
    numbers = random.Random(3)
    for counts in ([0], [numbers.randrange(8) for _ in range(97)]):
        drafter = core().ScriptedDrafter(VOCAB)
        session = open_session(pair.target, block=8, drafter=drafter, n_ctx=1024)
        number = session.add(PROMPT, max_tokens=1000, block=8, stops=ENDLESS)
        drafter.script(number, PROMPT + expected, counts)
        assert finish(session, [number])[number] == expected


def test_every_context_row_is_injected_once_and_in_order(pair: Pair) -> None:  # R7
    drafter = core().ScriptedDrafter(VOCAB)
    prompt = PROMPT * 20
    session = open_session(pair.target, block=8, drafter=drafter)
    number = session.add(prompt, max_tokens=60, block=8, stops=ENDLESS)
    drafter.script(number, prompt + plain(pair.target, prompt, 60), [5, 0, 7, 2])
    seen = []
    while not seen or seen[-1].finish == core().Finish.none:
        seen += session.step()  # ScriptedDrafter.inject throws on a gap
        counters = session.counters(number)
        if counters.emitted and seen[-1].finish == core().Finish.none:
            # the last emitted token has not been read by the target yet
            assert counters.injected == len(prompt) + counters.emitted - 1


def test_prompts_are_cut_into_batches_without_a_seam(pair: Pair) -> None:  # R8
    prompt = [(7 * i) % 256 for i in range(400)]
    expected = plain(pair.target, prompt, 40, n_batch=400, n_ctx=1024)
    for n_batch, n_ubatch in [(400, 400), (64, 32), (33, 17), (400, 100)]:
        drafter = core().ScriptedDrafter(VOCAB)
        session = open_session(
            pair.target, block=8, drafter=drafter, n_ctx=1024, n_batch=n_batch, n_ubatch=n_ubatch
        )
        number = session.add(prompt, max_tokens=40, block=8, stops=ENDLESS)
        drafter.script(number, prompt + expected, [7, 3])
        assert finish(session, [number])[number] == expected


def test_rows_behind_a_drafted_end_are_not_verified(pair: Pair) -> None:
    expected = plain(pair.target, PROMPT, 60)
    stop = expected[20]
    end = expected.index(stop)
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(pair.target, block=8, drafter=drafter)
    number = session.add(PROMPT, max_tokens=60, block=8, stops={stop})
    drafter.script(number, PROMPT + expected, [7])
    assert finish(session, [number])[number] == expected[: end + 1]
    # blocks of 8 follow the prompt's own token; the last has no more than what is left up to the end
    full, rest = divmod(end - 1, 8)
    assert session.counters(number).drafted == 7 * full + min(rest + 1, 7)


@pytest.mark.parametrize("at", range(9))
def test_stop_token_anywhere_in_a_block_is_exact(pair: Pair, at: int) -> None:  # R13
    expected = plain(pair.target, PROMPT, 60)
    stop = expected[20 + at]
    end = expected.index(stop) + 1
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(pair.target, block=8, drafter=drafter)
    number = session.add(PROMPT, max_tokens=60, block=8, stops={stop})
    drafter.script(number, PROMPT + expected, [7])
    assert finish(session, [number])[number] == expected[:end]
    counters = session.counters(number)
    assert counters.emitted == end == 1 + counters.rounds + counters.accepted


@pytest.mark.parametrize("limit", range(1, 20))
def test_max_tokens_is_exact(hybrid: Pair, limit: int) -> None:  # R13
    expected = plain(hybrid.target, PROMPT, 20)
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(hybrid.target, block=8, drafter=drafter)
    number = session.add(PROMPT, max_tokens=limit, block=8, stops=ENDLESS)
    drafter.script(number, PROMPT + expected, [7])
    assert finish(session, [number])[number] == expected[:limit]


def test_many_sequences_equal_their_solo_runs(pair: Pair) -> None:  # B7
    prompts = [[(i * 37 + 11 * k) % 256 for k in range(5 + 9 * i)] for i in range(4)]
    alone = [plain(pair.target, prompt, 50) for prompt in prompts]
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(pair.target, block=8, sequences=4, drafter=drafter)
    ids = []
    for i, prompt in enumerate(prompts):
        ids.append(session.add(prompt, max_tokens=50 - 7 * i, block=8 - i, stops=ENDLESS))
        drafter.script(ids[-1], prompt + alone[i], [i, 7, 0, 3])
    together = finish(session, ids)
    for i, number in enumerate(ids):
        assert together[number] == alone[i][: 50 - 7 * i]


def test_a_sequence_joins_while_another_runs_and_one_leaves(pair: Pair) -> None:
    first, second = plain(pair.target, PROMPT, 60), plain(pair.target, PROMPT[::-1], 60)
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(pair.target, block=8, sequences=2, drafter=drafter)
    a = session.add(PROMPT, max_tokens=60, block=8, stops=ENDLESS)
    drafter.script(a, PROMPT + first, [4, 1])
    tokens = [token for _ in range(5) for output in session.step() for token in output.tokens]
    leaver = session.add([1, 2, 3], max_tokens=60, block=8, stops=ENDLESS)
    for _ in range(2):
        tokens += [token for output in session.step() if output.id == a for token in output.tokens]
    session.remove(leaver)
    b = session.add(PROMPT[::-1], max_tokens=60, block=8, stops=ENDLESS)
    assert b == leaver, "ids are used again"
    drafter.script(b, PROMPT[::-1] + second, [7])
    rest = finish(session, [a, b])
    assert tokens + rest[a] == first
    assert rest[b] == second


def test_going_back_gives_the_logits_of_a_fresh_run(pair: Pair) -> None:  # R2
    # text after the rollback can only equal the fresh run's if the state does; try all distances at once
    expected = plain(pair.target, PROMPT, 40)
    for distance in range(1, 8):
        drafter = core().ScriptedDrafter(VOCAB)
        session = open_session(pair.target, block=8, drafter=drafter)
        number = session.add(PROMPT, max_tokens=40, block=8, stops=ENDLESS)
        drafter.script(number, PROMPT + expected, [7 - distance])
        assert finish(session, [number])[number] == expected


def test_a_failing_drafter_leaves_plain_decoding(pair: Pair) -> None:  # B6
    expected = plain(pair.target, PROMPT, 60)
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(pair.target, block=8, drafter=drafter)
    number = session.add(PROMPT, max_tokens=60, block=8, stops=ENDLESS)
    drafter.script(number, PROMPT + expected, [4])
    drafter.fail_at(number, 3)
    assert finish(session, [number])[number] == expected
    assert session.draft_failure == "scripted failure in round 3"
    assert session.counters(number).drafting_rounds == 3


def test_simulated_acceptance_follows_its_curve(dense: Pair) -> None:
    survival = [0.9, 0.7, 0.5, 0.2]
    session = open_session(
        dense.target, block=5, drafter=core().SimulatedDrafter(survival, 1), n_ctx=4096
    )
    number = session.add(PROMPT, max_tokens=4000, block=5, stops=ENDLESS)
    finish(session, [number])
    counters = session.counters(number)
    observed = [count / counters.drafting_rounds for count in counters.accepted_at]
    # four standard errors at about 1,200 rounds
    assert observed == pytest.approx(survival, abs=0.06)


def test_requests_that_cannot_run_are_refused_with_their_numbers(hybrid: Pair) -> None:
    session = open_session(hybrid.target, block=4, n_ctx=256)
    refusals = [
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [VOCAB]}, f"token {VOCAB} is outside the vocabulary of {VOCAB}"),
        ({"prompt": [-1]}, "token -1 is outside"),
        ({"prompt": [1] * 256}, "the prompt has 256 tokens, the context holds 256"),
        ({"block": 5}, "block 5 is outside 1 to 4"),
        ({"block": -1}, "block -1 is outside 1 to 4"),
        ({"max_tokens": 0}, "max_tokens is 0"),
    ]
    for change, text in refusals:
        request = {"prompt": [1, 2], "max_tokens": 5, "block": 4, "stops": ENDLESS} | change
        with pytest.raises(ValueError, match=text):
            session.add(request.pop("prompt"), **request)
    session.add([1], max_tokens=5, block=4, stops=ENDLESS)
    with pytest.raises(ValueError, match="all 1 sequences are in use"):
        session.add([1], max_tokens=5, block=4, stops=ENDLESS)


@pytest.mark.parametrize("length", [250, 254, 255])
def test_the_contexts_edge_ends_an_answer(pair: Pair, length: int) -> None:  # B1
    prompt = [(3 * i) % 256 for i in range(length)]
    expected = plain(pair.target, prompt, 300, n_ctx=256)
    assert len(expected) == 256 - length
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(pair.target, block=8, drafter=drafter, n_ctx=256)
    number = session.add(prompt, max_tokens=300, block=8, stops=ENDLESS)
    drafter.script(number, prompt + expected, [7])
    assert finish(session, [number])[number] == expected


def test_a_hybrid_target_needs_states_to_go_back_to(hybrid: Pair) -> None:
    native = core()
    params = native.ContextParams()
    params.n_ctx, params.n_outputs, params.n_rollback = 256, 8, 3
    target = native.Target(native.Context(native.Model(str(hybrid.target)), params), [])
    with pytest.raises(ValueError, match="keeps 3 states to go back to, a block of 8 needs 7"):
        native.Session(target, None, 8)


def test_an_end_token_may_be_the_first(pair: Pair) -> None:
    stop = plain(pair.target, PROMPT, 1)[0]
    session = open_session(pair.target, block=4)
    number = session.add(PROMPT, max_tokens=9, block=4, stops={stop})
    (output,) = session.step()
    assert (output.tokens, output.finish) == ([stop], core().Finish.stop)
    assert session.counters(number).emitted == 1


def test_sequences_of_a_hybrid_target_share_a_width_that_all_have_room_for(hybrid: Pair) -> None:
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(hybrid.target, block=8, sequences=2, drafter=drafter, n_ctx=256)
    prompts = [PROMPT, [(3 * i) % 256 for i in range(50)]]
    for block, prompt in zip((8, 3), prompts, strict=True):
        number = session.add(prompt, max_tokens=40, block=block, stops=ENDLESS)
        drafter.script(number, prompt, [0])
    session.step()
    session.step()
    assert [len(session.counters(number).drafted_at) for number in (0, 1)] == [7, 7]
    session.remove(1)
    long = [(3 * i) % 256 for i in range(252)]
    number = session.add(long, max_tokens=9, block=8, stops=ENDLESS)
    drafter.script(number, long, [0])
    finish(session, [0, number])
    assert session.draft_failure == ""
    assert len(session.counters(number).drafted_at) == 3, "no row reaches past the context"


def test_a_drafter_that_failed_is_left_alone(dense: Pair) -> None:
    drafter = core().ScriptedDrafter(VOCAB)
    session = open_session(dense.target, block=8, drafter=drafter)
    number = session.add(PROMPT, max_tokens=60, block=8, stops=ENDLESS)
    drafter.script(number, PROMPT, [0])
    drafter.fail_at(number, 1)
    while not session.draft_failure:
        session.step()
    seen = drafter.injected(number)
    drafter.fail_at(number, -1)  # it would work again
    finish(session, [number])
    assert drafter.injected(number) == seen
    assert session.counters(number).drafting_rounds == 1
