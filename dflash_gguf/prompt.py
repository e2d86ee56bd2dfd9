"""From messages to token ids.

Special tokens that the template writes become single ids; the same characters typed by a person stay text.
To tell the two apart, special tokens inside messages are broken by a guard character before the template
renders, and healed after the rendered text has been split at the special tokens that are left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .errors import UsageError
from .template import ChatTemplate, Message, map_strings

if TYPE_CHECKING:
    from . import _core

# roles are compared by templates, and types of content parts too
_NOT_TEXT = frozenset({"role", "type"})
_MARKUP = re.compile(r"[<\[].*[>\]]", re.DOTALL)
_GUARDS = range(0xE000, 0xF8FF)


class Prompter:
    """Turns conversations and texts into token ids for one target.

    Attributes:
        template: the target's chat template, None if its file has none.
    """

    def __init__(self, model: _core.Model) -> None:
        self._model = model
        special = [
            (text.decode("utf-8", "surrogateescape"), token, control)
            for token, text, control in model.special_tokens()
        ]
        # whitespace and the like may be tokens of their own; only those that look like markup mean something
        marks = {
            text: token for text, token, control in special if control or _MARKUP.fullmatch(text)
        }
        marks.pop("", None)
        self._ids = marks
        self._any = _one_of(list(marks))
        self._control = _one_of([text for text, _, control in special if control and text])
        self._own = _one_of([text for text, _, control in special if not control and text in marks])
        source = model.meta("tokenizer.chat_template")
        self.template = (
            ChatTemplate(source, bos=self._text_of(model.bos), eos=self._text_of(model.eos))
            if source
            else None
        )

    def render(self, messages: Sequence[Message], **arguments: Any) -> str:
        """Return the text of a conversation, ready for the answer; `arguments` go to the template.

        Raises UsageError if the target has no chat template or the template refuses the messages.
        """
        if self.template is None:
            text = "the target's file has no chat template; give the prompt as plain text (raw)"
            raise UsageError(text)
        return self.template.render(messages, **arguments)

    def chat(self, messages: Sequence[Message], **arguments: Any) -> list[int]:
        """Return the ids of a conversation; arguments and errors as of `render`."""
        source = self.template.source if self.template else ""
        guard = _unused_character(repr(messages) + repr(arguments) + source)
        rendered = self.render([self._shield(message, guard) for message in messages], **arguments)
        ids: list[int] = []
        end = 0
        for match in self._any.finditer(rendered):
            ids += self.plain(rendered[end : match.start()].replace(guard, ""))
            ids.append(self._ids[match.group()])
            end = match.end()
        return ids + self.plain(rendered[end:].replace(guard, ""))

    def plain(self, text: str) -> list[int]:
        """Return the ids of text in which nothing is special."""
        ids: list[int] = []
        start = 0
        # llama.cpp always matches a model's own markup tokens: cut them after their first character
        for match in self._own.finditer(text):
            ids += self._tokenize(text[start : match.start() + 1])
            start = match.start() + 1
        return ids + self._tokenize(text[start:])

    def raw(self, text: str) -> list[int]:
        """Return the ids of a text as a file of training text would have them: specials are parsed."""
        return self._model.tokenize(text, True, True)

    def _tokenize(self, text: str) -> list[int]:
        return self._model.tokenize(text, False, False) if text else []

    def _shield(self, message: Message, guard: str) -> Message:
        # what the model itself said may hold its own markup, which templates look for
        marks = self._control if message.get("role") == "assistant" else self._any

        def broken(text: str) -> str:
            return marks.sub(lambda match: match.group()[0] + guard + match.group()[1:], text)

        shielded: Message = map_strings(message, broken, skip=_NOT_TEXT)
        return shielded

    def _text_of(self, token: int) -> str:
        return self._model.piece(token, True).decode("utf-8", "replace") if token >= 0 else ""


def _one_of(texts: list[str]) -> re.Pattern[str]:
    longest_first = sorted(texts, key=len, reverse=True)
    # (?!) never matches: a vocabulary may have none
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def _unused_character(text: str) -> str:
    for code in _GUARDS:
        if chr(code) not in text and f"\\u{code:04x}" not in text:
            return chr(code)
    problem = "the messages use every private character of Unicode; leave one out"
    raise UsageError(problem)
