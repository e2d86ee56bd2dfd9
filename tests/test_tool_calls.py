"""Calls of tools are told apart from text, in both of Qwen's forms, however the text is cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dflash_gguf import UsageError
from dflash_gguf.template import ChatTemplate
from dflash_gguf.tool_calls import Part, ToolCallSplitter
from dflash_gguf.tool_formats import CLOSE, FORMATS, OPEN, Call, Format, format_of
from dflash_gguf.tools import declared_tools

from .support.random_pairs import CHAT_TEMPLATE
from .support.tool_templates import STOP, TEMPLATES, WEATHER, function

TOOLS = declared_tools([WEATHER, STOP])
FORMS = {form.name: form for form in FORMATS}
TAGGED, HERMES = FORMS["tagged"], FORMS["hermes"]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


def take(form: Format, pieces: list[str]) -> list[Part]:
    splitter = ToolCallSplitter(form, TOOLS)
    return joined([part for piece in pieces for part in splitter.feed(piece)] + splitter.close())


def joined(parts: list[Part]) -> list[Part]:
    """Neighbouring texts as one."""
    made: list[Part] = []
    for part in parts:
        if made and isinstance(part, str) and isinstance(made[-1], str):
            made[-1] += part
        else:
            made.append(part)
    return made


def weather(**arguments: Any) -> Call:
    return Call("get_weather", arguments)


def tagged(**values: str) -> str:
    body = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in values.items())
    return f"{OPEN}\n<function=get_weather>\n{body}</function>\n{CLOSE}"


def hermes(**values: Any) -> str:
    return f"{OPEN}\n{json.dumps({'name': 'get_weather', 'arguments': values})}\n{CLOSE}"


CASES: list[tuple[Format, str, list[Part]]] = [
    (TAGGED, tagged(city="Rome"), [weather(city="Rome")]),
    (HERMES, hermes(city="Rome", days=2), [weather(city="Rome", days=2)]),
    # types by the schema: text stays text, the rest is JSON, Python's words too
    (TAGGED, tagged(city="12", days="12", exact="True", near='["a"]'), [weather(city="12", days=12, exact=True, near=["a"])]),
    (TAGGED, tagged(at="None", note="null", days="4.0"), [weather(at=None, note=None, days=4)]),
    (TAGGED, tagged(at="1.5", note='{"a": 1}', days="soon"), [weather(at=1.5, note={"a": 1}, days="soon")]),
    (TAGGED, tagged(note="plain words", days="NaN"), [weather(note="plain words", days="NaN")]),
    (TAGGED, tagged(other="7", city='"Rome"'), [weather(other="7", city='"Rome"')]),
    (TAGGED, tagged(city="  a\n\nb\n"), [weather(city="  a\n\nb\n")]),
    (TAGGED, tagged(city=f"x {CLOSE} </parameter> {OPEN}"), [weather(city=f"x {CLOSE} </parameter> {OPEN}")]),
    (TAGGED, f"{OPEN}<function=stop></function>{CLOSE}", [Call("stop", {})]),
    (HERMES, hermes(city=f'x {CLOSE} "quoted\\ {OPEN}'), [weather(city=f'x {CLOSE} "quoted\\ {OPEN}')]),
    (HERMES, f'{OPEN}{{"name": "stop"}}{CLOSE}', [Call("stop", {})]),
    (HERMES, f'{OPEN}{{"name": "stop", "arguments": "{{}}"}}{CLOSE}', [Call("stop", {})]),
    (HERMES, f'{OPEN}{{"name": "get_weather", "arguments": {{"city": "a\nb"}}}}{CLOSE}', [weather(city="a\nb")]),
    # text around, white space between
    (TAGGED, f"I look.\n\n{tagged(city='a')}\n{tagged(city='b')}\n", ["I look.", weather(city="a"), weather(city="b")]),
    (HERMES, f"\n{hermes(city='a')} so\n", [weather(city="a"), " so\n"]),
    # the end tag is missing, and nothing else
    (TAGGED, tagged(city="a").removesuffix(CLOSE), [weather(city="a")]),
    (HERMES, hermes(city="a").removesuffix(CLOSE), [weather(city="a")]),
    # what is none stays text, all of it
    *((TAGGED, text, [text]) for text in (
        "", "no call \n", OPEN, f"a {OPEN} b", f"{OPEN}{CLOSE}", hermes(city="a"), "<tool_c",
        tagged(city="a").replace("get_weather", "unknown"), tagged(city="a")[:-20],
        f"{OPEN}<function=stop>x</function>{CLOSE}", f"{OPEN}<function=stop></function> and {CLOSE}",
    )),
    *((HERMES, text, [text]) for text in (
        f"{OPEN}\n", tagged(city="a"), f'{OPEN}{{"name": "unknown", "arguments": {{}}}}{CLOSE}',
        f'{OPEN}{{"name": "stop", "arguments": []}}{CLOSE}', f'{OPEN}{{"name": "stop", "more": 1}}{CLOSE}',
        f'{OPEN}{{"name": "stop", "arguments": {{"a": NaN}}}}{CLOSE}', hermes(city="a")[:-15],
        f'{OPEN}{{"name": 1}}{CLOSE}', f"{OPEN}{{]{CLOSE}", f'{OPEN}{{"name": "stop"}} {{}}{CLOSE} x',
    )),
    # a call may come after what was none
    (TAGGED, f"{OPEN}{tagged(city='a')}", [OPEN, weather(city="a")]),
    (HERMES, f"{OPEN}{{]{CLOSE} {hermes(city='a')}", [f"{OPEN}{{]{CLOSE}", weather(city="a")]),
]  # fmt: skip


@pytest.mark.parametrize(("form", "text", "parts"), CASES, ids=[str(i) for i in range(len(CASES))])
def test_calls_and_text(form: Format, text: str, parts: list[Part]) -> None:
    expected = [part for part in parts if part != ""]
    assert take(form, [text]) == expected
    assert take(form, list(text)) == expected
    for call in expected:  # 1 is not True
        if isinstance(call, Call):
            assert json.dumps(call.arguments) in {
                json.dumps(c.arguments) for c in parts if c == call and isinstance(c, Call)
            }


PIECES = st.lists(
    st.sampled_from(
        [OPEN, CLOSE, "<tool", "_call>", "</", "<function=stop>", "</function>", "<parameter=city>", "</parameter>",
         "{", '"', "}", '{"name": "stop"}', '"arguments": {', "\n", " ", "a", tagged(city="q"), hermes(city="q")]
    ),
    max_size=12,
)  # fmt: skip


@given(PIECES, st.sampled_from(sorted(FORMS)), st.data())
@example([OPEN, "{", CLOSE, OPEN, '{"name": "stop"}', CLOSE], "hermes", None)
def test_how_a_text_is_cut_makes_no_difference(pieces: list[str], name: str, data: Any) -> None:
    form, text = FORMS[name], "".join(pieces)
    whole = take(form, [text])
    assert take(form, pieces) == whole
    assert take(form, list(text)) == whole
    if data is not None and text:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
        ends = [0, *cuts, len(text)]
        assert take(form, [text[a:b] for a, b in pairwise(ends)]) == whole
    # nothing is lost: without its calls, the text is what is left, white space beside calls aside
    if not any(isinstance(part, Call) for part in whole):
        assert "".join(map(str, whole)) == text


@given(
    st.dictionaries(st.text("abc_", min_size=1, max_size=3), JSON_VALUES, max_size=3),
    st.integers(1, 7),
)
def test_what_templates_write_is_read_again(arguments: dict[str, Any], step: int) -> None:
    tool = declared_tools(
        [
            function(
                "f",
                [],
                **{
                    name: {} if not isinstance(value, str) else {"type": "string"}
                    for name, value in arguments.items()
                },
            )
        ]
    )
    called = [{"type": "function", "function": {"name": "f", "arguments": arguments}}]
    for name, source in TEMPLATES.items():
        if name == "tagged" and any("</parameter>" in str(value) for value in arguments.values()):
            continue
        text = ChatTemplate(source).render(
            [{"role": "assistant", "content": "", "tool_calls": called}]
        )
        body = text[text.index(OPEN) : text.index(CLOSE, text.rindex("\n" + CLOSE)) + len(CLOSE)]
        splitter = ToolCallSplitter(FORMS[name], tool)
        parts = [p for i in range(0, len(body), step) for p in splitter.feed(body[i : i + step])]
        (call,) = parts + splitter.close()
        assert isinstance(call, Call)
        assert json.dumps(call.arguments) == json.dumps(arguments)


def test_text_that_begins_no_call_is_told_at_once() -> None:
    splitter = ToolCallSplitter(TAGGED, TOOLS)
    assert splitter.feed("yes <b") == ["yes <b"]
    assert splitter.feed(" <tool_") == []
    assert splitter.feed("bar>") == [" <tool_bar>"]
    assert splitter.feed(OPEN + "<f") == []
    assert joined(splitter.feed("oo")) == [OPEN + "<foo"], "that is no function"


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_template_tells_its_form(name: str) -> None:
    assert format_of(TEMPLATES[name]) is FORMS[name]


@pytest.mark.parametrize(
    "source",
    [
        CHAT_TEMPLATE,
        "",
        "{{ raise_exception('no') }}",
        TEMPLATES["hermes"].replace("<tool_call>", "<call>"),
        TEMPLATES["hermes"].replace("t | tojson", "'tools'"),  # which are not told to the model
        TEMPLATES["tagged"].replace("<parameter=", "<argument="),
    ],
)
def test_other_templates_have_none(source: str) -> None:
    assert format_of(source) is None


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ("x", "tools is 'x'; expected a list of functions"),
        ([1], r"tools\[0\] is 1; expected a mapping with a type"),
        ([{"type": "web_search"}], r"tools\[0\] is .*expected a mapping with a type of \"function\""),
        ([{"type": "function"}], r"tools\[0\].function is None"),
        ([STOP, function("a b", [])], r"tools\[1\].function.name is 'a b'"),
        ([{"type": "function", "function": {"name": "f", "parameters": []}}], r"parameters is \[\]"),
        ([{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}], "of an object"),
        ([STOP, STOP], "two functions named 'stop'"),
    ],
)  # fmt: skip
def test_broken_tools_are_refused_by_name(tools: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        declared_tools(tools)


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"$ref": "#/$defs/n"}, {"number"}),
        ({"oneOf": [{"type": "string"}, {"$ref": "#/$defs/n"}]}, {"string", "number"}),
        ({"enum": ["a", 1, None]}, {"string", "number", "null"}),
        ({"const": True}, {"boolean"}),
        ({"properties": {}}, {"object"}),
        ({"minimum": 1}, {"number"}),
        ({"$ref": "#/$defs/loop"}, None),
        ({"$ref": "#/nowhere"}, None),
        ({"type": "int"}, None),
        ({"type": 5}, None),
        ({"anyOf": 5}, None),
        ({}, None),
        (True, None),
    ],
)
def test_types_of_arguments(schema: Any, types: set[str] | None) -> None:
    declared = function("f", [], x=schema)
    declared["function"]["parameters"]["$defs"] = {
        "n": {"type": "number"},
        "loop": {"$ref": "#/$defs/loop"},
    }
    (tool,) = declared_tools([declared])
    every = {"string", "integer", "number", "boolean", "object", "array", "null"}
    assert tool.types("x") == (types or every)
    assert tool.types("y") == {"string"}
