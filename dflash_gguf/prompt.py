"""From messages to token ids.

Special tokens that the template writes become single ids; the same characters typed by a person stay text.
To tell the two apart, special tokens inside messages are broken by a guard character before the template
renders, and healed after the rendered text has been split at the special tokens that are left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from .errors import ModelError, UsageError
from .said import Said
from .template import ChatTemplate, Message, map_strings
from .text import whole_characters

if TYPE_CHECKING:
    from . import _core

# text (one user message), a conversation, or token ids, such as a ReadPrompt
Prompt: TypeAlias = str | Sequence[Message] | Sequence[int]

_MARKUP = re.compile(r"[<\[].*[>\]]", re.DOTALL)
_GUARDS = range(0xE000, 0xF900)  # private use: no text of the world needs all of them


class ReadPrompt(tuple[int, ...]):
    """A prompt's token ids, which may be given in its place: it is then not read again.

    Attributes:
        border: how many of them a later turn is likely to begin with; -1: unknown.
    """

    border: int

    def __new__(cls, ids: Iterable[int], border: int = -1) -> Self:
        """Keep `ids` and `border`."""
        made = super().__new__(cls, ids)
        made.border = border
        return made


class _Marks:
    """The texts of some special tokens, and where to cut a text so that none is left."""

    def __init__(self, texts: list[str]) -> None:
        longest_first = sorted(texts, key=len, reverse=True)
        # (?!) never matches: a vocabulary may have none
        any_of_them = "|".join(map(re.escape, longest_first)) or "(?!)"
        self.pattern = re.compile(any_of_them)
        self._start = re.compile(f"(?={any_of_them})")
        self._beginnings = {text[:n] for text in texts for n in range(1, len(text))}
        self._longest = max(map(len, self._beginnings), default=0)

    def cut(self, text: str) -> list[str]:
        """Split `text` after the first character of each mark, overlapping ones too."""
        return _split(text, {match.start() + 1 for match in self._start.finditer(text)})

    def broken(self, text: str, guard: str) -> str:
        """Return `text` with the guard at these cuts.

        Beginnings of a mark at its end are broken too: the template may join them with what comes next.
        """
        ends = range(1, min(self._longest, len(text)) + 1)
        cuts = {len(text) - n + 1 for n in ends if text[-n:] in self._beginnings}
        return guard.join(piece for part in _split(text, cuts) for piece in self.cut(part))


class Prompter:
    """Turns conversations and texts into token ids for one target.

    Attributes:
        template: the target's chat template, None if its file has none.
        said: what the target has answered lately; a conversation that quotes it gets the same ids.

    Raises ModelError if the template is broken.
    """

    def __init__(self, model: _core.Model) -> None:
        self._model = model
        self.said = Said()
        special = [
            (text.decode("utf-8", "surrogateescape"), token, control)
            for token, text, control in model.special_tokens()
        ]
        # whitespace and the like may be tokens of their own; only those that look like markup mean something
        self._ids = {
            text: token
            for text, token, control in special
            if len(text) > 1 and (control or _MARKUP.fullmatch(text))
        }
        self._any = _Marks(list(self._ids))
        self._control = _Marks(
            [text for text, _, control in special if control and text in self._ids]
        )
        self._own = _Marks([text for text, _, own in special if not own and text in self._ids])
        self.template = self._read_template()

    def read(self, prompt: Prompt, *, raw: bool, template: Mapping[str, Any] | None) -> ReadPrompt:
        """Return a prompt's ids.

        Args:
            prompt: text, taken as one user message unless `raw`; messages with role and content; or ids.
            raw: take text as it is, special tokens included.
            template: arguments for the chat template.

        Raises UsageError if it is none of these or the template refuses the messages.
        """
        if isinstance(prompt, ReadPrompt):
            return prompt
        if isinstance(prompt, str):
            if raw or self.template is None:
                return ReadPrompt(self.raw(prompt))
            return self.bordered([{"role": "user", "content": prompt}], template)
        if isinstance(prompt, bytes | Mapping) or not hasattr(prompt, "__iter__"):
            text = f"the prompt is {type(prompt).__name__}; expected text, messages or token ids"
            raise UsageError(text)
        items: list[Any] = list(prompt)
        ids = [int(item) for item in items if isinstance(item, Integral)]
        if len(ids) == len(items):
            return ReadPrompt(ids)
        return self.bordered(items, template)

    def render(
        self, messages: Sequence[Message], arguments: Mapping[str, Any] | None = None
    ) -> str:
        """Return the text of a conversation, ready for the answer; `arguments` go to the template.

        Raises UsageError if the target has no chat template or the template refuses the messages.
        """
        if self.template is None:
            text = "the target's file has no chat template; give the prompt as plain text (raw)"
            raise UsageError(text)
        return self.template.render(messages, arguments or {})

    def chat(
        self, messages: Sequence[Message], arguments: Mapping[str, Any] | None = None
    ) -> list[int]:
        """Return the ids of a conversation; arguments and errors as of `render`."""
        return list(self.bordered(messages, arguments))

    def bordered(
        self, messages: Sequence[Message], arguments: Mapping[str, Any] | None = None
    ) -> ReadPrompt:
        """Return the ids of a conversation; its border is how many of them its messages alone take.

        What the template adds for the answer to come, such as an opened <think>, may be no part of the next
        turn's prompt. Arguments and errors as of `render`.
        """
        for message in messages:
            if not isinstance(message, Mapping):
                text = f"a message is {message!r}; expected a mapping with 'role' and 'content'"
                raise UsageError(text)
        source = self.template.source if self.template else ""
        guard = _unused_character(repr(messages) + repr(arguments) + source)
        guarded = [self._shield(message, guard) for message in messages]
        quote = ""
        if any(map(self._quotable, messages)):
            quote = _unused_character(repr(messages) + repr(arguments) + source + guard)
            guarded = [self._quoted(m, g, quote) for m, g in zip(messages, guarded, strict=True)]
        shielded = map_strings(arguments or {}, lambda text: self._any.broken(text, guard))
        rendered = self.render(guarded, shielded)
        shared = self._shared(rendered, guarded, shielded)
        # the second form is what `tojson(ensure_ascii=true)` makes of it
        own = [form for mark in guard + quote for form in (mark, f"\\u{ord(mark):04x}")]
        ids: list[int] = []
        end = border = 0
        for start, stop, known in self._known(rendered, guard, quote):
            ids += self.plain(_without(rendered[end:start], *own))
            border = len(ids) if start <= shared else border
            ids += known
            end = stop
            border = len(ids) if end <= shared else border
        ids += self.plain(_without(rendered[end:], *own))
        return ReadPrompt(ids, len(ids) if shared == len(rendered) else border)

    def _quotable(self, message: Message) -> bool:
        """Whether this is an earlier answer that templates pass on as it is."""
        content = message.get("content")
        return (
            message.get("role") == "assistant"
            and isinstance(content, str)
            and content == content.strip()
            and self._any.pattern.search(content) is None
            and self.said.ids(content) != ()
        )

    def _quoted(self, message: Message, shielded: Message, quote: str) -> Message:
        """Mark both ends of such an answer."""
        if not self._quotable(message):
            return shielded
        return {**shielded, "content": quote + shielded["content"] + quote}

    def _known(self, rendered: str, guard: str, quote: str) -> list[tuple[int, int, Sequence[int]]]:
        """Return the parts of a text whose ids are known, in order: special tokens, earlier answers."""
        known: list[tuple[int, int, Sequence[int]]] = [
            (match.start(), match.end(), (self._ids[match[0]],))
            for match in self._any.pattern.finditer(rendered)
        ]
        for match in re.finditer(f"{quote}([^{quote}]*){quote}", rendered) if quote else ():
            ids = self.said.ids(match[1].replace(guard, ""))
            if ids:
                known.append((match.start(), match.end(), ids))
        return sorted(known)

    def _shared(
        self, rendered: str, messages: Sequence[Message], arguments: Mapping[str, Any]
    ) -> int:
        """Return how many characters stay if no answer is asked for."""
        try:
            alone = self.render(messages, {**arguments, "add_generation_prompt": False})
        except UsageError:  # a template may insist
            return 0
        pairs = enumerate(zip(rendered, alone, strict=False))
        return next((i for i, (a, b) in pairs if a != b), min(len(rendered), len(alone)))

    def plain(self, text: str) -> list[int]:
        """Return the ids of text in which nothing is special."""
        # llama.cpp matches a model's own markup tokens in any text: it must not see them whole
        pieces = self._own.cut(whole_characters(text))
        return [token for piece in pieces if piece for token in self._tokenize(piece)]

    def control_tokens(self, texts: Iterable[str]) -> set[int]:
        """Return the tokens, never shown, that stand for one of these texts."""
        return {self._ids[text] for text in texts if self._control.pattern.fullmatch(text)}

    def raw(self, text: str) -> list[int]:
        """Return the ids of a text as a file of training text would have them: specials are parsed."""
        return self._model.tokenize(whole_characters(text), True, True)

    def _tokenize(self, text: str) -> list[int]:
        return self._model.tokenize(text, False, False)

    def _shield(self, message: Message, guard: str) -> Message:
        # what the model itself said may hold its own markup, which templates look for
        shielded: dict[str, Any] = map_strings(message, lambda text: self._any.broken(text, guard))
        if message.get("role") == "assistant" and "content" in message:
            content = message["content"]
            shielded["content"] = map_strings(
                content, lambda text: self._control.broken(text, guard)
            )
        return shielded

    def _read_template(self) -> ChatTemplate | None:
        try:
            source = self._model.meta("tokenizer.chat_template")
        except UnicodeDecodeError as error:
            text = f"the model's chat template is not text ({error}); convert the target again"
            raise ModelError(text) from None
        if not source:
            return None
        ends = {"bos_token": self._model.bos, "eos_token": self._model.eos}
        return ChatTemplate(
            source,
            {
                name: self._model.piece(token, True).decode("utf-8", "replace")
                for name, token in ends.items()
                if token >= 0
            },
        )


def _split(text: str, cuts: set[int]) -> list[str]:
    places = [0, *sorted(cuts), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


def _without(text: str, *parts: str) -> str:
    for part in parts:
        text = text.replace(part, "")
    return text


def _unused_character(text: str) -> str:
    for code in _GUARDS:
        # repr writes private characters in the second form
        if chr(code) not in text and f"\\u{code:04x}" not in text:
            return chr(code)
    problem = "the messages use every private character of Unicode; leave one out"
    raise UsageError(problem)
