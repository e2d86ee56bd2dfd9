"""What a server refuses, and in which form: OpenAI's errors, never a 422, never a word of what was asked.

About 3 seconds.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from ..support.random_pairs import Pair
from ..support.served import Client, Served, said, serving, until

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def locked(dense: Pair) -> Iterator[Served]:
    """A server with two keys that knows its model's name and takes small bodies."""
    from dflash_gguf.serve.service import Limits

    limits = Limits(body=4096)
    rules = {"strict": True, "max_output": 5}
    keys, names = ("one key", "schlüssel"), ("box.example",)
    with serving(dense, keys=keys, names=names, limits=limits, rules=rules) as found:
        yield found


def refused(reply: httpx2.Response, status: int, code: str | None = None) -> dict[str, Any]:
    """Return the error of a reply that must be one."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    error: dict[str, Any] = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert "\n" not in error["message"]
    if code is not None:
        assert error["code"] == code
    return error


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "hi"}]}, "messages"),
        ({"messages": said("hi"), "temperature": "0"}, "temperature"),
        ({"messages": said("hi"), "temperature": -1}, "temperature"),
        ({"messages": said("hi"), "max_tokens": 0}, "max_tokens"),
        ({"messages": said("hi"), "max_tokens": 2.5}, "max_tokens"),
        ({"messages": said("hi"), "n": 0}, "n"),
        ({"messages": said("hi"), "n": 5}, "n"),
        ({"messages": said("hi"), "stop": ""}, "stop"),
        ({"messages": said("hi"), "seed": 2**64}, "seed"),
        ({"messages": said("hi"), "top_logprobs": 2}, "top_logprobs"),
        ({"messages": said("hi"), "top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"messages": said("hi"), "logit_bias": {"9999999": 1}}, None),
        ({"messages": said("hi"), "logit_bias": {"a": 1}}, None),
        ({"messages": said("hi"), "block": 99}, None),
        ({"messages": said("hi"), "response_format": {"type": "sonnet"}}, None),
        ({"messages": said("hi"), "grammar": "root ::= ("}, None),
        ({"messages": said("hi"), "tool_choice": "nothing"}, None),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, None),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else str(value),
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_value_is_named(
    served: Served, body: dict[str, Any], param: str | None, stream: bool
) -> None:
    error = refused(served.post(CHAT, **(body | {"stream": stream})), 400)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    until(served.idle, "no answer left")


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/tokenize", "/detokenize"])
def test_a_body_that_is_no_json_object_is_refused(served: Served, path: str) -> None:
    kind = {"Content-Type": "application/json"}
    for content in (b"", b"{", b"[1]", b"\xff\xfe", b'"x"', b"null", b"[" * 100_000):
        refused(served.http.post(path, content=content, headers=kind), 400)
    refused(served.http.post(path, content=b"{}", headers={"Content-Type": "text/plain"}), 400)


def test_a_prompt_beyond_the_context_is_refused(served: Served) -> None:
    for stream in (False, True):
        reply = served.post(CHAT, messages=said("word " * 300), stream=stream)
        error = refused(reply, 400, "context_length_exceeded")
        assert "512" in error["message"]
    reply = served.post("/v1/completions", prompt="word " * 300)
    refused(reply, 400, "context_length_exceeded")
    refused(served.post("/v1/completions", prompt=[999_999]), 400)


def test_what_is_not_done_is_named(served: Served) -> None:
    for name, value in (("echo", True), ("suffix", "x"), ("best_of", 3)):
        error = refused(served.post("/v1/completions", prompt="x", **{name: value}), 400)
        assert error["param"] == name
    for name, value in (("echo", False), ("suffix", None), ("best_of", 1)):
        reply = served.post("/v1/completions", prompt="x", max_tokens=1, **{name: value})
        assert reply.status_code == 200, reply.text


def test_other_paths_and_methods_are_refused(served: Served) -> None:
    refused(served.http.get("/v2"), 404, "not_found")
    refused(served.http.get(CHAT), 405, "method_not_allowed")
    refused(served.http.get("/v1/models/other"), 404, "model_not_found")
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page//etc/passwd", "/..%2fapp.py"):
        refused(served.http.get(path), 404)
    assert served.http.get("/docs").status_code == 404


def test_a_key_is_asked_for(locked: Served) -> None:
    for path in ("/health", "/v1/health"):
        assert locked.http.get(path).status_code == 200
    for path in ("/v1/models", "/metrics", "/props", "/openapi.json", "/nix", "/health/"):
        error = refused(locked.http.get(path), 401, "invalid_api_key")
        assert error["type"] == "authentication_error"
    for shown in ("one", "ONE KEY", "x", "one key2", "schl", "schlüssel2"):
        header = f"Bearer {shown}".encode()
        refused(locked.http.get("/v1/models", headers={"Authorization": header}), 401)
    for name, value in (
        ("Authorization", "Bearer one key"),
        ("Authorization", "bearer schlüssel"),
        ("X-Api-Key", "one key"),
    ):
        reply = locked.http.get("/v1/models", headers={name: value.encode()})
        assert reply.status_code == 200
    refused(locked.http.get("/v1/models", headers={"Authorization": "Basic one key"}), 401)


def test_limits_of_bodies_answers_and_names_hold(locked: Served) -> None:
    headers = {"Authorization": "Bearer one key", "Content-Type": "application/json"}

    def post(content: Any) -> httpx2.Response:
        return locked.http.post(CHAT, content=content, headers=headers)

    long = json.dumps({"messages": said("x" * 5000)}).encode()
    refused(post(long), 413, "too_large")
    with Client(locked.url) as client:  # refused by its length, before it is there
        client.send(
            f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer one key\r\n"
            "Content-Length: 100000\r\n\r\n"
        )
        assert client.read_until(b"}}").startswith(b"HTTP/1.1 413 ")
    refused(post(iter([long[:3000], long[3000:]])), 413, "too_large")  # of no length said before
    for limit in ({}, {"max_tokens": 50}, {"max_tokens": -1}, {"max_completion_tokens": 50}):
        found = post(json.dumps({"messages": said("x"), **limit})).json()
        assert found["usage"]["completion_tokens"] == 5
    named = json.dumps({"messages": said("x"), "model": "other"})
    assert refused(post(named), 404, "model_not_found")["param"] == "model"
    assert post(json.dumps({"messages": said("x"), "model": "made"})).status_code == 200


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Host", "localhost:1", 200),
        ("Host", "127.0.0.1", 200),
        ("Host", "[::1]:80", 200),
        ("Host", "evil.example", 403),
        ("Host", "evil.example:30000", 403),
        ("Host", "localhost.evil.example", 403),
        ("Host", "192.168.1.4", 403),
        ("Origin", "http://evil.example", 403),
        ("Origin", "http://127.0.0.1:1", 403),
        ("Origin", "null", 403),
    ],
)
def test_other_hosts_and_pages_are_refused(
    served: Served, header: str, value: str, status: int
) -> None:
    for path in ("/health", "/v1/models"):
        reply = served.http.get(path, headers={header: value})
        assert reply.status_code == status
        assert "access-control-allow-origin" not in reply.headers
    own = served.http.get("/health", headers={"Origin": served.url})
    assert own.status_code == 200


def test_a_name_behind_a_proxy_is_its_own(locked: Served) -> None:
    for host, origin, status in (
        ("box.example", "https://box.example", 200),
        ("box.example:443", "https://BOX.example:8443", 200),
        ("127.0.0.1:1", "https://box.example", 200),
        ("other.example", "https://box.example", 403),
        ("box.example", "https://other.example", 403),
        ("box.example", "https://[", 403),
        ("box.example", "", 403),
    ):
        reply = locked.http.get("/health", headers={"Host": host, "Origin": origin})
        assert reply.status_code == status, (host, origin)


def test_what_is_nested_too_deeply_or_is_no_text_is_refused(served: Served) -> None:
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"]}
    reply = served.post(CHAT, messages=said("x"), json_schema=deep)
    assert reply.status_code in {200, 400}, reply.text
    half = {"tools": [{"type": "function", "function": {"name": "\ud800"}}]}
    body = json.dumps({"messages": said("x"), **half})
    kind = {"Content-Type": "application/json"}
    refused(served.http.post(CHAT, content=body, headers=kind), 400)
    half = {"messages": [{"role": "user", "content": "\ud800"}]}
    # as everywhere, it becomes U+FFFD
    reply = served.http.post(CHAT, content=json.dumps(half | {"max_tokens": 1}), headers=kind)
    assert reply.status_code == 200


def test_prompts_are_neither_logged_nor_repeated(
    served: Served, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "hunter2"
    served.chat(secret, max_tokens=2)
    replies = [
        served.post(CHAT, messages=[{"role": secret, "content": {"text": secret}}]),
        served.post(CHAT, messages=said(secret * 100)),
        served.post(CHAT, messages=said(secret), temperature=secret),
    ]
    assert [reply.status_code for reply in replies] == [400] * 3
    assert not any(secret in reply.text for reply in replies)
    own = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert secret not in "".join(record.getMessage() for record in own)
    assert secret not in "".join(capfd.readouterr())


def test_settings_that_leave_no_token_are_refused(served: Served) -> None:
    bans = [[token, False] for token in range(262)]
    for stream in (False, True):
        reply = served.post(CHAT, messages=said("x"), stream=stream, max_tokens=4, logit_bias=bans)
        refused(reply, 400, "invalid_value")
