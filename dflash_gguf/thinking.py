"""What a model thinks before it answers, told apart from the answer while it is written.

Thinking stands between <think> and </think> at the beginning of an answer. Some templates write the opening tag
for the model, at the end of the prompt. Tags further on belong to the answer's text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"


def opens_thinking(rendered: str) -> bool:
    """Whether a rendered prompt ends within thinking, so that the answer begins there."""
    return rendered.rstrip().endswith(OPEN)


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of what was thought and a piece of the answer; either may be empty."""

    reasoning: str = ""
    content: str = ""


class ThinkingSplitter:
    """Takes an answer apart, piece by piece; how it is cut into pieces makes no difference.

    Whitespace around the thinking is left out, and the line ends between it and the answer.

    Args:
        inside: whether the prompt has opened the thinking.
        ends: other tags that end it too, and belong to the answer: a model may call a tool while it thinks.

    Attributes:
        inside: whether what comes next is thinking, as far as is known.
    """

    def __init__(self, *, inside: bool = False, ends: Iterable[str] = ()) -> None:
        self.inside = inside
        self._tags = (CLOSE, *ends)
        self._held = ""  # what may be whitespace at an edge, or the beginning of a tag
        self._step = self._thinking if inside else self._beginning
        self._blank = True  # nothing has been thought yet

    def feed(self, text: str) -> Said:
        """Return what `text` adds, so far as it can be told."""
        self._held += text
        return self._step()

    def close(self) -> Said:
        """Return what was held back, at the end of the answer."""
        held, self._held = self._held, ""
        return Said(reasoning=held.rstrip()) if self.inside else Said(content=held)

    def _beginning(self) -> Said:
        found = self._held.lstrip()
        if found.startswith(OPEN):
            self.inside, self._held = True, found.removeprefix(OPEN)
            self._step = self._thinking
            return self._step()
        if OPEN.startswith(found):
            return Said()
        self._step = self._answer
        return self._step()

    def _thinking(self) -> Said:
        if self._blank:
            self._held = self._held.lstrip()
        held = self._held
        found = [(place, tag) for tag in self._tags if (place := held.find(tag)) >= 0]
        if found:
            end, tag = min(found)
            self.inside, self._held = False, held[end + len(CLOSE) if tag == CLOSE else end :]
            self._step = self._border
            return Said(self._thought(held[:end].rstrip()), self._step().content)
        end = len(held) - max(_beginning_of(tag, held) for tag in self._tags)
        end = len(held[:end].rstrip())
        self._held = held[end:]
        return Said(reasoning=self._thought(held[:end]))

    def _thought(self, text: str) -> str:
        self._blank = self._blank and not text
        return text

    def _border(self) -> Said:
        self._held = self._held.lstrip("\r\n")
        if not self._held:
            return Said()
        self._step = self._answer
        return self._step()

    def _answer(self) -> Said:
        text, self._held = self._held, ""
        return Said(content=text)


def opened_thinking(tail: str) -> str:
    """Return the opened <think> that the text of a prompt ends with, and what follows it; "" if there is none."""
    return tail[tail.rindex(OPEN) :] if opens_thinking(tail) else ""


def split_thinking(text: str, *, inside: bool = False) -> Said:
    """Take a whole answer apart."""
    splitter = ThinkingSplitter(inside=inside)
    first, last = splitter.feed(text), splitter.close()
    return Said(first.reasoning + last.reasoning, first.content + last.content)


def _beginning_of(tag: str, text: str) -> int:
    """How many characters at the end of `text` may begin the tag."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)
