"""Grammars: texts keep to them whatever is drafted (S3), and a bad one is named, never the process's end."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf import Engine, Sampling, UsageError
from dflash_gguf.gbnf import check_grammar

from .support.random_pairs import IM_END, IM_START, Pair
from .support.tiny import Tiny

PROMPT = [5, 80, 200, 31, 7]
LETTERS = 'root ::= "a" [b-d]{2,9} ("x" | "yz")+ "."'
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.8, "seed": 42},
    {"temperature": 1.5, "top_k": 3, "top_p": 0.9, "repeat_penalty": 1.3, "seed": 5},
    {"temperature": 0.9, "min_p": 0.3, "typical": 0.9, "seed": 6},
    {"temperature": 0.8, "draft_sampling": "rejection", "seed": 7},
]


@pytest.fixture(scope="module")
def engine(dense: Pair) -> Iterator[Engine]:
    with dflash_gguf.load(dense.target, dense.draft, kv_type="f32", sequences=3) as opened:
        yield opened


def refuse(text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=re.escape(expected)) as caught:
        check_grammar(text, 100, lambda name: [7] if name == "<seven>" else [1, 2])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("settings", SETTINGS)
def test_texts_keep_to_the_grammar_whatever_is_drafted(
    pair: Pair, settings: dict[str, Any]
) -> None:
    sampling, texts = Sampling(**settings), set()
    options: dict[str, Any] = {"grammar": LETTERS, "sampling": sampling, "max_tokens": 60}
    with dflash_gguf.load(pair.target, kv_type="f32") as engine:
        texts.add(engine.generate(PROMPT, **options).text)
    with dflash_gguf.load(pair.target, pair.draft, kv_type="f32", sequences=3) as engine:
        for block in (2, 4, 8):
            texts.add(engine.generate(PROMPT, block=block, **options).text)
        free = engine.start(PROMPT, max_tokens=40, ignore_end=True)  # without a grammar
        other = engine.start(PROMPT, max_tokens=40, grammar='root ::= "n" [0-9]*')
        texts.add(engine.generate(PROMPT, **options).text)  # among others
        while free.finish_reason is None or other.finish_reason is None:
            engine.step()
        assert len(free.tokens) == 40
        assert re.match("n[0-9]*$", other.text)
    assert all(re.fullmatch(r"a[b-d]{2,9}(x|yz)+\.|a[b-d]*[xyz]*", text) for text in texts)
    if "rejection" not in settings.values():
        assert len(texts) == 1


def test_the_end_comes_where_the_grammar_allows_it_alone(engine: Engine) -> None:
    answer = engine.generate(PROMPT, grammar='root ::= "ab"', max_tokens=30)
    assert (answer.text, answer.finish_reason) == ("ab", "stop")
    # token by token the vocabulary's end tokens are asked for: neither is in the middle
    ends = {IM_END: 50.0, 256: 50.0}
    answer = engine.generate(
        PROMPT, grammar='root ::= "abcdef"', max_tokens=30, sampling=Sampling(logit_bias=ends)
    )
    assert (answer.text, answer.finish_reason) == ("abcdef", "stop")


def test_the_limit_and_a_stop_string_end_a_text_within_its_grammar(engine: Engine) -> None:
    answer = engine.generate(PROMPT, grammar='root ::= "abcdefgh"', max_tokens=3)
    assert (answer.text, answer.finish_reason) == ("abc", "length")
    answer = engine.generate(PROMPT, grammar='root ::= "abcdefgh"', stop="de")
    assert (answer.text, answer.finish_reason) == ("abc", "stop")


def test_control_tokens_come_only_by_name(engine: Engine) -> None:
    """Their text is not shown, so that a grammar's own characters must not be spelled by them."""
    text = "<|im_start|>"
    wanted = Sampling(logit_bias={IM_START: 100.0})
    answer = engine.generate(PROMPT, grammar=f'root ::= "{text}"', sampling=wanted)
    assert answer.text == text
    assert len(answer.tokens) == len(text) + 1
    answer = engine.generate(PROMPT, grammar=f"root ::= {text} [a-z]", sampling=wanted)
    assert answer.tokens[0] == IM_START
    assert re.fullmatch("[a-z]", answer.text)
    answer = engine.generate(PROMPT, grammar="root ::= !<think> [a-z]", sampling=wanted)
    assert answer.tokens[0] == IM_START


