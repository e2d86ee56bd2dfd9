"""Calls of tools in what a model writes, told apart from its text while it comes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from .tool_formats import CLOSE, OPEN, Call, Format, Unread
from .tools import Tool

Part: TypeAlias = str | Call  # of an answer, in order


class ToolCallSplitter:
    """Takes calls out of an answer, piece by piece; how it is cut into pieces makes no difference.

    What begins like a call of a declared tool is held back until it is whole. If it turns out to be none, it is
    text; so is one that the answer's end cuts off. White space before a call, between calls and behind the last
    one is left out.

    Args:
        form: of the calls.
        tools: that may be called.
    """

    def __init__(self, form: Format, tools: Sequence[Tool]) -> None:
        self._form = form
        self._tools = {tool.name: tool for tool in tools}
        self._held = ""  # what cannot be told yet; behind an opening tag if `_inside`
        self._inside = False
        self._searched = 0  # where in `_held` no closing tag begins before
        self._space = ""  # what may stand before a call
        self._bare = False  # nothing but white space since the last call

    def feed(self, text: str) -> list[Part]:
        """Return what `text` adds, so far as it can be told."""
        self._held += text
        return list(self._spaced(self._parts(last=False)))

    def close(self) -> list[Part]:
        """Return what was held back, at the end of the answer."""
        made = list(self._spaced(self._parts(last=True)))
        if self._space and not self._bare:
            made.append(self._space)
        self._space = ""
        return made

    def _parts(self, *, last: bool) -> Iterator[Part]:
        while self._held or (last and self._inside):
            if not self._inside:
                yield from self._text(last=last)
                if not self._inside:
                    return
            verdict = self._call(last=last)
            if verdict is Unread.OPEN:
                return
            self._inside, self._searched = False, 0
            if isinstance(verdict, Call):
                yield verdict
            else:
                yield OPEN

    def _text(self, *, last: bool) -> Iterator[str]:
        text, tag, rest = self._held.partition(OPEN)
        if tag:
            self._inside, self._searched, self._held = True, 0, rest
        else:
            kept = 0 if last else beginning_of(OPEN, text)
            text, self._held = text[: len(text) - kept], text[len(text) - kept :]
        if text:
            yield text

    def _call(self, *, last: bool) -> Call | Unread:
        """Read the call that `_held` begins with; OPEN: more is needed to tell."""
        if not self._form.begins(self._held):
            return Unread.BROKEN
        while (end := self._held.find(CLOSE, self._searched)) >= 0:
            self._searched = end + len(CLOSE)
            verdict = self._form.read(self._held[:end], self._tools)
            if verdict is Unread.OPEN:
                continue  # inside a value
            if isinstance(verdict, Call):
                self._held = self._held[self._searched :]
            return verdict
        self._searched = max(self._searched, len(self._held) - len(CLOSE) + 1)
        if not last:
            return Unread.OPEN
        verdict = self._form.read(
            self._held, self._tools
        )  # its closing tag may be all that is missing
        if not isinstance(verdict, Call):
            return Unread.BROKEN
        self._held = ""
        return verdict

    def _spaced(self, parts: Iterator[Part]) -> Iterator[Part]:
        for part in parts:
            if isinstance(part, Call):
                self._space, self._bare = "", True
                yield part
                continue
            text = self._space + part
            said = text.rstrip()
            self._space = text[len(said) :]
            if said:
                self._bare = False
                yield said


def beginning_of(tag: str, text: str) -> int:
    """Return how many characters at the end of `text` may begin a tag."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)
