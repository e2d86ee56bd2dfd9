"""Prompts: what a person types is text, what the template writes is special (V8)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dflash_gguf import ModelError, UsageError
from dflash_gguf._native import core
from dflash_gguf.prompt import Prompter
from dflash_gguf.text import Utf8Stream

from .support.edited import edited
from .support.random_pairs import IM_END, IM_START, SPECIALS, THINK, Pair

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
# specials, pieces of them and private characters, in any order
TRICKY = st.lists(
    st.sampled_from(
        [*SPECIALS, "<|im_", "end|>", "<", ">", "|", "<think", "\ue000", "\ue001", "é", "a", " "]
    )
).map("".join)


class Other:
    """A model with another chat template or other special tokens, on the dense pair's vocabulary."""

    def __init__(
        self, model: Any, template: str, specials: list[tuple[int, bytes, bool]] | None = None
    ) -> None:
        self._model, self._template, self._specials = model, template, specials

    def meta(self, _key: str) -> str:
        return self._template

    def special_tokens(self) -> list[tuple[int, bytes, bool]]:
        return self._model.special_tokens() if self._specials is None else self._specials

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


@pytest.fixture(scope="module")
def model(dense: Pair) -> Any:
    return core().Model(str(dense.target))


@pytest.fixture(scope="module")
def prompter(model: Any) -> Prompter:
    return Prompter(model)


def spelled(model: Any, ids: list[int]) -> str:
    """What ids spell, with special tokens in double angles."""
    stream = Utf8Stream()
    special = {token: text.decode() for token, text, _ in model.special_tokens()}
    return "".join(
        f"«{special[token]}»" if token in special else stream.feed(model.piece(token))
        for token in ids
    )


@pytest.mark.parametrize("role", ["user", "system", "tool"])
@pytest.mark.parametrize("special", SPECIALS)
def test_typed_specials_stay_text(model: Any, prompter: Prompter, role: str, special: str) -> None:
    text = f"a{special}b{special}{special}"
    ids = prompter.chat([{"role": role, "content": text}])
    assert spelled(model, ids) == (
        f"«<|im_start|>»{role}\n{text}«<|im_end|>»\n«<|im_start|>»assistant\n«<think>»\n"
    )


def test_the_templates_specials_are_single_ids(prompter: Prompter) -> None:
    ids = prompter.chat([{"role": "user", "content": "hi"}])
    assert ids.count(IM_START) == 2
    assert ids.count(IM_END) == 1
    assert ids.count(THINK) == 1
    assert ids.count(THINK + 1) == 0
    closed = prompter.chat([{"role": "user", "content": "hi"}], {"enable_thinking": False})
    assert closed.count(THINK + 1) == 1


@given(TEXT | TRICKY)
@settings(deadline=None)
def test_plain_text_comes_back(model: Any, prompter: Prompter, text: str) -> None:
    ids = prompter.plain(text)
    assert b"".join(map(model.piece, ids)).decode() == text
    assert not {token for token, _, _ in model.special_tokens()} & set(ids)


@given(TEXT | TRICKY)
@settings(deadline=None)
def test_a_message_comes_back_inside_its_frame(model: Any, prompter: Prompter, text: str) -> None:
    ids = prompter.chat([{"role": "user", "content": text}])
    assert ids[0] == IM_START
    assert ids.index(IM_END) == len(ids) - 1 - ids[::-1].index(IM_END), "one end only"
    inside = ids[1 : ids.index(IM_END)]
    assert b"".join(map(model.piece, inside)).decode() == f"user\n{text}"
    assert IM_START not in inside
    assert THINK not in inside


PARTS = (
    "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}<|im_end|>{% endfor %}"
)


@example(["<|im_", "end|>"])
@example(["<", "|im_end|>"])
@example(["<<<|im_end|", ">"])
@given(st.lists(TRICKY, min_size=1, max_size=4))
@settings(deadline=None)
def test_content_parts_cannot_join_into_a_special(model: Any, texts: list[str]) -> None:
    parts = [{"type": "text", "text": text} for text in texts]
    ids = Prompter(Other(model, PARTS)).chat([{"role": "user", "content": parts}])
    assert [token for token in ids if token >= 256] == [IM_END]
    assert b"".join(map(model.piece, ids)).decode() == "".join(texts)


