"""The dictionaries of an answer in OpenAI's shapes; openai_shape.py says when which is made."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections import abc
from typing import TYPE_CHECKING, Any, TypeAlias

from .reply import Reply

if TYPE_CHECKING:
    from .engine import Engine
    from .prompt import Prompt
    from .sequence import Chunk, Sequence, TokenLogprobs

Shaped: TypeAlias = dict[str, Any]


class Shape(ABC):
    """Makes the dictionaries of one answer."""

    kind: str
    streamed: str
    prefix: str

    def __init__(self, engine: Engine, model: str | None) -> None:
        self._engine = engine
        self._model = model or engine.name
        self._id = self.prefix + secrets.token_hex(16)
        self._created = int(time.time())
        self._begun = False

    def envelope(self, kind: str) -> Shaped:
        """What every dictionary of the answer begins with."""
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
        }

    def piece(
        self,
        content: Shaped,
        logprobs: abc.Sequence[TokenLogprobs],
        finish_reason: str | None = None,
    ) -> Shaped:
        """One of a stream; content as of `texts`."""
        choice = {
            "index": 0,
            **content,
            "logprobs": self.logprobs(logprobs) if logprobs else None,
            "finish_reason": finish_reason,
        }
        return self.envelope(self.streamed) | {"choices": [choice]}

    def whole(self, answer: Sequence) -> Shaped:
        """All in one."""
        choice = {
            "index": 0,
            **self.final(answer.text),
            "logprobs": self.logprobs(answer.logprobs) if answer.logprobs else None,
            "finish_reason": self.finish_reason(answer.finish_reason),
        }
        return self.envelope(self.kind) | {"choices": [choice]} | figures(answer)

    def pieces(self, chunk: Chunk) -> list[Shaped]:
        """A stream's dictionaries of what is new; each call's behind the last one's."""
        made = [] if self._begun else self.beginning()
        self._begun = True
        last, logprobs = chunk.finish_reason is not None, chunk.logprobs
        for content in self.texts(chunk.text, last=last) or ([self.nothing()] if logprobs else []):
            made.append(self.piece(content, logprobs))
            logprobs = ()  # of all tokens of the chunk, with the first piece of it
        if last:
            made.append(self.piece(self.nothing(), (), self.finish_reason(chunk.finish_reason)))
        return made

    def usage(self, answer: Sequence) -> Shaped:
        """The last of a stream that asked for figures."""
        return self.envelope(self.streamed) | {"choices": []} | figures(answer)

    def beginning(self) -> list[Shaped]:
        """Pieces before the first with text."""
        return []

    def finish_reason(self, reason: str | None) -> str | None:
        """Why the answer ended, in OpenAI's words; asked when all of it has been told."""
        return reason

    @abstractmethod
    def nothing(self) -> Shaped:
        """What a piece without text says."""

    @abstractmethod
    def texts(self, text: str, *, last: bool) -> list[Shaped]:
        """What pieces say of a new text; none if that cannot be told yet."""

    @abstractmethod
    def final(self, text: str) -> Shaped:
        """What a whole answer says."""

    @abstractmethod
    def logprobs(self, tokens: abc.Sequence[TokenLogprobs]) -> Shaped:
        """Log-probabilities of consecutive tokens, each call's behind the last one's."""


class ChatShape(Shape):
    """Of `chat.completion`; `reply` takes the answer apart."""

    kind, streamed, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    def __init__(self, engine: Engine, model: str | None, reply: Reply | None = None) -> None:
        super().__init__(engine, model)
        self._reply = reply or Reply()

    def beginning(self) -> list[Shaped]:
        """The piece that names the role."""
        return [self.piece({"delta": {"role": "assistant"}}, ())]

    def finish_reason(self, reason: str | None) -> str | None:
        """Why the answer ended."""
        return self._reply.finish_reason(reason)

    def nothing(self) -> Shaped:
        """What a piece without text says."""
        return {"delta": {}}

    def texts(self, text: str, *, last: bool) -> list[Shaped]:
        """What pieces say of a new text."""
        return [{"delta": delta} for delta in self._reply.deltas(text, last=last)]

    def final(self, text: str) -> Shaped:
        """What a whole answer says."""
        return {"message": self._reply.message(text)}

    def logprobs(self, tokens: abc.Sequence[TokenLogprobs]) -> Shaped:
        """Log-probabilities of consecutive tokens."""
        content = [
            self._token(each.token, each.logprob)
            | {"top_logprobs": [self._token(token, logprob) for token, logprob in each.top]}
            for each in tokens
        ]
        return {"content": content, "refusal": None}

    def _token(self, token: int, logprob: float) -> Shaped:
        data = self._engine.piece(token, special=True)
        return {"token": data.decode(errors="replace"), "logprob": logprob, "bytes": list(data)}


class TextShape(Shape):
    """Of `text_completion`; its logprobs count characters from the prompt's beginning."""

    kind = streamed = "text_completion"
    prefix = "cmpl-"

    def __init__(self, engine: Engine, model: str | None, prompt: Prompt) -> None:
        super().__init__(engine, model)
        ids = [] if isinstance(prompt, str) else engine.encode(prompt)
        self._offset = (
            len(prompt) if isinstance(prompt, str) else sum(map(len, map(self._name, ids)))
        )

    def nothing(self) -> Shaped:
        """What a piece without text says."""
        return {"text": ""}

    def texts(self, text: str, *, last: bool) -> list[Shaped]:  # noqa: ARG002 (nothing is held back)
        """What pieces say of a new text."""
        return [{"text": text}] if text else []

    def final(self, text: str) -> Shaped:
        """What a whole answer says."""
        return {"text": text}

    def logprobs(self, tokens: abc.Sequence[TokenLogprobs]) -> Shaped:
        """Log-probabilities of consecutive tokens."""
        names = [self._name(each.token) for each in tokens]
        offsets = []
        for name in names:
            offsets.append(self._offset)
            self._offset += len(name)
        return {
            "tokens": names,
            "token_logprobs": [each.logprob for each in tokens],
            "top_logprobs": [
                {self._name(token): logprob for token, logprob in each.top} for each in tokens
            ],
            "text_offset": offsets,
        }

    def _name(self, token: int) -> str:
        return self._engine.piece(token, special=True).decode(errors="replace")


def figures(answer: Sequence) -> Shaped:
    """`usage` and `speculative` of an answer that has ended."""
    stats = answer.stats
    if stats is None:
        return {}
    usage: Shaped = {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.emitted,
        "total_tokens": stats.prompt_tokens + stats.emitted,
        "prompt_tokens_details": {"cached_tokens": stats.reused_tokens},
    }
    return {
        "usage": usage,
        "speculative": {
            "steps": stats.rounds,
            "drafted": stats.drafted,
            "accepted": stats.accepted,
            "accept_length": stats.accept_length,
            "acceptance_rate": stats.acceptance_rate,
            "accepted_per_position": list(stats.accepted_at),
            "draft_failure": stats.draft_failure,
        },
    }
