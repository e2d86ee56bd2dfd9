"""The text of answers: JSON, and JSON in server-sent events. A stream's are written in its hot path."""

from __future__ import annotations

import json
from typing import Any

# made once: json.dumps makes one for every call that is not its default
dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"  # a comment: clients skip it, proxies see that the connection lives


def event(found: Any) -> bytes:
    """Return an object as an event."""
    return f"data: {dumps(found)}\n\n".encode()


class Lines:
    """Writes the events of one stream; what is the same in all of them is written once.

    Args:
        envelope: id, object, created and model.
        usage: whether the stream ends with figures; then OpenAI's pieces say that they have none.
    """

    def __init__(self, envelope: dict[str, Any], *, usage: bool) -> None:
        self._head = f'data: {dumps(envelope)[:-1]},"choices":'
        self._tail = ',"usage":null' if usage else ""

    def piece(self, choice: dict[str, Any], more: dict[str, Any] | None = None) -> bytes:
        """Return a piece of a choice; `more` stands beside the choices."""
        rest = f",{dumps(more)[1:]}" if more else "}"
        return f"{self._head}[{dumps(choice)}]{self._tail}{rest}\n\n".encode()

    def last(self, more: dict[str, Any]) -> bytes:
        """Return the piece without choices that ends a stream with figures."""
        return f"{self._head}[],{dumps(more)[1:]}\n\n".encode()
