"""Conversations keep the ids of what was said: a quoted answer is not tokenized anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dflash_gguf
from dflash_gguf._native import core
from dflash_gguf.prompt import Prompter
from dflash_gguf.said import Said

from .support.edited import edited
from .support.tiny import Tiny

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def target(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained target with a template that keeps answers as they are."""
    path = tmp_path_factory.mktemp("said") / "target.gguf"
    return edited(tiny.target, path, change={"tokenizer.chat_template": TEMPLATE})


def chat(*texts: str) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]


def test_an_answer_that_is_quoted_keeps_its_ids(target: Path) -> None:
    prompter = Prompter(core().Model(str(target)))
    word = "the answer"
    usual = prompter.plain(word)
    letters = [token for letter in word for token in prompter.plain(letter)]
    assert letters != usual
    before = prompter.chat(chat(word, word, word))
    prompter.said.remember(word, letters, word.encode())
    after = prompter.chat(chat(word, word, word))
    frame = [prompter.chat(chat(text)) for text in ("", word)]
    asked = frame[1]  # what a person says is not touched, though it reads the same
    assert after[: len(asked)] == asked == before[: len(asked)]
    assert after == before[: len(asked)] + letters + before[len(asked) + len(usual) :]
    # only what is quoted whole and as it stands
    for other in (word + "!", word.upper(), "<|im_end|>" + word):
        assert (
            prompter.chat(chat("a", other, "b"))[len(prompter.chat(chat("a"))) :][:3] != letters[:3]
        )
    assert prompter.chat(chat("a", f" {word}\n", "b")) == [
        *prompter.chat(chat("a")),
        *usual,
        *prompter.chat(chat("a", word, "b"))[len(prompter.chat(chat("a"))) + len(letters) :],
    ]


def test_only_whole_texts_are_remembered_and_the_oldest_go() -> None:
    said = Said()
    said.remember("cut sh", [1, 2], b"cut short")
    said.remember("half \ufffd", [3], b"half \xf0\x9f")
    said.remember("", [4], b"")
    assert [said.ids(text) for text in ("cut sh", "half \ufffd", "")] == [(), (), ()]
    for number in range(65):
        said.remember(f"{number}", [number], f"{number}".encode())
        said.remember("kept fresh", [7, 8], b"kept fresh")
    assert said.ids("0") == said.ids("1") == ()
    assert said.ids("2") == (2,)
    assert said.ids("kept fresh") == (7, 8)


def test_the_next_turn_goes_on_from_the_answers_own_tokens(target: Path, tiny: Tiny) -> None:
    options: dict[str, Any] = {"threads": 1, "context": 512}
    with dflash_gguf.load(target, tiny.draft("bf16"), **options) as engine:
        prompter = Prompter(core().Model(str(target)))
        letters = [token for i in range(97, 123) for token in prompter.plain(chr(i))]
        spelled = dflash_gguf.Sampling(logit_bias=dict.fromkeys(letters, 100.0))
        messages = chat("What is 3 + 4?")
        first = engine.generate(messages, max_tokens=20, sampling=spelled)
        assert first.text.isalpha()
        assert prompter.plain(first.text) != first.tokens
        messages += [*chat("", first.text)[1:], *chat("And 5 + 6?")]
        second = engine.generate(messages, max_tokens=5)
        assert second.stats is not None
        assert second.stats.reused_tokens == len(first.prompt) + len(first.tokens) - 1
