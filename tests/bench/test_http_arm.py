"""A server as an arm: every question, in order, so many at a time, with what its engine tells."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from dflash_gguf.bench.http_arm import HttpArm, without_opening
from dflash_gguf.bench.http_client import HttpClient, PeerError
from dflash_gguf.bench.peer_process import PeerProcess
from dflash_gguf.bench.records import Ask, Counts, Question
from dflash_gguf.errors import UsageError
from tests.support.fake_server import USAGE, Fake, Reply, json_reply, serving, stream
from tests.support.tiny import ROOT, Tiny

QUESTIONS = tuple(Question("w", number, (f"q{number}",)) for number in range(5))
ASK = Ask(max_tokens=9)


@contextmanager
def arm(fake: Fake, **options: Any) -> Iterator[HttpArm]:
    with serving(fake):
        made = HttpArm(HttpClient(fake.url, timeout=20), name="peer", **options)
        yield made
        made.close()


def echo(body: dict[str, Any]) -> Reply:
    return stream("re: ", body["messages"][-1]["content"])


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_all_are_answered_so_many_at_a_time(concurrency: int) -> None:
    fake = Fake(lambda body: replace(echo(body), pause=0.02))
    with arm(fake) as made:
        cell = made.run(QUESTIONS, ASK, concurrency)
    assert fake.most == min(concurrency, 5)
    assert [turn.question for turn in cell.turns] == [0, 1, 2, 3, 4]
    assert [turn.text for turn in cell.turns] == [f"re: q{number}" for number in range(5)]
    assert (cell.arm, cell.workload, cell.concurrency, cell.run) == ("peer", "w", concurrency, 0)
    assert cell.seconds == max(turn.last for turn in cell.turns)
    for turn in cell.turns:
        assert turn.first is not None
        assert 0 <= turn.start < turn.first <= turn.last
        assert (turn.rounds, turn.drafted, turn.accepted) == (None, None, None)


def test_turns_of_a_conversation() -> None:
    with arm(Fake(echo)) as made:
        cell = made.run((Question("w", 4, ("a", "b", "c")),), ASK, 2)
        assert made.facts.speaks_for == "openai"
    assert [(turn.question, turn.turn, turn.text) for turn in cell.turns] == [
        (4, 0, "re: a"),
        (4, 1, "re: b"),
        (4, 2, "re: c"),
    ]


def test_what_was_said_before() -> None:
    fake = Fake(echo)
    before = (("system", "Be brief."), ("user", "a"), ("assistant", "b"))
    with arm(fake) as made:
        made.run((Question("w", 0, ("c",), before=before),), ASK, 1)
    assert [(said["role"], said["content"]) for said in fake.asked[0]["messages"]] == [
        *before,
        ("user", "c"),
    ]


def test_history_is_as_the_server_gave_it() -> None:
    reply = stream("so")
    reply.parts[1:1] = [b'data: {"choices": [{"delta": {"reasoning_content": "why"}}]}\n\n']
    fake = Fake(lambda _: reply)
    with arm(fake) as made:
        made.run((Question("w", 0, ("a", "b")),), ASK, 1)
    assert fake.asked[1]["messages"] == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "so", "reasoning_content": "why"},
        {"role": "user", "content": "b"},
    ]


def test_llama_server() -> None:
    timings = {"predicted_n": 5, "draft_n": 6, "draft_n_accepted": 2, "prompt_ms": 10}
    timings["predicted_ms"] = 20
    fake = Fake(lambda _: stream("<think>\n", "a", timings=timings), owner="llamacpp")
    with arm(fake, mode="dflash", width=4, steps=3) as made:
        cell = made.run(QUESTIONS[:1], ASK, 1)
        assert made.facts.speaks_for == "llama-server"
    (turn,) = cell.turns
    assert turn.text == "a"
    assert (turn.rounds, turn.drafted, turn.accepted) == (2, 6, 2)
    assert (turn.prefill_seconds, turn.decode_seconds) == (0.01, 0.02)
    assert fake.asked[0]["cache_prompt"] is False
    assert cell.counts is None  # started without --metrics


def test_vllm_counts_a_cell() -> None:
    numbers = iter([(10, 30, 12), (14, 42, 18)])

    def metrics() -> str:
        names = ("drafts", "draft_tokens", "accepted_tokens")
        pairs = zip(names, next(numbers), strict=True)
        return "".join(f"vllm:spec_decode_num_{name}_total {count}\n" for name, count in pairs)

    with arm(Fake(echo, owner="vllm", metrics=metrics)) as made:
        assert made.run(QUESTIONS, ASK, 2).counts == Counts(4, 12, 6)


def test_sglang_is_asked_for_whole_answers() -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": {"content": "a"}}
    choice["meta_info"] = {"completion_tokens": 5, "spec_verify_ct": 2}
    reply = json_reply({"choices": [choice], "usage": USAGE})
    fake = Fake(lambda _: reply, owner="sglang")
    with arm(fake) as made:
        (turn,) = made.run(QUESTIONS[:1], ASK, 1).turns
    assert "stream" not in fake.asked[0]
    assert fake.asked[0]["return_meta_info"] is True
    assert (turn.text, turn.first, turn.rounds, turn.accept_length) == ("a", None, 2, 2.5)


@pytest.mark.parametrize(
    ("owner", "own"),
    [
        ("someone", {}),
        ("vllm", {"top_k": -1, "min_p": 0.0}),
        (
            "llamacpp",
            {"top_k": 0, "min_p": 0.0, "cache_prompt": False, "reasoning_format": "none"},
        ),
        ("dflash-gguf", {"top_k": -1, "min_p": 0.0, "return_meta_info": True}),
    ],
)
def test_what_is_asked_when_sampling(owner: str, own: dict[str, Any]) -> None:
    fake = Fake(echo, owner=owner)
    ask = Ask(9, temperature=0.5, top_p=0.9, seed=7, think=False, ignore_end=True)
    with arm(fake) as made:
        made.run(QUESTIONS[2:3], ask, 1)
    (body,) = fake.asked
    assert body == {
        "model": "fake",
        "messages": [{"role": "user", "content": "q2"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 9,
        "chat_template_kwargs": {"enable_thinking": False},
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **own,
    }


def test_a_failure_ends_the_cell_and_not_the_arm() -> None:
    """The other answer, which would take a minute, is not waited for."""
    broken = True

    def answer(body: dict[str, Any]) -> Reply:
        if not broken:
            return echo(body)
        if body["messages"][0]["content"] == "q1":
            return json_reply({"error": {"message": "out of slots"}}, 500)
        return replace(stream(*["a"] * 600), pause=0.1)

    fake = Fake(answer)
    with arm(fake) as made:
        began = time.monotonic()
        with pytest.raises(PeerError, match="status 500: out of slots"):
            made.run(QUESTIONS, ASK, 2)
        assert time.monotonic() - began < 30
        assert len(fake.asked) <= 3
        broken = False
        assert len(made.run(QUESTIONS, ASK, 2).turns) == 5


@pytest.mark.parametrize(("questions", "concurrency"), [((), 1), (QUESTIONS, 0)])
def test_nothing_to_do(questions: tuple[Question, ...], concurrency: int) -> None:
    with arm(Fake(echo)) as made, pytest.raises(UsageError, match="expected 1 or more"):
        made.run(questions, ASK, concurrency)


def test_openings() -> None:
    assert without_opening("<think>\n\n</think>\n\n4") == "4"
    assert without_opening("<think>\nwhy\n</think>\n\n4") == "why\n</think>\n\n4"
    assert without_opening("4 <think>\n") == "4 <think>\n"


@pytest.fixture
def llama_server() -> str:
    found = os.environ.get("DFLASH_GGUF_LLAMA_SERVER") or shutil.which("llama-server")
    if not found:
        pytest.skip("no llama-server in PATH or named by DFLASH_GGUF_LLAMA_SERVER")
    return found


def test_a_real_llama_server(llama_server: str, tiny: Tiny) -> None:
    """Its counts by answer are those that its metrics give of all."""
    target = ROOT / "target.gguf"
    command = f"'{llama_server}' -m '{target}' -md '{tiny.draft('bf16')}' --spec-type draft-dflash"
    command += " --spec-draft-n-max 7 -t 1 -td 1 -c 4096 --parallel 4 --metrics"
    command += " --host 127.0.0.1 --port {port} --no-ui -fit off"
    texts = [entry["messages"][-1]["content"] for entry in tiny.prompts[:4]]
    questions = tuple(Question("tiny", number, (text,)) for number, text in enumerate(texts))
    process = PeerProcess(command, wait=120)
    made = HttpArm(
        HttpClient(process.base_url),
        name="llama-server 7",
        mode="dflash",
        width=8,
        process=process,
        steps=7,
    )
    try:
        cell = made.run(questions, Ask(24), 4)
        again = made.run(questions, Ask(24), 1)
    finally:
        made.close()
    assert not process.running
    assert made.facts.speaks_for == "llama-server"
    assert cell.peak_memory is not None
    assert [turn.text for turn in cell.turns] == [turn.text for turn in again.turns]
    for measured in (cell, again):
        turns, counts = measured.turns, measured.counts
        assert counts is not None
        rounds = [turn.rounds for turn in turns if turn.rounds is not None]
        assert len(rounds) == len(turns)
        assert sum(rounds) >= counts.rounds > 0  # its own are those with a draft
        assert sum(turn.drafted or 0 for turn in turns) == counts.drafted
        assert sum(turn.accepted or 0 for turn in turns) <= counts.accepted
        assert all(0 < turn.completion_tokens <= 24 for turn in turns)
