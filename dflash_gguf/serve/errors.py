"""What a server says when something cannot be done, in OpenAI's form.

Kinds of exceptions become statuses and codes here, never the words of their messages.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import ContextError, DflashError, ResourceError, UsageError
from ..text import whole_characters

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "unavailable_error",
}


class ServeError(DflashError):
    """An answer that is an error.

    Attributes:
        status: of HTTP.
        code: what a program may ask for; None: nothing special.
        param: the field of the request that is meant; None: no one field.
        retry_after: seconds after which it may be tried again; None: it would be the same.
    """

    def __init__(
        self,
        status: int,
        text: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """Return OpenAI's form of it."""
        error = {
            "message": whole_characters(str(self)),
            "type": _TYPES.get(self.status, "invalid_request_error"),
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def headers(self) -> dict[str, str]:
        """Return the headers that go with it."""
        made = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return made | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


def loading() -> ServeError:
    """Return what is said until the models are loaded: llama-server's words."""
    return ServeError(503, "Loading model", code="loading", retry_after=1)


def stopping() -> ServeError:
    """Return what is said once the server was told to end."""
    return ServeError(503, "the server is stopping; try again later", code="stopping")


def ended() -> ServeError:
    """Return what is said when the engine's thread is no longer there."""
    return ServeError(500, "the engine has ended; start the server again", code="engine_error")


def where(error: BaseException) -> str:
    """Return what happened and where, for the log; not in the error's words, which may quote a prompt."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    text = f": {error}" if isinstance(error, DflashError) else ""
    return f"{type(error).__name__}{place}{text}"


def of(error: BaseException) -> ServeError:
    """Return what to say of an exception that an engine or a request's settings raised."""
    if isinstance(error, ServeError):
        return error
    for kind, made in _KINDS:
        if isinstance(error, kind):
            return made(str(error))
    # its words may hold anything: they are for nobody
    return ServeError(500, "the server failed; its log says where", code="internal_error")


# the first that fits counts
_KINDS: tuple[tuple[type[BaseException], Callable[[str], ServeError]], ...] = (
    (RecursionError, lambda _: ServeError(400, "it is nested too deeply", code="invalid_value")),
    (ContextError, lambda text: ServeError(400, text, code="context_length_exceeded")),
    (UsageError, lambda text: ServeError(400, text, code="invalid_value")),
    (
        ResourceError,
        lambda text: ServeError(503, text, code="out_of_resources", retry_after=1),
    ),
    (DflashError, lambda text: ServeError(500, text, code="engine_error")),
)
