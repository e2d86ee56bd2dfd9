"""What `run` is asked, by words, options, files and pipes, and its answer as a document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dflash_gguf

from .support.command import UNTHINKING, command
from .support.random_pairs import Pair
from .support.tiny import Tiny

SUM = "Anna has 12 apples. Then Anna buys 35 more. How many apples does Anna have now?"


@pytest.mark.parametrize(
    ("words", "stdin", "asked"),
    [
        (["-p", "a b"], None, "a b"),
        (["a", "b"], None, "a b"),
        (["-f", "FILE"], None, "from\na file\n"),
        (["-f", "-"], "piped\n", "piped\n"),
        ([], "piped\ntwice\n", "piped\ntwice"),
        (["-p", "a b"], "piped\n", "piped\n\na b"),
        (["a"], " \n", "a"),
    ],
)
def test_all_ways_to_ask(
    dense: Pair, tmp_path: Path, words: list[str], stdin: str | None, asked: str
) -> None:
    file = tmp_path / "question"
    file.write_text("from\na file\n")
    given = [str(file) if word == "FILE" else word for word in words]
    options = ["run", "-m", dense.target, "-n", 12, "--no-think", "--json", "-q"]
    result = command(*options, *given, stdin=stdin)
    assert result.returncode == 0, result.stderr
    with dflash_gguf.load(dense.target) as engine:
        expected = engine.generate(asked, max_tokens=12, template=UNTHINKING)
    document = json.loads(result.stdout)
    assert document["usage"]["prompt_tokens"] == len(expected.prompt)
    assert document["text"] == expected.text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-p", "a", "b"], "a positional prompt and -p are given; expected one of them"),
        (["-p", "a", "-f", "x"], "-p and -f are given; expected one of them"),
        (["-p", "a", "-cnv"], "--conversation and -p are given; expected one of them"),
        (["-f", "/nowhere"], "-f /nowhere: No such file or directory; expected a text file"),
        (["-p", " "], "the prompt (-p) is empty; expected some text"),
        (["--json"], "--json is for one answer; give a prompt"),
        (["--session", "/", "-p", "a"], "/: Is a directory; expected a conversation"),
    ],
)
def test_what_cannot_be_asked_is_told(dense: Pair, words: list[str], told: str) -> None:
    result = command("run", "-m", dense.target, *words)
    assert (result.returncode, result.stdout) == (2, "")
    assert told in result.stderr


def test_a_document_holds_everything_apart(tiny: Tiny) -> None:
    draft = tiny.draft("bf16")
    result = command(
        "run", "-m", tiny.target, "-md", draft, "--block", 8, "-p", SUM, "--json", "-q"
    )
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["text"] == "Anna has 47 apples."
    assert document["reasoning"].startswith("The question is about the apples of Anna.\n")
    assert document["reasoning"].endswith("the result is 47.")
    assert (document["finish_reason"], document["seed"]) == ("stop", None)
    usage, timings, drafts = document["usage"], document["timings"], document["speculative"]
    assert timings["prompt_n"] + timings["cache_n"] == usage["prompt_tokens"]
    assert timings["predicted_n"] == usage["completion_tokens"] - 1
    assert (timings["draft_n"], timings["draft_n_accepted"]) == (
        drafts["drafted"],
        drafts["accepted"],
    )
    assert usage["completion_tokens"] == 1 + drafts["steps"] + drafts["accepted"]
    per_second = 1e3 * timings["predicted_n"] / timings["predicted_ms"]
    assert timings["predicted_per_second"] == pytest.approx(per_second)


def test_stdout_has_the_answer_without_the_thinking(tiny: Tiny) -> None:  # H7
    result = command("run", "-m", tiny.target, "-p", SUM)
    assert result.stdout == "Anna has 47 apples.\n"
    assert "The question" not in result.stderr, "off a terminal nobody reads it"
    cut = command("run", "-m", tiny.target, "-p", SUM, "-n", 9)
    assert cut.stdout == "\n"
    assert "came before the answer: all of this was thinking" in cut.stderr


def test_a_grammar_binds_text_that_has_no_thinking(tiny: Tiny) -> None:
    result = command("run", "-m", tiny.target, "-p", SUM, "--grammar", 'root ::= "47" " apples"')
    assert result.stdout == "47 apples\n"


def test_one_answers_of_a_session_are_turns_of_it(dense: Pair, tmp_path: Path) -> None:
    talk = tmp_path / "talk.json"
    options = ["run", "-m", dense.target, "-n", 6, "--no-think", "--session", talk]
    first = command(*options, "-sys", "be brief", "-p", "one")
    second = command(*options, "-p", "two", "--json")
    assert (first.returncode, second.returncode) == (0, 0), second.stderr
    content = json.loads(talk.read_text())
    assert content["system"] == "be brief"
    assert [turn["user"] for turn in content["turns"]] == ["one", "two"]
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": content["turns"][0]["answer"]},
        {"role": "user", "content": "two"},
    ]
    with dflash_gguf.load(dense.target) as engine:
        read = engine.encode(messages, template=UNTHINKING)
    assert json.loads(second.stdout)["usage"]["prompt_tokens"] == len(read)