def test_characters_of_several_tokens(engine: Engine) -> None:
    for text in ("é", "日本", "😀!"):
        grammar = f'root ::= "{text}"'
        assert engine.generate(PROMPT, grammar=grammar).text == text
        kinds = "root ::= [à-ÿ一-鿿\U0001f600-\U0001f64f!]{1,4} [z]"
        sampling = Sampling(temperature=1, seed=3)
        written = engine.generate(PROMPT, grammar=kinds, sampling=sampling).text
        assert re.fullmatch("[à-ÿ一-鿿\U0001f600-\U0001f64f!]{1,4}z", written)


def test_where_nothing_may_come_only_that_request_ends(engine: Engine) -> None:
    banned = Sampling(logit_bias=dict.fromkeys(range(256), -math.inf))
    other = engine.start(PROMPT, max_tokens=30, ignore_end=True)
    with pytest.raises(UsageError, match="the grammar allows no token here that the model has and"):
        engine.generate(PROMPT, grammar='root ::= "ab"', sampling=banned)
    while other.finish_reason is None:
        engine.step()
    assert len(other.tokens) == 30
    for settings in ({}, {"temperature": 1}, {"temperature": 1, "top_k": 4}):
        everything = Sampling(logit_bias=dict.fromkeys(range(262), -math.inf), **settings)
        with pytest.raises(UsageError, match="logit_bias bans every token that the target could"):
            engine.generate(PROMPT, sampling=everything)


def test_a_worker_says_why(dense: Pair) -> None:
    with dflash_gguf.Worker(lambda: dflash_gguf.load(dense.target)) as worker:
        everything = Sampling(logit_bias=dict.fromkeys(range(262), -math.inf))
        with pytest.raises(UsageError, match="logit_bias bans every token"):
            list(worker.submit(PROMPT, sampling=everything))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "has no rule 'root'"),
        ("a ::= [b]", "has no rule 'root'"),
        ('root ::= "a', "line 1: expected a closing quote, found the end"),
        ("root ::= [a", "line 1: expected a closing bracket, found the end"),
        ('root ::= ("a"', "line 1: expected a closing parenthesis, found the end"),
        ('root ::= "a" )', "line 1: expected a part of rule 'root' or the line's end, found ')'"),
        ('root ::= "a"\n\n| "b"', "line 3: expected a rule's name, found '|'"),
        ("root = [a]", "line 1: expected ::= after the name 'root', found '='"),
        ("root ::= a\na ::= b", "line 2: rule 'b' is not defined"),
        ("root ::= [a]\nroot ::= [b]", "line 2: rule 'root' is defined again, first on line 1"),
        ('root ::= "\\q"', "line 1: unknown escape \\q"),
        ('root ::= "\\x4"', "line 1: expected 2 hexadecimal digits after \\x"),
        ('root ::= "\\ud83d\\ude00"', "line 1: \\ud83d is no character"),
        ('root ::= "\\U00110000"', "line 1: \\U00110000 is no character"),
        ("root ::= []", "line 1: brackets without characters"),
        ("root ::= [z-a]", "line 1: a range of characters runs backwards"),
        ("root ::= *", "line 1: nothing stands before * that could be repeated"),
        ("root ::= [a]{5,3}", "line 1: a repeat of at least 5 and at most 3"),
        ("root ::= [a]{x}", "line 1: expected a repeat such as {3}, {2,} or {2,5}"),
        ("root ::= [a]{0,5000}", "line 1: a repeat that llama.cpp cannot hold; it goes up to 2000"),
        ("root ::= ([a]{0,99}){0,99}", "line 1: a repeat that llama.cpp cannot hold"),
        (
            f'root ::= "{"abc" * 999}"{{1999}}',
            "line 1: with its repeats the grammar has over 200000",
        ),
        ("root ::= " + "(" * 5000, "line 1: groups are nested more than 128 deep"),
        ('root ::= "a"' + "{1}" * 440, "line 1: groups and repeats are nested more than 128 deep"),
        ('root ::= "a"{' + "1" * 5000 + "}", "line 1: expected a repeat such as {3}"),
        ('root ::= root "a"', "line 1: rule 'root' begins with itself"),
        (
            'root ::= a\na ::= b a "x" | "y"\nb ::= c\nc ::= ""',
            "line 2: rule 'a' begins with itself",
        ),
        ('root ::= (a "x")* "y"\na ::= root', "begins with itself"),
        ("root ::= <[100]>", "line 1: <[100]> is outside the vocabulary of 100"),
        ("root ::= <eight>", "line 1: <eight> is 2 tokens of this model, expected one"),
        ("root ::= !a", "line 1: expected a token as <name> or <[id]>, found 'a'"),
        ("root ::= [a]\0", "line 1: a NUL character"),
        ("root ::= [\ud800]", "line 1: half of a surrogate pair"),
    ],
)
def test_bad_grammars_are_named(text: str, expected: str) -> None:
    refuse(text, expected)


