"""What is thought is told apart from the answer, however the text is cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dflash_gguf.thinking import Said, ThinkingSplitter, opens_thinking, split_thinking

PIECES = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<th", "ink>", "</", "think", "<", ">", "\n", " ", "a", "é", "\r\n"]
    ),
    max_size=12,
)


def cut(pieces: list[str], *, inside: bool) -> Said:
    splitter = ThinkingSplitter(inside=inside)
    said = [*(splitter.feed(piece) for piece in pieces), splitter.close()]
    return Said("".join(s.reasoning for s in said), "".join(s.content for s in said))


@pytest.mark.parametrize(
    ("text", "inside", "reasoning", "content"),
    [
        ("hm\n</think>\n\nyes", True, "hm", "yes"),
        ("\n\n</think>\n\nyes", True, "", "yes"),
        ("<think>\nhm\n\nwell\n</think>\n\n  yes\n", False, "hm\n\nwell", "  yes\n"),
        (" \n<think>hm</think>yes", False, "hm", "yes"),
        ("yes <think>no</think>", False, "", "yes <think>no</think>"),
        ("hm </thin", True, "hm </thin", ""),
        ("hm \n", True, "hm", ""),
        ("hm</think>a</think>b", True, "hm", "a</think>b"),
        ("<thin", False, "", "<thin"),
        (" yes", False, "", " yes"),
        ("hm</think>", True, "hm", ""),
        ("", True, "", ""),
    ],
)
def test_an_answer_is_taken_apart(text: str, inside: bool, reasoning: str, content: str) -> None:
    assert split_thinking(text, inside=inside) == Said(reasoning, content)
    assert cut(list(text), inside=inside) == Said(reasoning, content)


@given(PIECES, st.booleans())
@example(["a", " ", "</", "think>", "\n", "\n", "b"], True)
def test_how_a_text_is_cut_makes_no_difference(pieces: list[str], inside: bool) -> None:
    text = "".join(pieces)
    whole = split_thinking(text, inside=inside)
    assert cut(pieces, inside=inside) == whole
    assert cut(list(text), inside=inside) == whole
    opened = text if inside else re.sub(r"\A\s*<think>", "", text)
    if inside or opened != text:
        thought, _, answer = opened.partition("</think>")
        assert whole == Said(thought.strip(), answer.lstrip("\r\n"))
    else:
        assert whole == Said(content=text)


def test_what_can_be_told_is_told_at_once() -> None:
    splitter = ThinkingSplitter(inside=True)
    assert splitter.feed("I wonder ") == Said("I wonder")
    assert splitter.inside
    assert splitter.feed("why") == Said(" why")
    assert splitter.feed("</think>\n") == Said()
    assert not splitter.inside
    assert splitter.feed("\nBe") == Said(content="Be")
    assert splitter.feed(" </") == Said(content=" </"), "tags in the answer are not waited for"


@pytest.mark.parametrize(
    ("rendered", "opened"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<|im_start|>assistant\n", False),
        ("", False),
    ],
)
def test_the_prompt_tells_where_an_answer_begins(rendered: str, opened: bool) -> None:
    assert opens_thinking(rendered) is opened
