"""Chats over HTTP: their text is the engine's, their shape OpenAI's, their figures llama-server's and SGLang's.

About 5 seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import Engine, Params, Sampling

from ..support.edited import edited
from ..support.random_pairs import Pair
from ..support.served import OPTIONS, Served, content, said, serving

TIMINGS = {
    "cache_n",
    "prompt_n",
    "prompt_ms",
    "prompt_per_token_ms",
    "prompt_per_second",
    "predicted_n",
    "predicted_ms",
    "predicted_per_token_ms",
    "predicted_per_second",
    "draft_n",
    "draft_n_accepted",
    "speculative",
}


@pytest.fixture(scope="module")
def engine(dense: Pair) -> Iterator[Engine]:
    with dflash_gguf.load(dense.target, dense.draft, **OPTIONS) as found:
        yield found


def test_an_answer_is_the_engines(served: Served, engine: Engine) -> None:
    own = engine.generate(said("hi"), max_tokens=24)
    found = served.chat(max_tokens=24)
    (choice,) = found["choices"]
    message = choice["message"]
    assert (message.get("reasoning_content") or "") + (message["content"] or "") == own.text
    assert choice["finish_reason"] == own.finish_reason
    assert found["object"] == "chat.completion"
    assert found["model"] == "made"
    assert found["system_fingerprint"] == f"dflash-gguf-{dflash_gguf.__version__}"
    assert found["id"].startswith("chatcmpl-")
    stats = own.stats
    assert stats is not None
    assert found["usage"]["completion_tokens"] == stats.emitted
    assert found["usage"]["prompt_tokens"] == stats.prompt_tokens
    told = found["timings"]["speculative"]
    assert (told["steps"], told["drafted"], told["accepted"]) == (
        stats.rounds,
        stats.drafted,
        stats.accepted,
    )


def test_a_stream_adds_up_to_the_answer(served: Served) -> None:
    whole = served.chat("stream", max_tokens=24)
    found = served.streamed("stream", max_tokens=24, stream_options={"include_usage": True})
    message = whole["choices"][0]["message"]
    assert content(found) == (message.get("reasoning_content") or "") + (message["content"] or "")
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert set(found[-1]["timings"]) == TIMINGS
    assert "timings" not in found[-2]  # once, in the last piece
    assert set(served.streamed("stream", max_tokens=24)[-1]["timings"]) == TIMINGS
    assert all(piece["usage"] is None for piece in found[:-1])
    assert found[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert len({piece["id"] for piece in found}) == 1


def test_a_stream_has_one_event_for_each_block(served: Served) -> None:
    found = served.streamed("blocks", max_tokens=40)
    told = found[-1]["timings"]["speculative"]
    texts = [piece for piece in found if piece["choices"][0]["delta"].get("content")]
    # a prompt's own token, and one for each verify, but where a character is not complete
    assert len(texts) <= 1 + told["steps"]
    assert "usage" not in found[0]


def test_several_choices_are_told_apart(served: Served, engine: Engine) -> None:
    asked: dict[str, Any] = {"temperature": 0.9, "seed": 5, "max_tokens": 12, "n": 3}
    found = served.chat("several", **asked)
    params = [
        Params(max_tokens=12, sampling=Sampling(temperature=0.9, seed=5 + index))
        for index in range(3)
    ]
    own = [engine.generate(said("several"), each).text for each in params]
    messages = [choice["message"] for choice in found["choices"]]
    assert [(m.get("reasoning_content") or "") + (m["content"] or "") for m in messages] == own
    assert len(set(own)) == 3
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2]
    total = sum(choice["timings"]["predicted_n"] for choice in found["choices"])
    assert found["usage"]["completion_tokens"] == total
    streamed = served.streamed("several", **asked)
    assert [content(streamed, index) for index in range(3)] == own


def test_sglangs_figures_come_when_asked_for(served: Served) -> None:
    found = served.chat("figures", max_tokens=20, return_meta_info=True)
    told, stats = found["meta_info"], found["timings"]["speculative"]
    assert told["completion_tokens"] == found["usage"]["completion_tokens"]
    assert told["spec_verify_ct"] == stats["steps"]
    assert told["spec_accept_length"] == told["completion_tokens"] / told["spec_verify_ct"]
    assert "meta_info" not in served.chat("figures", max_tokens=20)
    last = served.streamed("figures", max_tokens=20, return_meta_info=True)[-1]
    assert last["meta_info"]["spec_verify_ct"] == stats["steps"]
    wants = {"stream_options": {"include_usage": True}, "return_meta_info": True}
    last = served.streamed("figures", max_tokens=20, **wants)[-1]
    assert last["meta_info"]["finish_reason"] == told["finish_reason"] != {"type": None}


def test_figures_come_with_every_piece_when_asked_for(served: Served) -> None:
    found = served.streamed("each", max_tokens=12, timings_per_token=True)
    counts = [piece["timings"]["predicted_n"] for piece in found if "timings" in piece]
    assert (
        len(counts) >= len(found) - 2
    )  # not the first, which names the role, nor the last with text
    assert counts == sorted(counts)
    assert counts[0] >= 1
    assert counts[-1] == 12


def test_logprobs_are_the_engines(served: Served, engine: Engine) -> None:
    asked: dict[str, Any] = {"max_tokens": 6, "logprobs": True, "top_logprobs": 2}
    own = engine.generate(said("logs"), max_tokens=6, logprobs=2)
    found = served.chat("logs", **asked)["choices"][0]["logprobs"]["content"]
    assert [token["logprob"] for token in found] == pytest.approx(
        [each.logprob for each in own.logprobs], rel=1e-4
    )
    assert {len(token["top_logprobs"]) for token in found} == {2}
    streamed = served.streamed("logs", **asked)
    parts = [piece["choices"][0]["logprobs"] for piece in streamed]
    tokens = [token for part in parts if part for token in part["content"]]
    assert [token["bytes"] for token in tokens] == [token["bytes"] for token in found]
    assert [token["logprob"] for token in tokens] == pytest.approx(
        [token["logprob"] for token in found], rel=1e-4
    )


def test_a_schema_is_kept_to(served: Served) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    found = served.chat(
        "json",
        max_tokens=8,
        response_format=form,
        chat_template_kwargs={"enable_thinking": False},
    )
    assert found["choices"][0]["message"]["content"].lstrip().startswith("{")


def test_a_text_is_continued_as_it_is(served: Served, engine: Engine) -> None:
    own = [engine.generate(text, max_tokens=9, raw=True).text for text in ("one", "two")]
    found = served.post("/v1/completions", prompt=["one", "two"], max_tokens=9).json()
    assert [choice["text"] for choice in found["choices"]] == own
    assert found["object"] == "text_completion"
    ids = engine.encode("one", raw=True)
    by_ids = served.post("/v1/completions", prompt=ids, max_tokens=9).json()
    assert by_ids["choices"][0]["text"] == own[0]
    usual = served.post("/v1/completions", prompt="one").json()
    assert usual["usage"]["completion_tokens"] <= 16


def test_what_a_request_leaves_out_is_the_files_or_the_servers(
    dense: Pair, engine: Engine, tmp_path: Path
) -> None:
    """What is given goes first, the command line second, the target's file third, llama-server's last."""
    said_by_file = {
        "temp": 0.9,
        "top_k": 7,
        "top_p": 0.9,
        "penalty_last_n": 3,
        "penalty_repeat": 1.5,
    }
    change = {f"general.sampling.{name}": value for name, value in said_by_file.items()}
    pair = Pair(edited(dense.target, tmp_path / "t.gguf", change=change), dense.draft)
    own = Sampling(
        temperature=0.9,
        top_k=7,
        top_p=0.5,
        min_p=0.05,
        repeat_penalty=1.5,
        repeat_last_n=3,
        seed=4,
    )
    with serving(pair, rules={"sampling": {"top_p": 0.5}}) as found:
        texts = [
            found.chat("usual", max_tokens=20, seed=4, reasoning_format="none", **more)
            for more in ({}, {"top_k": 1, "repeat_penalty": 1.0})
        ]
        params = found.http.get("/props").json()["default_generation_settings"]["params"]
    assert params == pytest.approx(
        {
            "n_predict": -1,
            "temperature": 0.9,
            "top_k": 7,
            "top_p": 0.5,
            "min_p": 0.05,
            "repeat_penalty": 1.5,
            "repeat_last_n": 3,
        }
    )
    contents = [text["choices"][0]["message"]["content"] for text in texts]
    expected = [
        engine.generate(said("usual"), max_tokens=20, sampling=sampling).text
        for sampling in (own, replace(own, top_k=1, repeat_penalty=1.0))
    ]
    assert [text.removeprefix("<think>\n") for text in contents] == expected
    assert expected[0] != expected[1]
