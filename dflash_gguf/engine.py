"""The engine: a loaded pair that answers prompts, one round after the other.

`load` checks and opens a pair; an Engine's `generate` and `stream` serve one request, `start`, `step` and
`cancel` many at a time. What happens in a round is in cpp_ext/session.cpp.
"""

from __future__ import annotations

import os
import threading
from collections import abc, deque
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

from . import engine_prefixes, openai_shape
from ._native import core
from .admission import admit, check
from .errors import DflashError, UsageError
from .notices import Notices
from .params import Keywords, Params, combined
from .parts import Parts
from .prompt import Prompt, ReadPrompt
from .sampling import Sampling
from .sequence import Chunk, Sequence, TokenLogprobs, Unread
from .signals import Work
from .stats import Stats, finish_reason
from .suggested import Suggested, read_suggested
from .template import Message

if TYPE_CHECKING:
    from pathlib import Path

    from . import _core
    from .plan import MemoryPlan


class Engine:
    """A target with or without a drafter, loaded and ready.

    Belongs to the thread that made it; a Worker carries one for other threads. Use as a context manager or
    `close` it; closing twice is harmless.

    Attributes:
        warnings: what went wrong without stopping an answer, oldest first.
        plan: what was planned to be taken in memory, once `load` has made the engine.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts: Parts | None = parts
        self._owner = os.getpid(), threading.get_ident()
        self._at_work = Work()
        self._ends = frozenset(parts.model.end_tokens)
        self._sequences: dict[int, Sequence] = {}
        self._left: deque[Sequence] = deque()
        self._notices = Notices()
        self.warnings = self._notices.texts
        self.plan: MemoryPlan | None = None

    @property
    def n_ctx(self) -> int:
        """Positions of one sequence: prompt and answer together."""
        return self._open().session.n_ctx

    @property
    def block(self) -> int | str:
        """Block used when none is asked for: a number of rows, or "auto": what is fastest, round by round."""
        return self._open().block

    @property
    def name(self) -> str:
        """The target's name, as its file tells it."""
        model = self._open().model
        return model.meta("general.name") or model.arch

    @property
    def files(self) -> tuple[Path, ...]:
        """The target's GGUF and, if there is one, the drafter's, as they were loaded; none if made without files."""
        origin = self._open().origin
        if origin is None:
            return ()
        return tuple(file.path for file in (origin.target, origin.draft) if file is not None)

    @property
    def suggested(self) -> Suggested:
        """Sampling that the target's file suggests; nothing of it is used unless it is asked for."""
        return read_suggested(self._open().model.meta)

    def suggested_sampling(self, **fields: Any) -> Sampling:
        """Return the sampling that the target's file suggests, with these fields of Sampling changed.

        What the file does not say is as in Sampling(): a file that says nothing suggests greedy decoding. Raises
        UsageError as Sampling does.
        """
        return Sampling(**{**self.suggested.values, **fields})

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be rendered; without, prompts are plain text."""
        return self.chat_template is not None

    @property
    def chat_template(self) -> str | None:
        """The source of the target's chat template; None if its file has none."""
        template = self._open().prompter.template
        return template.source if template else None

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._parts is None

    @property
    def has_draft(self) -> bool:
        """Whether there is a drafter."""
        return self._open().drafter is not None

    @property
    def busy(self) -> bool:
        """Whether any answer is unfinished."""
        return bool(self._sequences)

    @property
    def free(self) -> int:
        """Answers that can be started now, next to those in progress."""
        return self._open().sequences - len(self._sequences)

    def encode(
        self, prompt: Prompt, *, raw: bool = False, template: Mapping[str, Any] | None = None
    ) -> list[int]:
        """Return the token ids of a prompt.

        Args:
            prompt: text, taken as one user message unless `raw`; messages with role and content; or ids.
            raw: take text as it is, special tokens included, without the chat template.
            template: arguments for the chat template, such as {"enable_thinking": False}.

        Raises UsageError if it is none of these or the template refuses the messages.
        """
        return list(self.read(prompt, raw=raw, template=template))

    def read(
        self, prompt: Prompt, *, raw: bool = False, template: Mapping[str, Any] | None = None
    ) -> ReadPrompt:
        """Return a prompt as it is read, to be given in its place. Arguments and errors as of `encode`."""
        return self._open().prompter.read(prompt, raw=raw, template=template)

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Return what a token spells, which may be a part of a character; of markup nothing, unless `special`.

        Raises UsageError for a token outside the vocabulary.
        """
        model = self._open().model
        if not 0 <= token < model.n_vocab:
            text = f"token {token} is outside the vocabulary of {model.n_vocab}"
            raise UsageError(text)
        return model.piece(token, special)

    def render(
        self, messages: abc.Sequence[Message], template: Mapping[str, Any] | None = None
    ) -> str:
        """Return the text that the target's chat template makes of a conversation.

        Raises UsageError if there is no template or it refuses the messages.
        """
        return self._open().prompter.render(messages, template)

    def start(
        self, prompt: Prompt, params: Params | None = None, **keywords: Unpack[Keywords]
    ) -> Sequence:
        """Queue a request; `step` makes it grow.

        Args:
            prompt: as for `encode`.
            params: what is asked for; None: the defaults.
            keywords: fields of Params, which go before those of `params`: `start(prompt, max_tokens=64)`.

        Raises UsageError, naming the numbers, if the request does not fit the engine or makes no sense in
        any, ResourceError if the prompt does not fit the context or no further answer can be taken.
        """
        parts = self._open()
        self._cancel_left()
        chosen = combined(params, keywords)
        sequence: Sequence | None = None
        try:
            with self._at_work:
                sequence = admit(parts, prompt, chosen, len(self._sequences))
                self._sequences[sequence.id] = sequence
            return sequence
        except KeyboardInterrupt:
            if sequence is not None:  # nobody will get it
                self.cancel(sequence)
            raise

    def check(self, params: Params) -> None:
        """Raise UsageError, naming the setting, if this engine could take no request with these settings."""
        check(self._open(), params)

    def so_far(self, sequence: Sequence) -> Stats:
        """Return an answer's counts and times up to now, or in the end."""
        if sequence.stats is not None:
            return sequence.stats
        parts = self._open()
        self._expect_own(sequence)
        counters = parts.session.counters(sequence.id)
        return Stats.read(counters, sequence.block, parts.simulated, parts.session.draft_failure)

    def step(self) -> list[tuple[Sequence, Chunk]]:
        """Do one prefill chunk and one round for all answers in progress; return what is new of each.

        Raises DflashError if the target fails; all answers are then cancelled.
        """
        parts = self._open()
        self._cancel_left()
        if not self._sequences:
            return []
        with self._at_work:
            try:
                outputs = parts.session.step()
            except (RuntimeError, ValueError, IndexError, MemoryError) as error:
                for sequence in list(self._sequences.values()):
                    self.cancel(sequence)
                raise DflashError(str(error)) from error
            self._open()  # another thread may have closed it meanwhile
            self._notices.of_session(parts.session)
            return [self._collect(output) for output in outputs if output.id in self._sequences]

    def cancel(self, sequence: Sequence) -> Chunk:
        """End an answer now; what it has so far stays. Harmless on one that has ended."""
        parts = self._open()
        if sequence.finish_reason is not None:
            return Chunk("", (), sequence.finish_reason)
        self._expect_own(sequence)
        with self._at_work:
            chunk = sequence.add([], parts.session.held(sequence.id), "cancelled")
            self._retire(sequence)
            return chunk

    def stream(
        self, prompt: Prompt, params: Params | None = None, **keywords: Unpack[Keywords]
    ) -> Iterator[Chunk]:
        """Yield an answer as it grows, one chunk a round. Arguments as of `start`.

        Leaving the iteration early cancels the answer. Raises UsageError if the request's own settings leave
        no token to write.
        """
        yield from self.follow(self.start(prompt, params, **keywords))

    def follow(self, sequence: Sequence) -> Generator[Chunk, None, None]:
        """Yield all of an answer that has been started, as `stream` does."""
        unread = Unread(sequence)
        try:
            while True:
                # another answer's loop may have taken the steps in which this one grew
                if (chunk := unread.take()) is None:
                    self._expect_own(sequence)
                    self.step()
                    continue
                yield chunk
                _raise_error(sequence)
                if chunk.finish_reason is not None:
                    return
        finally:
            self._leave(sequence)

    def generate(
        self, prompt: Prompt, params: Params | None = None, **keywords: Unpack[Keywords]
    ) -> Sequence:
        """Return a whole answer. Arguments as of `start`, errors as of `stream`."""
        sequence: Sequence | None = None
        try:
            sequence = self.start(prompt, params, **keywords)
            while sequence.finish_reason is None:
                self.step()
        finally:
            if sequence is not None:
                self._leave(sequence)
        _raise_error(sequence)
        return sequence

    create_chat_completion = openai_shape.create_chat_completion
    create_completion = openai_shape.create_completion

    save_prefix = engine_prefixes.save_prefix
    restore_prefix = engine_prefixes.restore_prefix
    forget_prefixes = engine_prefixes.forget_prefixes

    @property
    def kept_bytes(self) -> int:
        """Host memory that states of kept texts take now, in bytes; at most `Options.prefix_memory`."""
        return self._open().session.kept_bytes

    def times(self) -> dict[str, float]:
        """Seconds by stage since the engine was loaded.

        total, prefill, draft, verify, inject, rollback, and host: what is left of the total.
        """
        times = self._open().session.times
        stages = {
            name: getattr(times, name) * 1e-9
            for name in ("prefill", "draft", "verify", "inject", "rollback")
        }
        total = times.total * 1e-9
        return {"total": total, **stages, "host": total - sum(stages.values())}

    def close(self) -> None:
        """Free the models and contexts; answers in progress end as cancelled. From any thread."""
        parts = self._parts
        if parts is None:
            return
        try:
            if self._is_owner():  # another thread may find the session at work
                with self._at_work:
                    for sequence in list(self._sequences.values()):
                        self.cancel(sequence)
                    if parts.notebook is not None:
                        parts.notebook.note(parts.session.outcomes)
        finally:
            self._parts = None
            for sequence in self._sequences.values():
                sequence.add([], b"", "cancelled")
            self._sequences.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> Parts:
        if self._parts is None:
            text = "the engine is closed; load it again"
            raise UsageError(text)
        if not self._is_owner():
            if os.getpid() != self._owner[0]:
                text = "an engine stays in the process that loaded it; load one in this process"
                raise UsageError(text)
            text = "an engine belongs to the thread that loaded it; use a Worker to share it"
            raise UsageError(text)
        return self._parts

    def _is_owner(self) -> bool:
        return self._owner == (os.getpid(), threading.get_ident())

    def _expect_own(self, sequence: Sequence) -> None:
        if self._sequences.get(sequence.id) is not sequence:
            text = "the answer belongs to another engine; use that one"
            raise UsageError(text)

    def _leave(self, sequence: Sequence) -> None:
        if self._parts is None or self._sequences.get(sequence.id) is not sequence:
            return
        # a generator that another thread forgot, or that was collected as garbage at any moment
        self._left.append(sequence)
        if self._is_owner() and not self._at_work.inside:
            self._cancel_left()

    def _cancel_left(self) -> None:
        while self._left:
            self.cancel(self._left.popleft())

    def _collect(self, output: _core.Output) -> tuple[Sequence, Chunk]:
        sequence = self._sequences[output.id]
        logprobs = tuple(
            TokenLogprobs(token, own, tuple(top))
            for token, (own, top) in zip(output.tokens, output.logprobs, strict=False)
        )
        sequence.error = output.problem or None
        finish = finish_reason(core(), output.finish) if output.ended else None
        chunk = sequence.add(output.tokens, output.text, finish, logprobs)
        if sequence.finish_reason is not None:
            self._retire(sequence)
        return sequence, chunk

    def _retire(self, sequence: Sequence) -> None:
        parts = self._open()
        session = parts.session
        sequence.stats = self.so_far(sequence)
        if not parts.simulated:
            self._notices.of_answer(session.counters(sequence.id))
        session.remove(sequence.id)
        del self._sequences[sequence.id]
        shown = [token for token in sequence.tokens if token not in self._ends]
        data = b"".join(parts.model.piece(token) for token in shown)
        parts.prompter.said.remember(sequence.text, shown, data)


def _raise_error(sequence: Sequence) -> None:
    if sequence.error is not None:
        raise UsageError(sequence.error)
