"""Answers on a terminal: one, or a conversation."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import ResourceError
from .terminal import say, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from .answer import Answer
    from .engine import Engine, Prompt


@dataclass(frozen=True, slots=True)
class Turns:
    """How each turn is answered; `template` goes to the chat template."""

    max_tokens: int | None = None
    block: int | None = None
    template: dict[str, Any] = field(default_factory=dict)
    quiet: bool = False


def answer_once(engine: Engine, prompt: Prompt, turns: Turns) -> Answer:
    """Stream one answer to stdout and its statistics line to stderr.

    Ctrl-C ends it: what was said stays, its finish_reason is "cancelled".
    """
    if isinstance(prompt, str) and not engine.has_chat_template and not turns.quiet:
        say("warning: the target has no chat template; the prompt is taken as plain text")
    answer = engine.start(prompt, max_tokens=turns.max_tokens, block=turns.block, **turns.template)
    warned = len(engine.warnings)
    try:
        while answer.finish_reason is None:
            for _, chunk in engine.step():
                write(chunk.text)
    except KeyboardInterrupt:
        engine.cancel(answer)
    write("\n")
    for warning in engine.warnings[warned:]:
        say(f"warning: {warning}")
    if answer.stats is not None and not turns.quiet:
        say(answer.stats.line())
    return answer


def chat(engine: Engine, turns: Turns) -> None:
    """Read messages until end of input or /exit; a conversation is kept.

    Ctrl-C ends a turn and keeps what was said. Off a terminal every line of stdin is a message.
    """
    read = _reader()
    messages: list[dict[str, str]] = []
    while (text := read()) is not None:
        if not text.strip():
            continue
        if text.strip() in {"/exit", "/quit", "/bye"}:
            return
        messages.append({"role": "user", "content": text.rstrip("\n")})
        prompt: Prompt = messages if engine.has_chat_template else text
        try:
            answer = answer_once(engine, prompt, turns)
        except ResourceError as error:
            messages.pop()
            say(f"{error}; /exit leaves")
            continue
        messages.append({"role": "assistant", "content": answer.text})


def _reader() -> Callable[[], str | None]:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        lines = iter(sys.stdin)
        return lambda: next(lines, None)
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
