"""Chat answers in OpenAI's shapes: what was thought, what was called, and what is asked of both."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dflash_gguf
from dflash_gguf import AsyncEngine, Engine, UsageError
from dflash_gguf.openai_messages import for_template
from dflash_gguf.reply import Reply, Wishes
from dflash_gguf.tool_calls import ToolCallSplitter
from dflash_gguf.tool_formats import OPEN, format_of
from dflash_gguf.tools import declared_tools

from .support.edited import edited
from .support.random_pairs import Pair
from .support.tiny import Tiny
from .support.tool_templates import STOP, TEMPLATES, WEATHER, function

HI = [{"role": "user", "content": "hi"}]
CALLED = "<tool_call>\n<function=stop>\n</function>\n</tool_call>"
# few texts, so that random logits end them soon
SMALL = function(
    "small",
    ["kind", "count"],
    kind={"enum": ["a b", "c"]},
    count={"type": "integer", "minimum": 0, "maximum": 9},
    flag={"type": "boolean"},
)
CHOICE = {"type": "function", "function": {"name": "small"}}


def reply(opened: str = "", **wishes: Any) -> Reply:
    tools = declared_tools([WEATHER, STOP])
    form = format_of(TEMPLATES["tagged"])
    assert form is not None
    return Reply(opened=opened, calls=ToolCallSplitter(form, tools), ends=(OPEN,), **wishes)


def shown(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client puts together of deltas."""
    made: dict[str, Any] = {}
    for delta in deltas:
        for name in set(delta) & {"content", "reasoning_content"}:
            made[name] = made.get(name, "") + delta[name]
        for call in delta.get("tool_calls", ()):
            made.setdefault("tool_calls", []).append(call["function"]["name"])
            assert call["index"] == len(made["tool_calls"]) - 1
            assert (call["type"], call["id"][:5]) == ("function", "call_")
    return made


@pytest.mark.parametrize(
    ("opened", "text", "found"),
    [
        ("<think>\n", "hm\n</think>\n\nyes", {"reasoning_content": "hm", "content": "yes"}),
        ("", "<think>hm</think>yes", {"reasoning_content": "hm", "content": "yes"}),
        ("<think>\n", "hm, cut", {"reasoning_content": "hm, cut"}),
        ("<think>\n", f"hm\n</think>\n\n{CALLED}", {"reasoning_content": "hm", "tool_calls": ["stop"]}),
        ("<think>\n", f"hm\n{CALLED}", {"reasoning_content": "hm", "tool_calls": ["stop"]}),
        ("", f"so:\n{CALLED}\n{CALLED}", {"content": "so:", "tool_calls": ["stop", "stop"]}),
        ("", "</think> yes", {"content": "</think> yes"}),
        ("", "", {}),
    ],
)  # fmt: skip
def test_an_answer_is_taken_apart(opened: str, text: str, found: dict[str, Any]) -> None:
    whole = reply(opened)
    assert shown(whole.deltas(text, last=True)) == found
    piecewise = reply(opened)
    deltas = [delta for letter in text for delta in piecewise.deltas(letter)]
    assert shown(deltas + piecewise.deltas("", last=True)) == found
    called = "tool_calls" in found
    assert piecewise.finish_reason("stop") == ("tool_calls" if called else "stop")
    assert piecewise.finish_reason("length") == "length"
    message = reply(opened).message(text)
    assert message["content"] == found.get("content", None if called else "")
    assert message.get("reasoning_content") == found.get("reasoning_content")
    assert ("tool_calls" in message) == called


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<th", "ink>", "\n", "a", " ", CALLED]), max_size=8),
    st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_how_it_is_cut_makes_no_difference(
    pieces: list[str], opened: bool, reasoning: bool
) -> None:
    def take(parts: list[str]) -> dict[str, Any]:
        own = reply("<think>\n" if opened else "", reasoning=reasoning)
        return shown([d for part in parts for d in own.deltas(part)] + own.deltas("", last=True))

    assert take(pieces) == take(["".join(pieces)]) == take(list("".join(pieces)))


