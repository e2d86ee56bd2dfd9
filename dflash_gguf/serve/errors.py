"""What a server says when something cannot be done, in OpenAI's form.

Kinds of exceptions become statuses and codes here, never the words of their messages.
"""

from __future__ import annotations

from typing import Any

from ..errors import ContextError, DflashError, ResourceError, UsageError

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
            "message": str(self),
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


def of(error: BaseException) -> ServeError:
    """Return what to say of an exception that an engine or a request's settings raised."""
    if isinstance(error, ServeError):
        return error
    if isinstance(error, ContextError):
        return ServeError(400, str(error), code="context_length_exceeded", param="messages")
    if isinstance(error, UsageError):
        return ServeError(400, str(error), code="invalid_value")
    if isinstance(error, ResourceError):
        return ServeError(503, str(error), code="out_of_resources", retry_after=1)
    if isinstance(error, DflashError):
        return ServeError(500, str(error), code="engine_error")
    # its words may hold anything: they are for the log
    return ServeError(500, "the server failed; its log says why", code="internal_error")