@example("<<a>")
@example("<a><a><a>")
@example("[a[a")
@given(st.text("<[a]>", max_size=8))
@settings(deadline=None)
def test_overlapping_specials_stay_text_too(model: Any, text: str) -> None:
    specials = [
        (256, b"<a>", True),
        (257, b"<<a>", True),
        (258, b"<a><a>", True),
        (259, b"[a", True),
    ]
    prompter = Prompter(Other(model, "{{ messages[0].content }}", specials))
    assert all(token < 256 for token in prompter.chat([{"role": "user", "content": text}]))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ messages[0].role }}", {"role": "<|im_end|>", "content": ""}),
        (
            "{{ messages[0].calls | tojson }}",
            {"role": "user", "calls": {"<|im_end|>": ["<|im_end|>"]}},
        ),
        (
            "{% for k, v in messages[0].args.items() %}{{ k }}{{ v }}{% endfor %}",
            {"role": "x", "args": {"<|im_end|>": 1}},
        ),
        ("{{ messages[0].type }}", {"role": "user", "type": "<|im_end|>"}),
    ],
)
def test_specials_anywhere_in_a_message_stay_text(
    model: Any, template: str, message: dict[str, Any]
) -> None:
    ids = Prompter(Other(model, template)).chat([message])
    assert IM_END not in ids
    assert b"<|im_end|>" in b"".join(map(model.piece, ids))


def test_specials_in_tools_stay_text(model: Any) -> None:
    tools = "{{ tools | tojson(ensure_ascii=true) }}"
    prompter = Prompter(Other(model, f"{tools}<|im_end|>{tools}"))
    ids = prompter.chat([], {"tools": [{"name": "<|im_end|>é"}]})
    text = '[{"name": "<|im_end|>\\u00e9"}]'
    assert spelled(model, ids) == f"{text}«<|im_end|>»{text}"
    assert ids.count(IM_END) == 1


def test_what_the_model_said_keeps_its_own_markup_but_no_control_token(
    model: Any, prompter: Prompter
) -> None:
    said = "<think>\nhm\n</think>\n\nyes<|im_end|>"
    ids = prompter.chat([{"role": "assistant", "content": said}], {"add_generation_prompt": False})
    assert spelled(model, ids) == (
        "«<|im_start|>»assistant\n«<think>»\nhm\n«</think>»\n\nyes<|im_end|>«<|im_end|>»\n"
    )


def test_templates_still_find_the_models_markup(model: Any) -> None:
    strip = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}|{% endfor %}"
    prompter = Prompter(Other(model, strip))
    ids = prompter.chat(
        [{"role": "user", "content": "a</think>b"}, {"role": "assistant", "content": "c</think>d"}]
    )
    assert b"".join(map(model.piece, ids)) == b"a</think>b|d|", "only the model's own is cut off"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<[")))
@settings(deadline=None)
def test_without_specials_tokens_are_llama_cpps_own(
    model: Any, prompter: Prompter, text: str
) -> None:
    assert prompter.plain(text) == (model.tokenize(text, False, False) if text else [])
    frame = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert prompter.chat([{"role": "user", "content": text}]) == model.tokenize(frame, False, True)


def test_raw_text_is_parsed(prompter: Prompter) -> None:
    assert prompter.raw("<|im_start|>a<think>") == [IM_START, *prompter.plain("a"), THINK]


def test_lone_surrogates_become_replacements(model: Any, prompter: Prompter) -> None:
    for encode in (prompter.plain, prompter.raw):
        assert (
            b"".join(map(model.piece, encode("a\udcffb"))).decode() == "a\N{REPLACEMENT CHARACTER}b"
        )
    assert prompter.chat([{"role": "user", "content": "\ud800"}])


def test_private_characters_never_clash_with_the_guard(model: Any) -> None:
    everyone = "".join(map(chr, range(0xE000, 0xF900)))
    prompter = Prompter(Other(model, "{{ messages[0].content }}"))
    nearly = everyone[:-1] + "<|im_end|>"
    ids = prompter.chat([{"role": "user", "content": nearly}])
    assert b"".join(map(model.piece, ids)).decode() == nearly
    with pytest.raises(UsageError, match="every private character"):
        prompter.chat([{"role": "user", "content": everyone}])


def test_messages_of_the_wrong_shape_are_refused(prompter: Prompter) -> None:
    with pytest.raises(UsageError, match="a message is 'hi'; expected a mapping"):
        prompter.chat(["hi"])  # type: ignore[list-item]


def test_a_target_without_a_template_says_so(model: Any) -> None:
    prompter = Prompter(Other(model, ""))
    assert prompter.template is None
    with pytest.raises(UsageError, match="no chat template; give the prompt as plain text"):
        prompter.chat([{"role": "user", "content": "hi"}])


def test_a_template_that_is_no_text_is_a_broken_model(dense: Pair, tmp_path: Any) -> None:
    source = edited(dense.target, tmp_path / "t.gguf", change={"tokenizer.chat_template": "~~~~"})
    source.write_bytes(source.read_bytes().replace(b"~~~~", b"\xff\xfe\xff\xfe"))
    with pytest.raises(ModelError, match="chat template is not text"):
        Prompter(core().Model(str(source)))
