"""Where a person's messages come from: an editor of lines on a terminal, the lines of a pipe otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

Reader: TypeAlias = Callable[[], str | None]
QUOTES = '"""'
PLACEHOLDER = "Send a message (/help for commands)"


def piped(lines: Iterable[str]) -> Reader:
    """Return a function that returns the next line of a pipe, None at its end.

    Lines between two lines of three quotes are one message.
    """
    rest = iter(lines)

    def line() -> str | None:
        text = next(rest, None)
        return None if text is None else text.rstrip("\r\n")

    def read() -> str | None:
        text = line()
        if text is None or not text.startswith(QUOTES) or closed(text):
            return None if text is None else unquoted(text)
        parts = [text]
        while (more := line()) is not None:
            parts.append(more)
            if more.rstrip().endswith(QUOTES):
                break
        return unquoted("\n".join(parts))

    return read


def closed(text: str) -> bool:
    """Whether a message is whole: not one that three quotes have begun and none has ended."""
    stripped = text.strip()
    if not stripped.startswith(QUOTES):
        return True
    return len(stripped) >= 2 * len(QUOTES) and stripped.endswith(QUOTES)


def unquoted(text: str) -> str:
    """Return what stands between three quotes and three quotes, other text as it is."""
    stripped = text.strip()
    if not stripped.startswith(QUOTES):
        return text
    return stripped.removeprefix(QUOTES).removesuffix(QUOTES).strip("\n")


class Left(Exception):
    """Ctrl-C on an empty line, twice."""


def on_terminal(completer: Completer, history: Path | None) -> Reader:
    """Return a function that asks for a message on the terminal and returns it, None for Ctrl-D.

    Enter sends, Alt-Enter begins a new line, as Enter does behind three quotes; Ctrl-G opens $EDITOR. Ctrl-C
    clears the line; on an empty one it says how to leave, and raises Left if it is pressed again.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    session: PromptSession[str] = PromptSession(
        history=InMemoryHistory() if history is None else FileHistory(str(history)),
        completer=completer,
        complete_while_typing=False,
        multiline=True,
        key_bindings=_keys(),
        prompt_continuation="... ",
        enable_open_in_editor=True,
        tempfile_suffix=".md",
    )
    warned = False

    def read() -> str | None:
        nonlocal warned
        while True:
            try:
                text = session.prompt(">>> ", placeholder=PLACEHOLDER)
            except EOFError:
                return None
            except KeyboardInterrupt:
                if session.default_buffer.text:
                    warned = False
                elif warned:
                    raise Left from None
                else:
                    warned = True
                    print("Ctrl-C again, Ctrl-D or /exit leaves.", file=sys.stderr)  # noqa: T201
                continue
            warned = False
            return unquoted(text)

    return read


def _keys() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if closed(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-g")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.open_in_editor()

    return keys