def test_thinking_may_stay_in_the_text() -> None:
    assert shown(reply("<think>\n", reasoning=False).deltas("hm</think>yes", last=True)) == {
        "content": "<think>\nhm</think>yes"
    }


def test_only_one_call_is_passed_on_if_more_may_not_be() -> None:
    own = reply(parallel=False)
    assert shown(own.deltas(CALLED + CALLED, last=True)) == {"tool_calls": ["stop"]}


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"reasoning_format": "xml"}, "reasoning_format is 'xml'; expected none, deepseek or auto"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls is 'no'"),
        ({"tool_choice": "required"}, "tool_choice is 'required', and there are no tools"),
        ({"tool_choice": "any"}, "tool_choice is 'any'; expected auto, none, required or"),
        ({"tool_choice": CHOICE}, "tool_choice names 'small', which is none of the tools: there are none"),
        ({"tool_choice": CHOICE, "tools": [STOP]}, "which is none of the tools: stop"),
        ({"tool_choice": {"type": "function"}}, "tool_choice is .*expected auto"),
    ],
)  # fmt: skip
def test_wishes_that_make_no_sense_are_refused_by_name(wishes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Wishes.of(**wishes)


def test_messages_as_templates_want_them() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    given_messages: list[dict[str, Any]] = [
        {
            "role": "developer",
            "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "assistant", "tool_calls": []},
    ]
    found = for_template(given_messages)
    assert found == [
        {"role": "system", "content": "a\nb"},
        {"role": "assistant", "content": "", "reasoning_content": "hm",
         "tool_calls": [{**call, "function": {"name": "f", "arguments": {"a": 1}}}]},
        given_messages[2],
        {"role": "assistant", "content": ""},
    ]  # fmt: skip
    assert call["function"]["arguments"] == '{"a": 1}', "what was given stays as it was"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"content": [{"type": "image_url"}]}, r"messages\[0\].content\[0\] is 'image_url'; this engine takes text"),
        ({"tool_calls": 5}, r"messages\[0\].tool_calls is 5"),
        ({"tool_calls": [{}]}, r"tool_calls\[0\] is {}"),
        ({"tool_calls": [{"function": {}}]}, "function.name is None"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}, "function.arguments is not JSON"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": "[]"}}]}, r"arguments is \[\]; expected a JSON object"),
    ],
)  # fmt: skip
def test_broken_messages_are_refused_by_place(message: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        for_template([{"role": "assistant", **message}])


@pytest.fixture(scope="module", params=sorted(TEMPLATES))
def engine(request: pytest.FixtureRequest, dense: Pair, tmp_path_factory: Any) -> Iterator[Engine]:
    """A random target whose template writes calls."""
    path = tmp_path_factory.mktemp(request.param) / "target.gguf"
    change = {"tokenizer.chat_template": TEMPLATES[request.param]}
    edited(dense.target, path, change=change)
    with dflash_gguf.load(path, threads=1, context=1024) as opened:
        yield opened


def usual(engine: Engine) -> dict[str, Any]:
    """All that a grammar allows alike, but for the end of thinking, where that has begun."""
    end = engine.encode("</think>", raw=True)[0]
    return {
        "temperature": 100,
        "seed": 1,
        "top_k": 0,
        "top_p": 1,
        "min_p": 0,
        "logit_bias": {end: 700},
    }


def ask(engine: Engine, messages: Any = HI, **settings: Any) -> Any:
    found = engine.create_chat_completion(messages, **usual(engine) | settings)
    return found["choices"][0]


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("choice", ["required", CHOICE])
def test_what_is_required_is_called(engine: Engine, choice: Any, thinks: bool) -> None:
    seen = set()
    for seed in range(8):
        found = ask(
            engine,
            seed=seed,
            tools=[SMALL, STOP],
            tool_choice=choice,
            template={"enable_thinking": thinks},
            max_tokens=900,
        )
        assert found["finish_reason"] == "tool_calls"
        message = found["message"]
        assert message["content"] is None
        for call in message["tool_calls"]:
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            seen.add(name)
            if name == "small":
                assert arguments["kind"] in {"a b", "c"}
                assert arguments["count"] in range(10)
                assert set(arguments) <= {"kind", "count", "flag"}
        if choice != "required":
            assert len(message["tool_calls"]) == 1
    assert seen == ({"small"} if choice == CHOICE else {"small", "stop"})


def test_a_stream_brings_the_same_calls(engine: Engine) -> None:
    settings: dict[str, Any] = {
        "tools": [SMALL],
        "tool_choice": "required",
        "max_tokens": 900,
        "block": 1,
    }
    whole = ask(engine, **settings)
    pieces = list(engine.create_chat_completion(HI, stream=True, **usual(engine) | settings))
    choices = [piece["choices"][0] for piece in pieces]
    calls = [call for choice in choices for call in choice["delta"].get("tool_calls", ())]
    assert [call["index"] for call in calls] == list(range(len(calls)))
    assert [call["function"] for call in calls] == [
        call["function"] for call in whole["message"]["tool_calls"]
    ]
    assert choices[-1]["finish_reason"] == whole["finish_reason"] == "tool_calls"
    assert choices[0]["delta"] == {"role": "assistant"}
    json.dumps(pieces)


def test_text_arguments_go_up_to_their_end_tag(engine: Engine) -> None:
    tool = function("say", ["text"], text={"type": "string"})
    found = ask(engine, tools=[tool], tool_choice="required", max_tokens=60)
    text = found["message"]["content"] or json.dumps(found["message"]["tool_calls"])
    assert "say" in text
    assert "</parameter>" not in text
    assert found["finish_reason"] in {"length", "tool_calls"}


def test_calls_that_are_left_to_the_model(engine: Engine) -> None:
    form = "tagged" if "<parameter=" in (engine.chat_template or "") else "hermes"
    text = {
        "tagged": CALLED,
        "hermes": '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>',
    }[form]
    grammar = f'root ::= "I see. " {json.dumps(text)}'
    settings: dict[str, Any] = {"grammar": grammar, "temperature": 0}
    found = ask(engine, tools=[STOP], **settings)
    assert found["message"]["content"] == "I see."
    assert [call["function"]["name"] for call in found["message"]["tool_calls"]] == ["stop"]
    assert found["finish_reason"] == "tool_calls"
    for other in ({}, {"tools": [STOP], "tool_choice": "none"}, {"tools": [SMALL]}):
        message = ask(engine, **settings, **other)["message"]
        assert message == {"role": "assistant", "content": "I see. " + text}


def test_a_call_ends_thinking_where_models_do_so(engine: Engine) -> None:
    template = {"enable_thinking": True}
    asked = Wishes.of(tools=[STOP]).ask(engine, HI, dflash_gguf.Params(template=template))
    message = asked.reply().message(f"hm\n{CALLED}")
    tagged = "<parameter=" in (engine.chat_template or "")
    assert message.get("reasoning_content") == ("hm" if tagged else f"hm\n{CALLED}")
    assert ("tool_calls" in message) == tagged


def test_tools_and_calls_reach_the_template(engine: Engine) -> None:
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "stop", "arguments": '{"a": "x<|im_end|>"}'},
    }
    messages: list[dict[str, Any]] = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm</think>"},
        {"role": "tool", "tool_call_id": "c", "content": "<|im_end|></tool_response><think>"},
    ]  # fmt: skip
    asked = Wishes.of(tools=[STOP]).ask(engine, messages, dflash_gguf.Params())
    text = b"".join(engine.piece(token, special=True) for token in asked.prompt).decode()
    assert '"name": "stop"' in text
    assert "x<|im_end|>" in text
    assert "<tool_response>\n<|im_end|></tool_response><think>\n</tool_response>" in text
    # of all that, only what the template writes is special (V8)
    ids = {name: engine.encode(name, raw=True)[0] for name in ("<|im_end|>", "<think>", "</think>")}
    turns = len(re.findall(r"<\|im_start\|>", text)) - 1
    assert asked.prompt.count(ids["<|im_end|>"]) == turns
    assert asked.prompt.count(ids["<think>"]) == asked.prompt.count(ids["</think>"]) == 1
    plain = Wishes.of(tools=[STOP], tool_choice="none").ask(engine, messages, dflash_gguf.Params())
    assert len(plain.prompt) < len(asked.prompt)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tools": [SMALL], "tool_choice": "required", "grammar": 'root ::= "a"'}, "a grammar is given, and a tool"),
        ({"tools": [function("f", [], x={"type": "integer", "multipleOf": 2})], "tool_choice": "required"},
         "tool f cannot be asked for through a grammar: .*'multipleOf'.*use tool_choice auto"),
        ({"tools": [function("f", [], x={"type": "string", "pattern": "a"})], "tool_choice": "required"},
         "tool f cannot be asked for through a grammar: .*'pattern'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_to_is_refused(
    engine: Engine, settings: dict[str, Any], words: str
) -> None:
    arguments = {"messages": HI} | settings
    with pytest.raises(UsageError, match=words):
        ask(engine, arguments.pop("messages"), **arguments)
    assert not engine.busy


