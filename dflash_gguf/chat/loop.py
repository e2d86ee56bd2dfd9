"""Turns, one after the other, from the first message to the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import DflashError
from ..signals import Whole
from ..terminal import Again, say
from .answering import Answer, Stop, answer
from .commands import COMMANDS, Exit, execute
from .reader import Left

if TYPE_CHECKING:
    from ..engine import Engine
    from ..params import Params
    from ..prompt import Prompt
    from .conversation import Turn
    from .reader import Reader
    from .screen import Screen
    from .state import Chat

_LEAVE = {f"/{name}" for name in COMMANDS["exit"].names}


def answer_once(
    engine: Engine,
    prompt: Prompt,
    params: Params,
    screen: Screen | None,
    stop: Stop,
    *,
    quiet: bool = False,
) -> Answer:
    """Have a prompt answered, drawn while it comes, and say below what is to be said of it.

    `stop` and errors as of `answer`. quiet: no line of figures, no notes.
    """
    came = answer(engine, prompt, params, screen, stop)
    sequence = came.sequence
    if quiet or sequence.stats is None or came.leaving is not None:
        return came
    if len(sequence.prompt) + len(sequence.tokens) >= engine.n_ctx:
        say(f"note: the context of {engine.n_ctx} tokens is full; a larger one: -c")
    elif sequence.finish_reason == "length" and came.said.reasoning and not came.said.content:
        say("note: the limit (-n) came before the answer: all of this was thinking")
    chosen = params.sampling
    seed = "" if chosen is None or chosen.greedy else f" · seed {chosen.seed}"
    say(sequence.stats.line() + seed)
    return came


def turn(
    state: Chat, question: str, *, quiet: bool = False, before: list[Turn] | None = None
) -> Answer:
    """Ask a question, answer it, and keep both; without an answer nothing is kept.

    Ctrl-C at any moment of it ends the answer and keeps what was said; pressed again, it raises Again.
    before: turns as they were before a command took some back; None: as they are. Errors as of `answer`, and
    of `Chat.keep`, after which the turn is there nevertheless.
    """
    before = list(state.conversation.turns) if before is None else before
    attached = state.attached
    with Stop() as stop:
        try:
            asked = state.ask(question)
            prompt = state.prompt()
            came = answer_once(state.engine, prompt, state.params, state.screen, stop, quiet=quiet)
        except (DflashError, Again):
            state.conversation.turns, state.attached = before, attached
            raise
        with Whole():
            asked.answer, asked.reasoning = came.said.content, came.said.reasoning
            asked.finish_reason = came.sequence.finish_reason or "cancelled"
            if came.sequence.stats is not None:
                state.stats.append(came.sequence.stats)
            _keep(state, came)
    return came


def _keep(state: Chat, came: Answer) -> None:
    """Write the conversation to its file; raise what ends the program nevertheless."""
    try:
        state.keep()
    except DflashError as error:
        if came.leaving is None:
            raise
        say(str(error))
    if came.leaving is not None:
        raise came.leaving


def chat(state: Chat, read: Reader, *, commands: bool, quiet: bool = False) -> bool:
    """Answer messages until there is no other, or /exit; True if a person left by Ctrl-C.

    commands: a person is there: lines that begin with a slash are commands, and an error is shown and the chat
    goes on as if the message had not been sent, as it does after Ctrl-C between two answers. Else every line but
    /exit is a message, and an error ends the chat.
    """
    while True:
        try:
            text = read()
            if text is None:
                return False
            if text.strip() or state.attached:
                _take(state, text, commands=commands, quiet=quiet)
        except Exit:
            return False
        except (Left, Again):
            return True
        except KeyboardInterrupt:
            if not commands:
                raise
        except DflashError as error:
            if not commands:
                raise
            say(str(error) if (text or "").startswith("/") else f"{error}; /exit leaves")


def _take(state: Chat, text: str, *, commands: bool, quiet: bool) -> None:
    if not commands and text.strip() in _LEAVE:
        raise Exit
    before = list(state.conversation.turns)
    question: str | None = text
    if commands and text.startswith("/"):
        question = execute(state, text.rstrip())
    if question is not None:
        turn(state, question, quiet=quiet, before=before)


def warn_without_template(engine: Engine, *, quiet: bool) -> None:
    """Say that prompts will be plain text, if they will."""
    if not engine.has_chat_template and not quiet:
        say("warning: the target has no chat template; the prompt is taken as plain text")
