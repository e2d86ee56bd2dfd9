"""What stands before every request: names of hosts, pages of others, the key, the size of bodies.

A server on one's own machine can be reached by every page that one's browser shows. So a page of another origin is
refused, and a name that is not this machine's own, behind which such a page may hide (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ServeError

if TYPE_CHECKING:
    from .service import Service

OPEN = {"/", "/health", "/v1/health", "/favicon.ico"}  # without a key; what is under /page/ too


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine alone."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Keys:
    """The keys a client may show. Comparing them takes the same time whatever it shows."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def fit(self, shown: str) -> bool:
        """Whether this, of a header, is one of them."""
        digest = _digest(shown.encode("latin-1"))  # as headers are read
        found = [hmac.compare_digest(digest, known) for known in self._digests]  # all of them
        return any(found)


class Guard:
    """An ASGI application before another.

    Args:
        app: the other.
        service: whose limits hold, and who counts.
        keys: which clients must show one of; none: no key is asked for.
        loopback: whether the server listens on this machine alone, and so under its own names alone.
        names: others that it goes by, behind a proxy.
    """

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        keys: Keys,
        *,
        loopback: bool,
        names: Iterable[str] = (),
    ) -> None:
        self._app = app
        self._service = service
        self._keys = keys
        self._loopback = loopback
        self._names = {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        statuses = self._service.totals.statuses

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses[message["status"]] += 1
            await send(message)

        try:
            headers = Headers(scope=scope)
            self._check(scope["path"], headers)
            within = self._limited(receive, headers)
        except ServeError as error:
            refusal = JSONResponse(error.body(), error.status, error.headers())
            await refusal(scope, receive, counted)
            return
        await self._app(scope, within, counted)

    def _check(self, path: str, headers: Headers) -> None:
        host = headers.get("host", "").lower()
        if self._loopback and not (is_loopback(_name(host)) or _name(host) in self._names):
            text = f"the host {host!r} is not this server's; ask for localhost, or allow it (--allow-host)"
            raise ServeError(403, text, code="host_not_allowed")
        origin = headers.get("origin")
        if origin is not None and not self._own(origin.lower(), host):
            text = f"pages of {origin!r} may not use this server"
            raise ServeError(403, text, code="origin_not_allowed")
        if not self._keys or path in OPEN or path.startswith("/page/"):
            return
        if not self._keys.fit(_shown(headers)):
            text = "no valid API key; send the header 'Authorization: Bearer KEY'"
            raise ServeError(401, text, code="invalid_api_key")

    def _own(self, origin: str, host: str) -> bool:
        try:
            place = urlsplit(origin).netloc
        except ValueError:
            return False
        return bool(place) and (place == host or _name(place) in self._names)

    def _limited(self, receive: Receive, headers: Headers) -> Receive:
        most = self._service.limits.body
        text = f"the request's body is larger than {most} bytes (--max-body)"
        said = headers.get("content-length", "0")
        if said.isdecimal() and int(said[:20]) > most:
            raise ServeError(413, text, code="too_large")
        got = 0

        async def within() -> Message:
            nonlocal got
            message = await receive()
            if message["type"] == "http.request":
                got += len(message.get("body", b""))
                if got > most:
                    raise HTTPException(413, text)
            return message

        return within


def _name(host: str) -> str:
    """A host without its port."""
    if host.startswith("["):
        return host.partition("]")[0][1:]
    return host.rpartition(":")[0] or host if host.count(":") == 1 else host


def _shown(headers: Mapping[str, str]) -> str:
    kind, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else headers.get("x-api-key", "")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
