"""Turns, one after the other, from the first message to the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import DflashError
from ..terminal import say
from .answering import Answer, answer
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
    engine: Engine, prompt: Prompt, params: Params, screen: Screen | None, *, quiet: bool = False
) -> Answer:
    """Have a prompt answered, drawn while it comes, and say below what is to be said of it.

    Ctrl-C and errors as of `answer`. quiet: no line of figures, no notes.
    """
    came = answer(engine, prompt, params, screen)
    sequence = came.sequence
    if quiet or sequence.stats is None:
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

    before: turns as they were before a command took some back; None: as they are. Errors as of `answer`, and
    of `Chat.keep`, after which the turn is there nevertheless.
    """
    before = list(state.conversation.turns) if before is None else before
    try:
        asked = state.ask(question)
        prompt = state.prompt()
        came = answer_once(state.engine, prompt, state.params, state.screen, quiet=quiet)
    except DflashError:
        state.conversation.turns = before
        raise
    asked.answer, asked.reasoning = came.said.content, came.said.reasoning
    asked.finish_reason = came.sequence.finish_reason or "cancelled"
    if came.sequence.stats is not None:
        state.stats.append(came.sequence.stats)
    state.keep()
    return came


def chat(state: Chat, read: Reader, *, commands: bool, quiet: bool = False) -> bool:
    """Answer messages until there is no other, or /exit; True if a person left by Ctrl-C.

    commands: a person is there: lines that begin with a slash are commands, and an error is shown and the chat
    goes on as if the message had not been sent. Else every line but /exit is a message, and an error ends the
    chat.
    """
    while True:
        try:
            text = read()
        except Left:
            return True
        if text is None or text.strip() in _LEAVE:
            return False
        if not text.strip() and not state.attached:
            continue
        try:
            _take(state, text, commands=commands, quiet=quiet)
        except Exit:
            return False
        except DflashError as error:
            if not commands:
                raise
            say(str(error) if text.startswith("/") else f"{error}; /exit leaves")


def _take(state: Chat, text: str, *, commands: bool, quiet: bool) -> None:
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
