"""Whether an engine can take a request, and its way into the session.

Nothing invalid may come through here: llama.cpp's asserts end the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import ContextError, DflashError, ResourceError, UsageError
from .gbnf import grammar_text
from .params import AUTO
from .sampling import Sampling
from .sequence import Sequence

if TYPE_CHECKING:
    from .params import Params
    from .parts import Parts
    from .prompt import Prompt


def admit(parts: Parts, prompt: Prompt, params: Params, in_progress: int) -> Sequence:
    """Queue a request in the session and return it, with the session's number for it as its id.

    Args:
        parts: of the engine.
        prompt: text, messages or ids.
        params: what is asked for.
        in_progress: answers that take room in the contexts now.

    Raises UsageError, naming the numbers, if the request does not fit the engine, ResourceError if the
    prompt does not fit the context or no further answer can be taken, DflashError if the target is lost.
    """
    try:
        return _admitted(parts, prompt, params, in_progress)
    except RuntimeError as error:  # there may have been no memory for a context of the target
        raise DflashError(str(error)) from error


def check(parts: Parts, params: Params) -> None:
    """Raise UsageError, naming the setting, if the engine could take no request with these settings."""
    _width(parts, params.block)
    _alternatives(params.logprobs, parts.model.n_vocab)
    grammar_text(parts.model, params.gbnf)


def _admitted(parts: Parts, prompt: Prompt, params: Params, in_progress: int) -> Sequence:
    session = parts.session
    width = _width(parts, params.block)
    read = parts.prompter.read(prompt, raw=params.raw, template=params.template)
    tokens, border = list(read), read.border
    _check_room(parts, tokens, in_progress)
    strings = list(params.stop or ())
    ends = set() if params.ignore_end else set(parts.model.end_tokens)
    try:
        number = session.add(
            tokens,
            max_tokens=min(_limit(params, session.n_ctx), session.n_ctx),
            block=width if isinstance(width, int) else 0,  # 0: chosen every round
            stops=parts.prompter.control_tokens(strings) | ends,
            stop_strings=strings,
            sampling=(params.sampling or Sampling()).native(),
            logprobs=_alternatives(params.logprobs, parts.model.n_vocab),
            border=border,
            grammar=grammar_text(parts.model, params.gbnf),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    return Sequence(
        prompt=tuple(tokens),
        block=width if parts.drafter else 1,
        id=number,
        _interrupt=session.interrupt(number),
    )


def _limit(params: Params, n_ctx: int) -> int:
    return n_ctx if params.max_tokens is None else int(params.max_tokens)


def _width(parts: Parts, asked: int | str | None) -> int | str:
    block = parts.block if asked is None else asked
    if block == AUTO:
        if parts.drafter and not parts.notebook:
            text = (
                'block is "auto", but the engine was loaded for a fixed block; load it with '
                'block="auto"'
            )
            raise UsageError(text)
        return AUTO if parts.drafter else 1
    width = int(block)
    if width > parts.session.max_block:
        text = f"block {width} is outside 1 to {parts.session.max_block}"
        raise UsageError(text)
    return width


def _check_room(parts: Parts, tokens: list[int], in_progress: int) -> None:
    n_vocab, n_ctx = parts.model.n_vocab, parts.session.n_ctx
    for token in tokens:
        if not 0 <= token < n_vocab:
            text = f"token {token} is outside the vocabulary of {n_vocab}"
            raise UsageError(text)
    if len(tokens) >= n_ctx:
        text = (
            f"the prompt has {len(tokens)} tokens, the context holds {n_ctx} and one must be left "
            "for the answer; raise the context (-c) or shorten the prompt"
        )
        raise ContextError(text)
    if in_progress >= parts.sequences:
        text = (
            f"{in_progress} answers are in progress and no more fit; wait for one to end, or "
            "load with more `sequences`"
        )
        raise ResourceError(text)


def _alternatives(count: int | None, n_vocab: int) -> int:
    if count is None:
        return -1
    if count > n_vocab:
        text = f"logprobs is {count}; expected a number of alternatives from 0 to {n_vocab}"
        raise UsageError(text)
    return int(count)
