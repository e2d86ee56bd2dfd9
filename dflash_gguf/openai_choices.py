"""The dictionaries of an answer in OpenAI's shapes; openai_shape.py says when which is made."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections import abc
from typing import TYPE_CHECKING, Any, TypeAlias

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
        """One of a stream; content as of `text`."""
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
            "finish_reason": answer.finish_reason,
        }
        return self.envelope(self.kind) | {"choices": [choice]} | figures(answer)

    def pieces(self, chunk: Chunk) -> list[Shaped]:
        """A stream's dictionaries of what is new; each call's behind the last one's."""
        made = [] if self._begun else self.beginning()
        self._begun = True
        if chunk.text or chunk.logprobs:
            made.append(self.piece(self.text(chunk.text), chunk.logprobs))
        if chunk.finish_reason is not None:
            made.append(self.piece(self.text(None), (), chunk.finish_reason))
        return made

    def usage(self, answer: Sequence) -> Shaped:
        """The last of a stream that asked for figures."""
        return self.envelope(self.streamed) | {"choices": []} | figures(answer)

    def beginning(self) -> list[Shaped]:
        """Pieces before the first with text."""
        return []

    @abstractmethod
    def text(self, text: str | None) -> Shaped:
        """What a piece says; None at its end."""

    @abstractmethod
    def final(self, text: str) -> Shaped:
        """What a whole answer says."""

    @abstractmethod
    def logprobs(self, tokens: abc.Sequence[TokenLogprobs]) -> Shaped:
        """Log-probabilities of consecutive tokens, each call's behind the last one's."""


class ChatShape(Shape):
    """Of `chat.completion`."""

    kind, streamed, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    def beginning(self) -> list[Shaped]:
        """The piece that names the role."""
        return [self.piece({"delta": {"role": "assistant"}}, ())]

    def text(self, text: str | None) -> Shaped:
        """What a piece says; None at its end."""
        return {"delta": {} if text is None else {"content": text}}

    def final(self, text: str) -> Shaped:
        """What a whole answer says."""
        return {"message": {"role": "assistant", "content": text}}

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

    def text(self, text: str | None) -> Shaped:
        """What a piece says; None at its end."""
        return {"text": text or ""}

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
