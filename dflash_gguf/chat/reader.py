"""Where a person's messages come from: an editor of lines on a terminal, the lines of a pipe otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..errors import UsageError
from ..terminal import say
from .editor import edited

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

Reader: TypeAlias = Callable[[], str | None]
QUOTES = '"""'
PLACEHOLDER = "Send a message (/help for commands)"
_SHORT = "/help", 44  # for terminals with fewer columns


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
    from prompt_toolkit.history import InMemoryHistory

    from .history import PatientHistory
    from .line_interrupts import LineInterrupts

    kept = None if history is None else PatientHistory(str(history))
    session: PromptSession[str] = PromptSession(
        history=kept or InMemoryHistory(),
        completer=completer,
        complete_while_typing=False,
        multiline=True,
        key_bindings=_keys(),
        prompt_continuation="... ",
        enable_suspend=True,
    )
    interrupts = LineInterrupts(session.app)

    def line() -> str | None:
        """Return what was sent, None if it is to be asked again. Raises EOFError, KeyboardInterrupt."""
        wide = session.output.get_size().columns >= _SHORT[1]
        text = session.prompt(
            ">>> ",
            placeholder=PLACEHOLDER if wide else _SHORT[0],
            handle_sigint=False,
            pre_run=interrupts.begun,
        )
        if interrupts.taken():  # when it had been sent
            raise KeyboardInterrupt
        return None if _typed_ctrl_c(session.input) else text

    def read() -> str | None:
        with interrupts.handed_on():
            interrupts.counts = warned = False
            while True:
                try:
                    text = line()
                except EOFError:
                    return None
                except KeyboardInterrupt:
                    interrupts.counts = True
                    if session.default_buffer.text:
                        warned = False
                    elif warned:
                        raise Left from None
                    else:
                        warned = True
                        say("Ctrl-C again, Ctrl-D or /exit leaves.")
                    continue
                if text is not None:
                    break
        if kept and (problem := kept.problem()):
            say(f"note: what is typed is not remembered: {problem}")
        return unquoted(text)

    return read


def _typed_ctrl_c(keyboard: Input) -> bool:
    """Whether Ctrl-C was pressed so soon behind Enter that it was read as a key; what it was for is not sent then."""
    from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
    from prompt_toolkit.keys import Keys

    typed = get_typeahead(keyboard)
    found = next((n for n, press in enumerate(typed) if press.key == Keys.ControlC), None)
    store_typeahead(keyboard, typed if found is None else typed[found + 1 :])
    return found is not None


def _keys() -> KeyBindings:
    from prompt_toolkit.application import run_in_terminal
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

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
    @keys.add("c-x", "c-e")
    def _(event: KeyPressEvent) -> None:
        run_in_terminal(partial(_edit, event.current_buffer))

    @keys.add(Keys.Vt100MouseEvent)
    def _(_event: KeyPressEvent) -> None:
        """Nothing: the mouse was not asked for, and what looks like it may be a pasted escape sequence."""

    return keys


def _edit(buffer: Buffer) -> None:
    """Have a person edit a line elsewhere; what an editor that fails has done is left out."""
    try:
        buffer.text = edited(buffer.text)
    except UsageError as error:
        say(str(error))
    buffer.cursor_position = len(buffer.text)