def test_no_grammar_at_all() -> None:
    with pytest.raises(UsageError, match="the grammar is int; expected GBNF text"):
        check_grammar(5, 100, lambda _: [1])  # type: ignore[arg-type]


GOOD = [
    'root ::= "a"',
    "# a comment\nroot ::= a | # one\n b\r\na ::= [a-c-] [^\\]x]\nb ::= .+",
    'root ::= ("a" |\n  "b" # here\n)* "\\x41\\u0042\\U0001F600\\t\\\\\\"\\[\\]\\-"',
    'root ::= | "a" {2} . { 0 , 3 }',
    "root ::= <seven> !<[3]>? <[99]>*",
    'root ::= item*\nitem ::= [ ]* "a"?',
    'root ::= "x" root | "y"',
]


@pytest.mark.parametrize("text", GOOD)
def test_good_grammars_are_llama_cpps_too(text: str, engine: Engine) -> None:
    checked = check_grammar(text, 100, lambda _: [7])
    assert checked.text == text
    if "seven" not in text:
        engine.cancel(engine.start(PROMPT, grammar=text))


def test_what_llama_cpp_alone_refuses_has_its_words(engine: Engine) -> None:
    with pytest.raises(UsageError, match=r"llama.cpp does not take the grammar: .*left recursion"):
        engine.start(PROMPT, grammar="root ::= root | [a]")
    assert not engine.busy


def test_tokens_named_and_excluded() -> None:
    checked = check_grammar("root ::= <seven> !<[3]>", 100, lambda _: [7])
    assert (checked.tokens, checked.any_token) == ((7, 3), True)


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 6},
        "count": {"type": "integer", "minimum": -20, "maximum": 500},
        "tags": {"type": "array", "items": {"enum": ["a", 'b"c\\', "é😀"]}, "maxItems": 2},
    },
    "required": ["name", "count"],
}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_schema_requests_of_the_trained_pair_parse(tiny: Tiny, temperature: float) -> None:  # S3
    """25 requests at each temperature: each text is JSON, and the same without drafts."""
    with dflash_gguf.load(
        tiny.target_f32, tiny.draft("f32"), sequences=10, context=512, kv_type="f32"
    ) as engine:
        texts: list[list[str]] = []
        for block, count in ((16, 25), (1, 8)):
            waiting = list(enumerate(tiny.prompts[:count]))
            answers = []
            while waiting or engine.busy:
                while waiting and engine.free:
                    seed, prompt = waiting.pop(0)
                    answers.append(
                        engine.start(
                            prompt["messages"],
                            block=block,
                            max_tokens=250,
                            json_schema=SCHEMA,
                            sampling=Sampling(temperature=temperature, seed=seed),
                        )
                    )
                engine.step()
            texts.append([answer.text for answer in answers])
            if block > 1:
                assert sum(a.stats.accepted for a in answers if a.stats) > 500
    assert texts[0][:8] == texts[1]
    for text in texts[0]:
        value = json.loads(text)
        assert 1 <= len(value["name"]) <= 6
        assert -20 <= value["count"] <= 500
        assert set(value.get("tags", [])) <= {"a", 'b"c\\', "é😀"}
        assert len(value.get("tags", [])) <= 2
        assert set(value) <= set(SCHEMA["properties"])  # type: ignore[call-overload]