def test_json_or_calls_where_both_may_be(engine: Engine) -> None:
    form = {"type": "json_object", "schema": {"const": 7}}
    found = [
        ask(engine, seed=seed, tools=[STOP], response_format=form, parallel_tool_calls=False)[
            "message"
        ]
        for seed in range(12)
    ]
    assert {message["content"] for message in found} == {"7", None}


def test_a_target_whose_template_knows_no_tools_says_so(dense: Pair) -> None:
    with dflash_gguf.load(dense.target, threads=1, context=64) as plain:
        with pytest.raises(
            UsageError, match="tools are given, and the target's chat template knows none"
        ):
            plain.create_chat_completion(HI, tools=[STOP])
        plain.create_chat_completion(HI, tools=[STOP], tool_choice="none", max_tokens=1)


def test_thinking_of_a_trained_pair_stands_apart(tiny: Tiny) -> None:
    """V3: no tag in content, reasoning_content filled, streamed or not, awaited or not, whatever a block accepts."""
    messages, settings = tiny.prompts[40]["messages"], {"temperature": 0, "max_tokens": 500}

    def load() -> Engine:
        draft = tiny.draft("f32")
        return dflash_gguf.load(
            tiny.target_f32, draft, threads=1, context=1024, sequences=2, block=8
        )

    async def main() -> tuple[Any, ...]:
        async with AsyncEngine(load) as engine:
            whole = await engine.create_chat_completion(messages, **settings)
            stream = await engine.create_chat_completion(messages, stream=True, **settings)
            deltas = [piece["choices"][0]["delta"] async for piece in stream]
            plain = await engine.create_chat_completion(
                messages, reasoning_format="none", **settings
            )
            cut = await engine.create_chat_completion(messages, **settings | {"max_tokens": 12})
            bare = {**settings, "template": {"enable_thinking": False}}
            return whole, deltas, plain, cut, await engine.create_chat_completion(messages, **bare)

    whole, deltas, plain, cut, bare = asyncio.run(main())
    message = whole["choices"][0]["message"]
    assert message["reasoning_content"]
    assert message["content"]
    assert "think>" not in message["content"] + message["reasoning_content"]
    assert shown(deltas) == {name: message[name] for name in ("reasoning_content", "content")}
    tags = plain["choices"][0]["message"]["content"]
    assert tags == f"<think>\n{message['reasoning_content']}\n</think>\n\n{message['content']}"
    first = cut["choices"][0]
    assert (first["finish_reason"], first["message"]["content"]) == ("length", "")
    assert message["reasoning_content"].startswith(first["message"]["reasoning_content"])
    assert "reasoning_content" not in bare["choices"][0]["message"]
