"""Answers on a terminal: one, or a conversation."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import ResourceError, UsageError
from .terminal import interrupts, say, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from .engine import Engine, Prompt
    from .sampling import Sampling
    from .sequence import Sequence


@dataclass(frozen=True, slots=True)
class Turns:
    """How each turn is answered; `template` goes to the chat template."""

    max_tokens: int | None = None
    template: dict[str, Any] = field(default_factory=dict)
    sampling: Sampling | None = None
    stop: tuple[str, ...] = ()
    grammar: str | None = None
    json_schema: str | None = None
    quiet: bool = False


def answer_once(engine: Engine, prompt: Prompt, turns: Turns) -> Sequence:
    """Stream one answer to stdout and its statistics line to stderr.

    Ctrl-C ends it after the round in progress: what was said stays, its finish_reason is "cancelled". A
    second one raises KeyboardInterrupt.
    """
    answer = engine.start(
        prompt,
        max_tokens=turns.max_tokens,
        sampling=turns.sampling,
        stop=turns.stop,
        grammar=turns.grammar,
        json_schema=turns.json_schema,
        template=turns.template,
    )
    warned = len(engine.warnings)
    try:
        with interrupts() as pressed:
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
    if not turns.quiet:
        _summarise(engine, answer, turns)
    return answer


def chat(engine: Engine, turns: Turns) -> None:
    """Read messages until end of input or /exit; a conversation is kept.

    Ctrl-C ends a turn and keeps what was said. Off a terminal every line of stdin is a message, and an error
    ends the chat; on one, the message that caused it is dropped.
    """
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    read = _prompted() if on_terminal else _piped()
    warn_without_template(engine, turns)
    messages: list[dict[str, str]] = []
    while (text := read()) is not None:
        if not text.strip():
            continue
        if text.strip() in {"/exit", "/quit", "/bye"}:
            return
        messages.append({"role": "user", "content": text})
        prompt: Prompt = messages if engine.has_chat_template else text
        try:
            answer = answer_once(engine, prompt, turns)
        except (ResourceError, UsageError) as error:
            if not on_terminal:
                raise
            messages.pop()
            say(f"{error}; /exit leaves")
            continue
        messages.append({"role": "assistant", "content": answer.text})


def warn_without_template(engine: Engine, turns: Turns) -> None:
    """Say that prompts will be plain text, if they will."""
    if not engine.has_chat_template and not turns.quiet:
        say("warning: the target has no chat template; the prompt is taken as plain text")


def _summarise(engine: Engine, answer: Sequence, turns: Turns) -> None:
    if len(answer.prompt) + len(answer.tokens) >= engine.n_ctx:
        say(f"note: the context of {engine.n_ctx} tokens is full; a larger one: -c")
    if answer.stats is not None:
        seed = (
            ""
            if turns.sampling is None or turns.sampling.greedy
            else f" · seed {turns.sampling.seed}"
        )
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
