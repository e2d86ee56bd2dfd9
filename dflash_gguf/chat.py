"""Answers on a terminal: one, or a conversation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .errors import ResourceError, UsageError
from .terminal import interrupts, say, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from .engine import Engine
    from .params import Params
    from .prompt import Prompt
    from .sequence import Sequence


def answer_once(engine: Engine, prompt: Prompt, params: Params, *, quiet: bool = False) -> Sequence:
    """Stream one answer to stdout and its statistics line to stderr.

    Ctrl-C ends it as `Sequence.interrupt` does: what was said stays, its finish_reason is "cancelled". A second
    one raises KeyboardInterrupt.
    """
    answer = engine.start(prompt, params)
    warned = len(engine.warnings)
    try:
        with interrupts(answer.interrupt) as pressed:
            while answer.finish_reason is None:
                for _, chunk in engine.step():
                    write(chunk.text)
                if pressed():
                    engine.cancel(answer)
    finally:
        write("\n")
    if answer.error is not None:
        raise UsageError(answer.error)
    for warning in engine.warnings[warned:]:
        say(f"warning: {warning}")
    if not quiet:
        _summarise(engine, answer, params)
    return answer


def chat(engine: Engine, params: Params, *, quiet: bool = False) -> None:
    """Read messages until end of input or /exit; a conversation is kept.

    Ctrl-C ends a turn and keeps what was said. Off a terminal every line of stdin is a message, and an error
    ends the chat; on one, the message that caused it is dropped.
    """
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    read = _prompted() if on_terminal else _piped()
    warn_without_template(engine, quiet=quiet)
    messages: list[dict[str, str]] = []
    while (text := read()) is not None:
        if not text.strip():
            continue
        if text.strip() in {"/exit", "/quit", "/bye"}:
            return
        messages.append({"role": "user", "content": text})
        prompt: Prompt = messages if engine.has_chat_template else text
        try:
            answer = answer_once(engine, prompt, params, quiet=quiet)
        except (ResourceError, UsageError) as error:
            if not on_terminal:
                raise
            messages.pop()
            say(f"{error}; /exit leaves")
            continue
        messages.append({"role": "assistant", "content": answer.text})


def warn_without_template(engine: Engine, *, quiet: bool) -> None:
    """Say that prompts will be plain text, if they will."""
    if not engine.has_chat_template and not quiet:
        say("warning: the target has no chat template; the prompt is taken as plain text")


def _summarise(engine: Engine, answer: Sequence, params: Params) -> None:
    if len(answer.prompt) + len(answer.tokens) >= engine.n_ctx:
        say(f"note: the context of {engine.n_ctx} tokens is full; a larger one: -c")
    if answer.stats is not None:
        chosen = params.sampling
        seed = "" if chosen is None or chosen.greedy else f" · seed {chosen.seed}"
        say(answer.stats.line() + seed)


def _piped() -> Callable[[], str | None]:
    lines = iter(sys.stdin)

    def read() -> str | None:
        line = next(lines, None)
        return None if line is None else line.rstrip("\r\n")

    return read


def _prompted() -> Callable[[], str | None]:
    from prompt_toolkit import PromptSession

    session: PromptSession[str] = PromptSession()

    def read() -> str | None:
        while True:
            try:
                return session.prompt(">>> ", placeholder="Send a message (/exit or Ctrl-D leaves)")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return None

    return read
