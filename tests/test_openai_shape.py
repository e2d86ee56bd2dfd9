"""OpenAI-shaped answers: what llama-cpp-python's own class returns for the same calls, and a little more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import Engine, ResourceError, UsageError

from .support.random_pairs import Pair
from .support.tiny import Tiny

OURS = {"speculative"}
WITH_TAGS: dict[str, Any] = {"reasoning_format": "none"}  # they know nothing of thinking
CALLS: list[dict[str, Any]] = [
    {"temperature": 0, "max_tokens": 40},
    {"temperature": 0, "max_tokens": 9, "logprobs": True, "top_logprobs": 3},
    {"temperature": 0, "stop": ["\n", "zzz"], "seed": 3},
    {"temperature": 0, "stop": "Python"},
    {"temperature": 0, "frequency_penalty": 0.5, "max_tokens": 30, "model": "a name"},
    {"temperature": 0.7, "top_k": 1, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.9, "max_tokens": 9},
    {"temperature": 0, "max_tokens": 5, "tools": None, "mirostat_mode": 0, "tfs_z": 1.0},
]


@pytest.fixture(scope="module")
def engine(tiny: Tiny) -> Iterator[Engine]:
    """The trained pair in f32, so that text does not depend on kernels."""
    draft = tiny.draft("f32")
    with dflash_gguf.load(tiny.target_f32, draft, threads=1, context=1024, sequences=2) as engine:
        yield engine


@pytest.fixture(scope="module")
def theirs(tiny: Tiny) -> Iterator[Any]:
    """llama-cpp-python's class with the same target."""
    from llama_cpp import Llama

    llama = Llama(str(tiny.target_f32), n_ctx=1024, n_threads=1, verbose=False, logits_all=True)
    yield llama
    llama.close()


@pytest.fixture(scope="module")
def messages(tiny: Tiny) -> Any:
    return tiny.prompts[40]["messages"]


