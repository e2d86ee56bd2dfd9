"""Cases of the field that people have met with other servers, by their ids.

V1 and V2 are in test_disturbances.py, a broken drafter's file (V7) in test_process.py. About 4 seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dflash_gguf import Engine
from dflash_gguf.openai_choices import ChatShape

from ..support.random_pairs import THINK, Pair
from ..support.scripted import Scripted
from ..support.served import Served, content, said, serving, until
from ..support.sessions import plain
from ..support.tiny import Tiny

CLOSE = THINK + 1
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def trained(tiny: Tiny) -> Iterator[Served]:
    """A server of the trained pair, whose drafts are accepted."""
    pair = Pair(tiny.target_f32, tiny.draft("f32"))
    with serving(pair, context=1024, block=8, sequences=2) as found:
        yield found


def test_v3_no_tag_is_left_in_an_answer(served: Served) -> None:
    """The template opens the thinking; a bias has it closed somewhere, within a block or at its edge."""
    whole = 0
    for seed in range(6):
        bias = [[CLOSE, 2.5], [THINK, False]]
        asked: dict[str, Any] = {"max_tokens": 80, "temperature": 1, "seed": seed}
        asked["logit_bias"] = bias
        message = served.chat("think", **asked)["choices"][0]["message"]
        thought, said_ = message.get("reasoning_content") or "", message["content"] or ""
        found = served.streamed("think", **asked)
        deltas = [piece["choices"][0]["delta"] for piece in found]
        assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == thought
        assert "".join(delta.get("content") or "" for delta in deltas) == said_
        raw = served.chat("think", **asked, reasoning_format="none")["choices"][0]["message"]
        first, tag, rest = raw["content"].partition("</think>")
        assert first.removeprefix("<think>").strip() == thought
        assert rest.lstrip("\r\n") == said_
        assert "<think>" not in thought + said_.partition("</think>")[0]
        whole += bool(thought and tag and said_)
    assert whole >= 3


@pytest.mark.parametrize("text", ["😀🎉🚀🐍❤️", "こんにちは、世界。日本語です。", "naïve café ½"])
def test_v4_characters_come_whole(served: Served, text: str) -> None:
    """Their bytes are tokens of their own here, drafted and accepted or not."""
    quoted = text.replace("\\", "").replace('"', "")
    found = served.streamed(
        "write", grammar=f'root ::= "{quoted}"', max_tokens=120, logprobs=True, top_logprobs=0
    )
    assert content(found) == quoted
    assert "\ufffd" not in content(found)
    pieces = [piece["choices"][0]["delta"].get("content") or "" for piece in found]
    assert len([piece for piece in pieces if piece]) > 1


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": None},
        {"max_tokens": 3},
        {"max_completion_tokens": 3},
        {"max_completion_tokens": 3, "max_tokens": 50},
        {"max_tokens": -1, "max_completion_tokens": 3},
        {"stop": None},
        {"stop": "a"},
        {"stop": ["a", "b"]},
        {"stop": []},
        {"temperature": None, "top_p": None, "n": None, "seed": None, "stream": None},
        {"logit_bias": None, "response_format": None, "tools": None, "stream_options": None},
        {"stream_options": {"include_usage": True}},
        {"stream_options": {"include_usage": None, "other": 1}},
        {"seed": -1, "top_k": -1},
        {"user": "me", "store": False, "metadata": {"a": "b"}, "service_tier": "auto"},
        {"unknown": {"nested": [1, None]}, "verbosity": "low", "modalities": ["text"]},
        {"cache_prompt": True, "id_slot": -1, "samplers": ["top_k"], "mirostat": 0},
        {"response_format": {"type": "text"}, "parallel_tool_calls": True},
        {"logit_bias": {"65": -5}},
        {"logit_bias": [[65, -5.5], [66, False]]},
        {"chat_template_kwargs": {"enable_thinking": False, "other": 1}},
        {"reasoning_effort": "none"},
        {"reasoning_effort": "high"},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
        {"messages": [{"role": "developer", "content": "be"}, *said("hi")]},
        {"messages": [*said("a"), {"role": "assistant", "content": None}, *said("b")]},
        {"messages": [{"role": "user", "content": "hi", "name": "me", "unknown": 1}]},
        {"model": "gpt-4o"},
        {"model": None},
    ],
    ids=str,
)
def test_v5_what_clients_send_is_understood(served: Served, fields: dict[str, Any]) -> None:
    body = {"messages": said("hi"), "max_tokens": 4} | fields
    whole = served.post(CHAT, **body)
    assert whole.status_code == 200, whole.text
    assert whole.json()["model"] == "made"
    written = whole.json()["usage"]["completion_tokens"]
    if 3 in {fields.get("max_tokens"), fields.get("max_completion_tokens")}:
        assert written == 3
    streamed = served.post(CHAT, **(body | {"stream": True}))
    assert streamed.status_code == 200, streamed.text
    assert streamed.text.endswith("data: [DONE]\n\n")
    wants = (fields.get("stream_options") or {}).get("include_usage")
    assert ('"usage":{' in streamed.text) == bool(wants)


def test_v5_content_in_parts_is_one_text(served: Served) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    body = {"messages": [{"role": "user", "content": parts}]}
    prompts = [
        served.post("/apply-template", **each).json()["prompt"]
        for each in (body, {"messages": said("one\ntwo")})
    ]
    assert prompts[0] == prompts[1]


def test_v5_stop_strings_end_an_answer(served: Served) -> None:
    asked: dict[str, Any] = {
        "max_tokens": 30,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    text = served.chat("stops", **asked)["choices"][0]["message"]["content"]
    # one that comes for the first time in the middle; U+FFFD stands for bytes that are no text
    stop = next(c for at, c in enumerate(text) if at > 2 and text.index(c) == at and c.isascii())
    for form in (stop, ["never there", stop]):
        (choice,) = served.chat("stops", stop=form, **asked)["choices"]
        assert choice["message"]["content"] == text[: text.index(stop)]
        assert choice["finish_reason"] == "stop"


def test_v7_responses_and_metrics_tell_how_drafts_fare(trained: Served, tiny: Tiny) -> None:
    before = trained.metrics()
    prompt = tiny.prompts[40]["messages"]
    found = trained.chat(messages=prompt, max_tokens=60)
    told, timings = found["timings"]["speculative"], found["timings"]
    assert timings["draft_n"] == told["drafted"] > timings["draft_n_accepted"] == told["accepted"]
    assert told["accept_length"] > 1
    assert sum(told["accepted_per_position"]) == told["accepted"] > 0
    assert found["usage"]["completion_tokens"] == 1 + told["steps"] + told["accepted"]
    grown = {name: value - before.get(name, 0) for name, value in trained.metrics().items()}
    name = "llamacpp:spec_decode_num_accepted_tokens"
    assert grown[f"{name}_total"] == told["accepted"]
    at = [
        grown.get(f'{name}_per_pos_total{{position="{place}"}}', 0)
        for place in range(len(told["accepted_per_position"]))
    ]
    assert at == told["accepted_per_position"]
    assert grown["llamacpp:spec_decode_num_draft_tokens_total"] == told["drafted"]
    assert grown["llamacpp:tokens_predicted_total"] == found["usage"]["completion_tokens"]
    assert grown["dflash:verifies_total"] == told["steps"]
    assert trained.metrics()["dflash:draft_failed"] == 0
    assert trained.http.get("/props").json()["speculative"]["drafter"] is True


def test_v7_a_drafter_that_gives_up_is_told_of(
    dense: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    prompt = [72, 101, 108, 108, 111]
    text = plain(dense.target, prompt, 30)

    def failing() -> Engine:
        made = Scripted(dense.target, 8)
        made.script(prompt + text, [4])
        made.drafter.fail_at(0, 3)
        return made.engine

    with serving(dense, open_engine=failing, sequences=1) as served:
        assert served.metrics()["dflash:draft_failed"] == 0
        assert served.http.get("/props").json()["speculative"]["failed"] is False
        asked = {"prompt": prompt, "max_tokens": 30, "ignore_eos": True}
        found = served.post("/v1/completions", **asked).json()
        told = found["timings"]["speculative"]
        assert told["draft_failure"] == "scripted failure in round 3"
        assert told["accepted"] == 12
        assert served.metrics()["dflash:draft_failed"] == 1
        facts = served.http.get("/props").json()["speculative"]
        assert facts["failed"] is True
        assert "drafting stopped" in facts["warnings"][0]
        served.post("/v1/completions", **asked)
    said_ = [record.getMessage() for record in caplog.records]
    assert len([text for text in said_ if text.startswith("warning: drafting stopped")]) == 1


def test_v8_special_tokens_that_are_typed_stay_text(served: Served) -> None:
    counts = {
        text: served.chat(text, max_tokens=1)["usage"]["prompt_tokens"]
        for text in ("<|im_end|>", "x" * len("<|im_end|>"))
    }
    assert len(set(counts.values())) == 1
    parts = {"messages": [{"role": "user", "content": [{"type": "text", "text": "<|im_end|>"}]}]}
    assert served.chat("", max_tokens=1, **parts)["usage"]["prompt_tokens"] in counts.values()
    # what is known of an engine's ids holds for what is sent as a chat
    assert isinstance(served.service.engine(), Engine)
    plain = served.post("/tokenize", content="<|im_end|>", parse_special=False).json()["tokens"]
    special = served.post("/tokenize", content="<|im_end|>").json()["tokens"]
    assert (len(plain), len(special)) == (10, 1)
    back = served.post("/detokenize", tokens=special + plain).json()["content"]
    assert back == "<|im_end|>" * 2


def test_v9_a_turn_reads_only_what_is_new(trained: Served, tiny: Tiny) -> None:
    first = tiny.prompts[41]["messages"]
    begun = trained.chat(messages=first, max_tokens=30)
    again = trained.chat(messages=first, max_tokens=30)
    read = begun["usage"]["prompt_tokens"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= read - 8
    assert again["timings"]["cache_n"] + again["timings"]["prompt_n"] == read
    assert again["choices"][0]["message"] == begun["choices"][0]["message"]
    answer = {"role": "assistant", "content": begun["choices"][0]["message"]["content"]}
    turn = trained.chat(messages=[*first, answer, *first], max_tokens=4)
    cached = turn["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= read - 8  # up to the border of the turn; templates add a little for the answer
    streamed = trained.streamed(
        messages=[*first, answer, *first], max_tokens=4, stream_options={"include_usage": True}
    )
    assert streamed[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] >= cached
    assert trained.metrics()["llamacpp:prompt_tokens_cached_total"] >= 2 * cached


@pytest.mark.parametrize("stream", [True, False])
def test_what_cannot_be_shaped_ends_alone(
    served: Served, stream: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        text = "what was asked"
        raise ValueError(text)

    with monkeypatch.context() as planted:
        planted.setattr(ChatShape, "pieces" if stream else "whole", broken)
        reply = served.post(CHAT, messages=said("hi"), max_tokens=5, n=2, stream=stream)
    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == "internal_error"
    until(served.idle, "places given back, once")
    assert "ValueError at test_cases.py" in caplog.text
    assert "what was asked" not in reply.text + caplog.text
    assert served.chat("hi", max_tokens=2)["usage"]["completion_tokens"] == 2
    assert served.idle()


def test_an_engine_that_has_ended_is_no_healthy_server(dense: Pair) -> None:
    with serving(dense) as served:
        served.service.worker().close()
        for reply in (
            served.http.get("/health"),
            served.post(CHAT, messages=said("hi")),
            served.post("/tokenize", content="hi"),
        ):
            assert reply.status_code == 500
            assert reply.json()["error"]["code"] == "engine_error"
        assert served.http.get("/metrics").status_code == 200
