"""The Engine: one request, many, cancelled ones, and everything that is refused."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dflash_gguf
from dflash_gguf import DflashError, Engine, ResourceError, Sequence, UsageError

from .support.edited import spoilt
from .support.random_pairs import VOCAB, Pair

PROMPT = [72, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100]
QUICK: dict[str, Any] = {"threads": 1, "context": 256, "kv_type": "f32"}


@pytest.fixture(scope="module")
def engine(pair: Pair) -> Iterator[Engine]:
    """Room for three answers; shared, so each test ends what it starts."""
    with dflash_gguf.load(pair.target, pair.draft, sequences=3, **QUICK) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain(pair: Pair) -> Iterator[Engine]:
    with dflash_gguf.load(pair.target, **QUICK) as engine:
        yield engine


@pytest.mark.parametrize("block", [1, 2, 4, 8])
@pytest.mark.parametrize("prompt", ["Why is the sky blue?", PROMPT, "日本🙂"])
def test_text_with_the_drafter_is_the_targets_own(
    engine: Engine, plain: Engine, prompt: Any, block: int
) -> None:
    expected = plain.generate(prompt, max_tokens=100, ignore_end=True)
    answer = engine.generate(prompt, max_tokens=100, ignore_end=True, block=block)
    assert (answer.prompt, answer.tokens, answer.text) == (
        expected.prompt,
        expected.tokens,
        expected.text,
    )
    assert answer.finish_reason == "length"
    stats = answer.stats
    assert stats is not None
    assert stats.emitted == len(answer.tokens) == 100 == 1 + stats.rounds + stats.accepted
    assert stats.prompt_tokens == len(answer.prompt)
    assert stats.block == block
    assert (stats.drafted > 0) == (block > 1)
    assert len(stats.drafted_at) == len(stats.accepted_at) == block - 1


def test_the_default_block_is_what_is_fastest(engine: Engine, plain: Engine) -> None:
    assert (engine.block, plain.block) == ("auto", 1)
    assert (engine.n_ctx, plain.n_ctx) == (256, 256)
    assert engine.generate(PROMPT, max_tokens=5).stats.block == "auto"  # type: ignore[union-attr]


def test_text_messages_and_ids_are_prompts(engine: Engine) -> None:
    message = {"role": "user", "content": "hi"}
    ids = engine.encode("hi")
    assert engine.encode([message]) == engine.encode((message,)) == ids
    assert engine.encode(ids) == engine.encode(tuple(ids)) == engine.encode(np.array(ids)) == ids
    assert engine.encode(iter(ids)) == ids  # type: ignore[arg-type]
    raw = engine.encode("<|im_start|>hi", raw=True)
    assert raw == [257, *engine.encode("hi", raw=True)]
    assert engine.encode("hi", template={"enable_thinking": False})[: len(ids) - 1] == ids[:-1]
    frame = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert engine.encode(frame, raw=True) == ids


def test_the_stream_is_the_answer_in_pieces(engine: Engine) -> None:
    answer = engine.generate("hi", max_tokens=60, ignore_end=True)
    chunks = list(engine.stream("hi", max_tokens=60, ignore_end=True))
    assert "".join(chunk.text for chunk in chunks) == answer.text
    assert [token for chunk in chunks for token in chunk.tokens] == answer.tokens
    assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert all(1 <= len(chunk.tokens) <= 8 for chunk in chunks)


def test_an_end_token_stops_and_is_counted_but_not_shown(engine: Engine, plain: Engine) -> None:
    for seed in range(200):
        prompt = [(seed * 31 + i * 7) % 256 for i in range(9)]
        free = plain.generate(prompt, max_tokens=150, ignore_end=True)
        end = next((i for i, token in enumerate(free.tokens) if token in {256, 258}), None)
        if end is not None and end > 3:
            break
    else:
        pytest.fail("no prompt's answer has an end token")
    answer = engine.generate(prompt, max_tokens=150)
    assert answer.finish_reason == "stop"
    assert answer.tokens == free.tokens[: end + 1]
    assert "<|" not in answer.text
    assert free.text.startswith(answer.text)


def test_several_answers_at_once_are_each_their_own(engine: Engine, plain: Engine) -> None:  # B7
    prompts = [PROMPT, PROMPT[::-1], list(range(60))]
    alone = [plain.generate(prompt, max_tokens=40, ignore_end=True) for prompt in prompts]
    answers = [
        engine.start(prompt, max_tokens=40, ignore_end=True, block=block)
        for prompt, block in zip(prompts, (8, 3, 1), strict=True)
    ]
    assert engine.busy
    assert engine.free == 0
    with pytest.raises(ResourceError, match="3 answers are in progress and no more fit"):
        engine.start(PROMPT)
    texts = {id(answer): "" for answer in answers}
    while engine.busy:
        for answer, chunk in engine.step():
            texts[id(answer)] += chunk.text
    for answer, own in zip(answers, alone, strict=True):
        assert answer.tokens == own.tokens
        assert answer.text == own.text == texts[id(answer)]
    assert engine.step() == []


def test_interleaved_streams_lose_nothing(engine: Engine, plain: Engine) -> None:
    prompts = [PROMPT, PROMPT[::-1]]
    streams = [engine.stream(prompt, max_tokens=50, ignore_end=True) for prompt in prompts]
    texts, left = ["", ""], [0, 1]
    choose = random.Random(5)
    while left:
        i = choose.choice(left)
        chunk = next(streams[i], None)
        if chunk is None:
            left.remove(i)
        else:
            texts[i] += chunk.text
    assert texts == [plain.generate(p, max_tokens=50, ignore_end=True).text for p in prompts]
    assert not engine.busy


def test_cancelled_at_any_round_the_next_request_is_right(engine: Engine, plain: Engine) -> None:
    expected = plain.generate(PROMPT, max_tokens=30, ignore_end=True).tokens
    for rounds in range(6):
        leaver = engine.start(list(range(200)), max_tokens=30, ignore_end=True)
        for _ in range(rounds):
            engine.step()
        chunk = engine.cancel(leaver)
        assert chunk.finish_reason == leaver.finish_reason == "cancelled"
        assert leaver.stats is not None
        assert leaver.stats.emitted == len(leaver.tokens)
        assert engine.cancel(leaver).tokens == ()
        assert engine.generate(PROMPT, max_tokens=30, ignore_end=True).tokens == expected


def test_leaving_a_stream_cancels_it(engine: Engine) -> None:
    for _ in engine.stream(PROMPT, max_tokens=30, ignore_end=True):
        break
    gc.collect()
    assert not engine.busy
    never_begun = engine.stream(PROMPT)
    del never_begun
    assert not engine.busy


def test_an_answer_ends_at_the_contexts_edge(engine: Engine, plain: Engine) -> None:  # B1
    for length in (250, 254, 255):
        prompt = [i % 256 for i in range(length)]
        answer = engine.generate(prompt, ignore_end=True)
        assert answer.finish_reason == "length"
        assert len(answer.tokens) == 256 - length
        assert answer.tokens == plain.generate(prompt, ignore_end=True).tokens
    for length in (256, 257):
        with pytest.raises(
            ResourceError, match=f"the prompt has {length} tokens, the context holds 256"
        ):
            engine.start([1] * length)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [VOCAB]}, f"token {VOCAB} is outside the vocabulary of {VOCAB}"),
        ({"prompt": [-1]}, "token -1 is outside"),
        ({"prompt": [2**70]}, "is outside the vocabulary"),
        ({"prompt": None}, "the prompt is NoneType; expected text, messages or token ids"),
        ({"prompt": b"hi"}, "the prompt is bytes; expected text"),
        ({"prompt": {"role": "user"}}, "the prompt is dict; expected text"),
        ({"prompt": 5}, "the prompt is int; expected text"),
        ({"prompt": ["hi"]}, "a message is 'hi'; expected a mapping"),
        ({"prompt": [1, {"role": "user"}]}, "a message is 1; expected a mapping"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_tokens": -5}, "max_tokens is -5"),
        ({"max_tokens": 1.5}, "max_tokens is 1.5; expected a whole number"),
        ({"max_tokens": "9"}, "max_tokens is '9'; expected a whole number"),
        ({"block": 0}, 'block is 0; expected "auto" or a whole number of at least 1'),
        ({"block": 9}, "block 9 is outside 1 to 8"),
        ({"block": "wide"}, "block is 'wide'; expected \"auto\" or a whole number"),
        ({"block": -(2**31)}, 'expected "auto" or a whole number'),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    engine: Engine, request_: dict[str, Any], words: str
) -> None:
    arguments = {"prompt": PROMPT} | request_
    with pytest.raises(UsageError) as caught:
        engine.start(arguments.pop("prompt"), **arguments)
    assert words in str(caught.value)
    assert not engine.busy


def test_huge_limits_are_no_fault(engine: Engine) -> None:
    answer = engine.start(PROMPT, max_tokens=2**70)
    engine.cancel(answer)


def test_a_misspelt_option_is_an_error(engine: Engine) -> None:
    for method in (engine.start, engine.generate, engine.encode):
        with pytest.raises(TypeError, match="max_token"):
            method(PROMPT, max_token=5)  # type: ignore[operator]
    with pytest.raises(TypeError, match="max_token"):
        next(engine.stream(PROMPT, max_token=5))  # type: ignore[call-arg]


def test_another_thread_is_refused(engine: Engine) -> None:
    errors: list[Exception] = []

    def use() -> None:
        for action in (
            lambda: engine.generate("hi"),
            lambda: engine.n_ctx,
            lambda: engine.encode("hi"),
            engine.step,
        ):
            try:
                action()
            except DflashError as error:
                errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert [type(error) for error in errors] == [UsageError] * 4
    assert "belongs to the thread that loaded it; use a Worker" in str(errors[0])


def test_a_closed_engine_says_so(dense: Pair) -> None:
    engine = dflash_gguf.load(dense.target, dense.draft, **QUICK)
    answer = engine.start(PROMPT)
    stream = engine.stream(PROMPT[::-1])
    engine.step()
    engine.close()
    engine.close()
    assert answer.finish_reason == "cancelled"
    uses = [
        lambda: engine.generate("hi"),
        lambda: engine.start("hi"),
        engine.step,
        engine.times,
        lambda: engine.cancel(answer),
        lambda: engine.n_ctx,
        lambda: engine.block,
        lambda: engine.free,
        lambda: engine.encode("hi"),
        lambda: next(stream),
    ]
    for use in uses:
        with pytest.raises(UsageError, match="the engine is closed; load it again"):
            use()  # type: ignore[operator]


def test_closing_inside_a_stream_ends_it(dense: Pair) -> None:
    engine = dflash_gguf.load(dense.target, dense.draft, **QUICK)
    chunks = engine.stream(PROMPT, ignore_end=True)
    next(chunks)
    engine.close()
    assert [chunk.finish_reason for chunk in chunks] == ["cancelled"]


def test_an_answer_of_another_engine_is_refused(dense: Pair, engine: Engine) -> None:
    with dflash_gguf.load(dense.target, **QUICK) as other:
        theirs = other.start(PROMPT)
        ours = engine.start(PROMPT)
        with pytest.raises(UsageError, match="belongs to another engine"):
            engine.cancel(theirs)
        assert ours.finish_reason is None
        engine.cancel(ours)


def test_a_failing_target_ends_all_answers(dense: Pair, tmp_path: Path) -> None:
    broken = spoilt(dense.target, tmp_path / "t.gguf", "output.weight")
    with dflash_gguf.load(broken, dense.draft, sequences=2, **QUICK) as engine:
        answers = [engine.start(PROMPT), engine.start(PROMPT)]
        with pytest.raises(DflashError, match="logits are not numbers; its file may be damaged"):
            engine.step()
        assert [answer.finish_reason for answer in answers] == ["cancelled"] * 2
        assert engine.free == 2


def test_the_drafters_failure_is_a_warning_and_plain_decoding(dense: Pair, tmp_path: Path) -> None:
    broken = spoilt(dense.draft, tmp_path / "d.gguf")
    with (
        dflash_gguf.load(dense.target, broken, **QUICK) as engine,
        dflash_gguf.load(dense.target, **QUICK) as own,
    ):
        answer = engine.generate(PROMPT, max_tokens=30, ignore_end=True)
        assert answer.tokens == own.generate(PROMPT, max_tokens=30, ignore_end=True).tokens


def test_times_add_up(engine: Engine) -> None:
    engine.generate(PROMPT, max_tokens=10, ignore_end=True)
    times = engine.times()
    stages = sum(value for name, value in times.items() if name != "total")
    assert times["total"] == pytest.approx(stages)
    assert min(times["verify"], times["prefill"]) > 0
    assert min(times.values()) >= 0


def test_an_answer_grows_chunk_by_chunk() -> None:
    answer = Sequence(prompt=(1,), block=4)
    assert answer.add([5, 6], b"a\xe2\x82", None).text == "a"
    assert answer.add([7], b"\xac", None).text == "€"
    last = answer.add([8], b"b\xe2", "length")
    assert (last.text, last.finish_reason) == ("b", "length")
    assert (answer.text, answer.tokens) == ("a€b", [5, 6, 7, 8])
