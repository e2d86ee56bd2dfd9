"""Chat templates render as transformers renders them, and can do no harm.

The expected strings were rendered with transformers' own apply_chat_template.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from dflash_gguf import ModelError, UsageError
from dflash_gguf.template import ChatTemplate, map_strings

MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]

CASES = {
    "blocks take their line with them": (
        "{% for m in messages %}\n  {% if true %}\n{{ m.role }}\n  {% endif %}\n{% endfor %}\nend",
        "user\nassistant\nend",
    ),
    "break and continue": (
        "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}"
        + "{% endfor %}",
        "023",
    ),
    "json keeps letters and markup": (
        "{{ {'a': 'é<&日🙂', 'b': none} | tojson }}",
        '{"a": "é<&日🙂", "b": null}',
    ),
    "json with an indent": (
        "{{ [1, {'b': 2}] | tojson(indent=2) }}",
        '[\n  1,\n  {\n    "b": 2\n  }\n]',
    ),
    "json in ascii": ("{{ 'é' | tojson(ensure_ascii=true) }}", '"\\u00e9"'),
    "json with separators and sorted keys": (
        "{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':'), sort_keys=true) }}",
        '{"a":2,"b":1}',
    ),
    "training marks": (
        "{% for m in messages %}{% generation %}[{{ m.content }}]{% endgeneration %}{% endfor %}",
        "[hi][yo]",
    ),
    "training marks keep their variables": (
        "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}",
        "21",
    ),
    "namespaces": (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
        "2",
    ),
    "no tools is none, not undefined": (
        "{{ tools is defined }} {{ tools is none }} {{ documents is none }} {{ thing is defined }}",
        "True True True False",
    ),
    "special tokens": ("{{ bos_token }}{{ eos_token }}", "<s></s>"),
    "the generation prompt": ("{% if add_generation_prompt %}go{% endif %}", "go"),
    "text is not escaped": ("{{ '<b>' }}{{ messages[0].content | upper }}", "<b>HI"),
    "methods of text": ("{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n') }}", "b"),
    "slices and filters": (
        "{{ messages[::-1] | map(attribute='role') | join(',') }}",
        "assistant,user",
    ),
    "macros": ("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f('a') }}", "<a>"),
}


def render(source: str, arguments: dict[str, Any] | None = None) -> str:
    template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
    return template.render(MESSAGES, arguments)


@pytest.mark.parametrize("name", CASES)
def test_renders_as_transformers_does(name: str) -> None:
    source, expected = CASES[name]
    assert render(source) == expected


@pytest.mark.parametrize("name", CASES)
def test_transformers_agrees_with_the_expected_texts(name: str) -> None:
    chat_template = pytest.importorskip("transformers.utils.chat_template_utils")
    source, expected = CASES[name]
    compiled = chat_template._compile_jinja_template(source)
    rendered = compiled.render(
        messages=MESSAGES,
        tools=None,
        documents=None,
        add_generation_prompt=True,
        bos_token="<s>",
        eos_token="</s>",
    )
    assert rendered == expected


def test_arguments_reach_the_template() -> None:
    source = "{% if enable_thinking is defined and not enable_thinking %}off{% else %}on{% endif %}"
    assert render(source) == "on"
    assert render(source, {"enable_thinking": False}) == "off"
    assert render("{{ add_generation_prompt }}", {"add_generation_prompt": False}) == "False"


def test_absent_tokens_are_undefined() -> None:
    assert ChatTemplate("{{ bos_token is defined }}{{ bos_token }}").render(MESSAGES) == "False"


def test_the_date_is_todays() -> None:
    before = datetime.now().strftime("%d %b %Y")
    assert render("{{ strftime_now('%d %b %Y') }}") in {before, datetime.now().strftime("%d %b %Y")}


REFUSALS = {
    "its own words, in one line": (
        "{{ raise_exception('roles must\nalternate') }}",
        "roles must alternate",
    ),
    "an undefined value": ("{{ nothing.at.all }}", "'nothing' is undefined"),
    "a missing key": ("{{ messages[0].tool_calls[0].name }}", "tool_calls"),
    "a sum of unlike things": ("{{ messages[0].content + 1 }}", "concatenate"),
    "division by zero": ("{{ 1 // 0 }}", "zero"),
    "endless recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    "a huge range": ("{% for i in range(10000000) %}{% endfor %}", "Range too big"),
    "a change of the messages": ("{{ messages.append(1) }}", "append"),
    "classes": ("{{ ''.__class__.__mro__ }}", "unsafe"),
    "globals of functions": ("{{ raise_exception.__globals__['os'] }}", "unsafe"),
    "format strings": ("{{ '{0.__class__.__init__.__globals__}'.format(messages) }}", "unsafe"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_one_line(name: str) -> None:
    source, words = REFUSALS[name]
    with pytest.raises(UsageError) as caught:
        render(source)
    assert words in str(caught.value)
    assert str(caught.value).startswith("the chat template refuses these messages: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{ a", "{% nonsense %}", "{% for a in b %}" * 30 + "{% endfor %}" * 30]
)
def test_what_is_no_template_is_a_broken_model(source: str) -> None:
    with pytest.raises(ModelError, match="chat template is not valid") as caught:
        ChatTemplate(source)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", ["{{ ''.__class__ }}", "{{ raise_exception.__code__ }}"])
def test_what_is_hidden_renders_as_nothing(source: str) -> None:
    assert render(source) == ""


def test_map_strings_reaches_everything_and_changes_nothing_else() -> None:
    value = {"a": ["x", {"b": ("y", 1, None, True, 2.5)}], "c": "z"}
    assert map_strings(value, str.upper) == {"A": ["X", {"B": ["Y", 1, None, True, 2.5]}], "C": "Z"}
    assert value["c"] == "z"
