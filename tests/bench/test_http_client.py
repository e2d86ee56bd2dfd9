"""Streams of any dialect give an answer; every fault gives one line that names URL, status and the server's words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_gguf.bench.http_client import Answer, HttpClient, PeerError
from dflash_gguf.errors import UsageError
from tests.support.fake_server import (
    USAGE,
    Fake,
    Reply,
    event,
    json_reply,
    piece,
    serving,
    stream,
)

ASKED = [{"role": "user", "content": "hi"}]


def ask(
    answer: Callable[[dict[str, Any]], Reply], *, whole: bool = False, timeout: float = 20
) -> Answer:
    with serving(Fake(answer)) as fake, HttpClient(fake.url, timeout=timeout) as client:
        return (client.whole if whole else client.stream)(ASKED, {"max_tokens": 5})


def test_a_stream() -> None:
    with serving(Fake(lambda _: stream("a", "b", timings={"x": 1}))) as fake:
        with HttpClient(f"{fake.url}/v1/", api_key="secret") as client:
            answer = client.stream(ASKED, {"max_tokens": 5})
        assert fake.headers[0]["Authorization"] == "Bearer secret"
    (body,) = fake.asked
    assert body == {
        "model": "fake",
        "messages": ASKED,
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert (answer.text, answer.finish_reason) == ("ab", "stop")
    assert (answer.prompt_tokens, answer.completion_tokens) == (7, 5)
    assert answer.told == {"usage": USAGE, "timings": {"x": 1}}
    assert answer.first is not None
    assert answer.asked < answer.first <= answer.last


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning(name: str) -> None:
    parts = [event(piece(**{name: "why"})), event(piece("stop", content="so"))]
    answer = ask(lambda _: Reply([*parts, event({"choices": [], "usage": USAGE})]))
    assert (answer.reasoning, answer.content, answer.text) == ("why", "so", "why</think>so")


def test_times_are_of_text_alone() -> None:
    """The role's piece is no answer yet, the usage's none any more."""
    parts = [piece(role="assistant"), piece(content="a"), piece("stop", content="b")]
    parts.append({"choices": [], "usage": USAGE})
    answer = ask(lambda _: Reply([event(part) for part in parts], pause=0.1))
    assert answer.first is not None
    assert answer.first - answer.asked > 0.09
    assert answer.last - answer.first > 0.09


def test_a_whole_answer() -> None:
    message = {"role": "assistant", "content": "so", "reasoning_content": "why"}
    choice = {"index": 0, "message": message, "finish_reason": "length", "meta_info": {"a": 1}}
    answer = ask(lambda _: json_reply({"choices": [choice], "usage": USAGE}), whole=True)
    assert (answer.text, answer.first, answer.finish_reason) == ("why</think>so", None, "length")
    assert answer.told["meta_info"] == {"a": 1}


FAULTS: dict[str, tuple[Reply, str]] = {
    "openai error": (json_reply({"error": {"message": "too\nlong"}}, 400), "status 400: too long"),
    "sglang error": (json_reply({"object": "error", "message": "no"}, 400), "status 400: no"),
    "fastapi error": (json_reply({"detail": "no"}, 422), "status 422: no"),
    "plain error": (Reply([b"boom"], 500), "status 500: boom"),
    "empty error": (Reply([b""], 500), "status 500: without a word"),
    "error in stream": (Reply([event({"error": {"message": "oom"}})]), "status 200: oom"),
    "dropped": (Reply([event(piece(content="a"))], drop=True), "peer closed connection"),
    "error, then dropped": (Reply([event({"error": "oom"})], drop=True), "status 200: oom"),
    "broken off": (
        Reply([event(piece(content="a")), event(piece(content="b"))]),
        "broke off after 2 pieces",
    ),
    "not json": (Reply([b"data: {a\n\n"]), "expected a JSON object, found: {a"),
    "no object": (Reply([b"data: [1]\n\n"]), "expected a JSON object, found: [1]"),
    "odd choices": (Reply([event({"choices": ["x"]})]), "not a chat completion"),
    "no stream": (Reply([b"<html>\nhello"], kind="text/html"), "status 200: <html> hello"),
    "silent": (Reply([b""]), "status 200: without a word"),
    "no usage": (stream("a", usage=None), "does not tell its usage"),
    "slow": (Reply([event(piece(content="a"))] * 2, pause=3), "not a byte came within 0.5 s"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_one_line(fault: str) -> None:
    reply, said = FAULTS[fault]
    with pytest.raises(PeerError) as error:
        ask(lambda _: reply, timeout=0.5 if fault == "slow" else 20)
    text = str(error.value)
    assert said in text
    assert "/v1/chat/completions: " in text
    assert "\n" not in text


def test_nobody_there() -> None:
    with HttpClient("http://127.0.0.1:9", model="x") as client, pytest.raises(PeerError) as error:
        client.stream(ASKED, {})
    assert "http://127.0.0.1:9/v1/chat/completions: " in str(error.value)


def test_closed_and_opened_again() -> None:
    with serving(Fake(lambda _: stream("a"))) as fake, HttpClient(fake.url) as client:
        assert client.model == "fake"
        client.close()
        with pytest.raises(PeerError, match="given up"):
            client.stream(ASKED, {})
        client.open()
        assert client.stream(ASKED, {}).text == "a"
        assert client.metrics() is None


def test_a_base_url_is_one() -> None:
    with pytest.raises(UsageError, match="begins with http"):
        HttpClient("localhost:8080")


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(UsageError, match=r"pip install 'dflash-gguf\[bench\]'"):
        HttpClient("http://127.0.0.1:9")


def test_a_real_stream() -> None:
    """Of llama-server, as it came: a piece a token, timings with the usage."""
    golden = Path(__file__).parent / "golden" / "llama_server_stream.txt"
    answer = ask(lambda _: Reply([golden.read_bytes()]))
    assert answer.content == "<think>\n\n</think>\n\n79 - 46 = 22. "
    assert (answer.finish_reason, answer.completion_tokens) == ("length", 12)
    assert answer.told["timings"]["draft_n_accepted"] == 9