def same(ours: Any, theirs: Any, at: str = "") -> None:
    """Equal but for names, times, bytes of tokens and what only we have."""
    if isinstance(theirs, dict):
        assert set(ours) - OURS - {"prompt_tokens_details"} == set(theirs), at
        for key, value in theirs.items():
            if key == "message":
                text = ours[key]["content"].removeprefix("<think>\n")  # which ends the prompt
                assert {**ours[key], "content": text} == value
            elif key not in {"id", "created", "bytes"} and not (key == "model" and "/" in value):
                same(ours[key], value, f"{at}.{key}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), at
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            same(a, b, f"{at}[{i}]")
    elif isinstance(ours, float):
        assert ours == pytest.approx(float(theirs), abs=2e-3), at
    else:
        assert ours == theirs, at


@pytest.mark.parametrize("call", CALLS, ids=[str(i) for i in range(len(CALLS))])
def test_chats_are_llama_cpp_pythons(
    engine: Engine, theirs: Any, messages: Any, call: dict[str, Any]
) -> None:
    found = engine.create_chat_completion(messages, **WITH_TAGS, **call)
    same(found, theirs.create_chat_completion(messages, **call))
    assert found["id"].startswith("chatcmpl-")
    json.dumps(found)


@pytest.mark.parametrize("limit", [None, -1])
def test_an_end_token_is_counted(engine: Engine, theirs: Any, messages: Any, limit: Any) -> None:
    call: dict[str, Any] = {"temperature": 0, "max_tokens": limit}
    ours = engine.create_chat_completion(messages, **WITH_TAGS, **call)
    own = theirs.create_chat_completion(messages, **call)
    same(ours["choices"], own["choices"])
    assert ours["choices"][0]["finish_reason"] == "stop"
    assert ours["usage"]["completion_tokens"] == own["usage"]["completion_tokens"] + 1


@pytest.mark.parametrize(
    "call",
    [
        {"temperature": 0},
        {"temperature": 0, "max_tokens": 5, "logprobs": 2},
        {"temperature": 0, "max_tokens": 50, "stop": "\n"},
    ],
)
def test_completions_are_llama_cpp_pythons(
    engine: Engine, theirs: Any, call: dict[str, Any]
) -> None:
    found = engine.create_completion("def find_luma(", **call)
    same(found, theirs.create_completion("def find_luma(", **call))
    json.dumps(found)
    chunks = list(engine.create_completion("def find_luma(", stream=True, **call))
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert text == found["choices"][0]["text"]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    offsets = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    joined = [at for each in offsets if each for at in each["text_offset"]]
    if "logprobs" in call:
        assert joined == found["choices"][0]["logprobs"]["text_offset"]


def test_a_stream_is_the_answer_in_pieces(engine: Engine, theirs: Any, messages: Any) -> None:
    call: dict[str, Any] = {"temperature": 0, "max_tokens": 30, "logprobs": True, "block": 8}
    whole = engine.create_chat_completion(messages, **call)
    include = {"include_usage": True}
    chunks = list(
        engine.create_chat_completion(messages, stream=True, stream_options=include, **call)
    )
    *pieces, last = chunks
    choices = [piece["choices"][0] for piece in pieces]
    assert choices[0]["delta"] == {"role": "assistant"}
    assert choices[-1]["delta"] == {}
    text = "".join(choice["delta"].get("reasoning_content", "") for choice in choices)
    assert text == whole["choices"][0]["message"]["reasoning_content"]
    reasons = [choice["finish_reason"] for choice in choices]
    assert reasons == [None] * (len(choices) - 1) + ["length"]
    content = [t for choice in choices if choice["logprobs"] for t in choice["logprobs"]["content"]]
    assert content == whole["choices"][0]["logprobs"]["content"]
    assert last["choices"] == []
    assert last["speculative"] == whole["speculative"]
    reused = last["usage"].pop("prompt_tokens_details")["cached_tokens"]
    assert 0 < reused < last["usage"]["prompt_tokens"]  # the same conversation has just been read
    del whole["usage"]["prompt_tokens_details"]
    assert last["usage"] == whole["usage"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    own = next(iter(theirs.create_chat_completion(messages, stream=True, max_tokens=2)))
    same(pieces[0], own)


def test_the_figures_add_up(engine: Engine, messages: Any) -> None:
    found = engine.create_chat_completion(messages, temperature=0, max_tokens=60, block=16)
    usage, figures = found["usage"], found["speculative"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] == 1 + figures["steps"] + figures["accepted"]
    assert figures["accepted"] == sum(figures["accepted_per_position"])
    assert figures["accept_length"] > 2
    assert 0 < figures["acceptance_rate"] < 1
    alone = engine.create_chat_completion(messages, temperature=0, max_tokens=60, block=1)
    assert alone["choices"] == found["choices"]
    assert alone["speculative"]["accept_length"] is None


def test_a_seed_gives_one_text(engine: Engine, messages: Any) -> None:
    def text(seed: int) -> Any:
        call: dict[str, Any] = {"temperature": 2.0, "top_k": 0, "top_p": 1, "min_p": 0}
        return engine.create_chat_completion(messages, max_tokens=20, seed=seed, **call)["choices"]

    assert text(5) == text(5) != text(6)


def test_biases_may_have_jsons_keys(engine: Engine, messages: Any) -> None:
    call: dict[str, Any] = {"temperature": 0, "max_tokens": 1}
    free = engine.create_chat_completion(messages, **call)
    token = engine.encode(free["choices"][0]["message"]["reasoning_content"], raw=True)[0]
    for key in (token, str(token)):
        biased = engine.create_chat_completion(messages, logit_bias={key: -1000.0}, **call)
        assert biased["choices"] != free["choices"]


def test_leaving_a_stream_cancels_it(engine: Engine, messages: Any) -> None:
    for _ in engine.create_chat_completion(messages, stream=True):
        break
    assert not engine.busy
    engine.create_chat_completion(messages, stream=True)  # never begun
    assert not engine.busy


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        ({"tools": [{"type": "function"}]}, UsageError, r"tools\[0\].function is None"),
        ({"n": 2}, UsageError, "n is 2, which this engine does not do"),
        ({"mirostat_mode": 2}, UsageError, "mirostat_mode is 2"),
        ({"temperature": -1}, UsageError, "temperature is -1"),
        ({"typical_p": 2}, UsageError, "typical is 2"),
        ({"stop": [""]}, UsageError, "stop has ''"),
        ({"logit_bias": {"x": 1}}, UsageError, "logit_bias has 'x'"),
        ({"max_tokens": "5"}, UsageError, "max_tokens is '5'"),
        ({"logprobs": True, "top_logprobs": -1}, UsageError, "logprobs is -1"),
        ({"temperatur": 1}, TypeError, "unexpected keyword argument 'temperatur'"),
        ({"messages": [{"role": "user", "content": "x" * 9000}]}, ResourceError, "the prompt has"),
        ({"messages": []}, UsageError, "prompt|messages"),
        ({"messages": [1, "x"]}, UsageError, "a message is 1"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    engine: Engine, messages: Any, call: dict[str, Any], kind: type[Exception], words: str
) -> None:
    arguments = {"messages": messages} | call
    with pytest.raises(kind, match=words):
        engine.create_chat_completion(arguments.pop("messages"), **arguments)
    assert not engine.busy


SCHEMA = {
    "type": "object",
    "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 999}},
    "required": ["sum"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "form",
    [
        {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
        {"type": "json_object", "schema": SCHEMA},
    ],
)
def test_a_response_format_is_kept_to(engine: Engine, messages: Any, form: Any) -> None:
    answer = engine.create_chat_completion(
        messages, temperature=0.8, seed=1, max_tokens=400, response_format=form
    )
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["reasoning_content"], (
        "the thinking that the template opens goes before"
    )
    found = json.loads(choice["message"]["content"])
    assert list(found) == ["sum"]
    assert isinstance(found["sum"], int)


def test_any_json_and_a_grammar_of_theirs(engine: Engine, messages: Any) -> None:
    from llama_cpp import LlamaGrammar

    text = 'root ::= "yes" | "no"'
    for grammar in (text, LlamaGrammar.from_string(text)):
        answer = engine.create_chat_completion(messages, max_tokens=20, grammar=grammar)
        assert answer["choices"][0]["message"]["content"] in {"yes", "no"}
    for form in (
        {"type": "xml"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": 5},
        "json",
    ):
        with pytest.raises(UsageError, match="response_format is"):
            engine.create_chat_completion(messages, response_format=form)
    plain = engine.create_chat_completion(
        messages, temperature=0, max_tokens=9, response_format={"type": "text"}
    )
    assert plain == plain | engine.create_chat_completion(messages, temperature=0, max_tokens=9) | {
        name: plain[name] for name in ("id", "created")
    }


def test_names_and_pieces(engine: Engine, dense: Pair) -> None:
    assert engine.name == "Tiny Qwen3.5"
    ids = engine.encode("héllo", raw=True)
    assert b"".join(map(engine.piece, ids)) == "héllo".encode()
    end = engine.encode("<|im_end|>", raw=True)[0]
    assert (engine.piece(end), engine.piece(end, special=True)) == (b"", b"<|im_end|>")
    with pytest.raises(UsageError, match="outside the vocabulary"):
        engine.piece(10**6)
    with dflash_gguf.load(dense.target, threads=1, context=64) as nameless:
        assert nameless.name == "qwen3"
