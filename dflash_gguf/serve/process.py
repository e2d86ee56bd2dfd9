"""The process around a server: its socket, its models, its end.

The first SIGTERM or Ctrl-C lets the answers under way end, at most for `drain` seconds, and takes no others; a second
one ends the process at once.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from ..engine import Engine
from ..errors import DflashError, ResourceError, UsageError
from ..worker import Worker
from .app import make_app
from .guard import Keys
from .requests import Rules
from .service import About, Limits, Service

_LOG = logging.getLogger(__name__)
_SIGNALS = signal.SIGINT, signal.SIGTERM
_GRACE = 2.0  # seconds from the cut of what is under way to the end of its connections
_KEEP_ALIVE = 30  # seconds for which a connection without a request stays open
# of the interpreter: the engine's thread must not wait 5 ms, Python's default, for what events are made of
_SWITCH = 0.0005

Open = Callable[[Callable[[float], bool]], Engine]


@dataclass(frozen=True, slots=True)
class Launch:
    """What a server is started with.

    Attributes:
        open_engine: loads the engine; calls the function it is given with 0..1, and ends when that says False.
        rules, limits: see there.
        keys: of clients; none: no key is asked for.
        names: that the server goes by besides its own, behind a proxy.
        drain: seconds that answers under way have to end once the server is told to.
    """

    open_engine: Open
    rules: Rules
    limits: Limits = field(default_factory=Limits)
    keys: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    drain: float = 30.0


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """Return the address to listen at. Raises UsageError if the host has none."""
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        text = f"--host {host}: {reason}; expected a name or address of this machine"
        raise UsageError(text) from None
    family, *_, address = found[0]
    return family, address


def is_local(address: tuple[Any, ...]) -> bool:
    """Whether only this machine reaches an address."""
    return ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0: any. Raises UsageError or ResourceError if it cannot be had."""
    family, address = resolve(host, port)
    # with its protocol named: asyncio turns Nagle's algorithm off only then, which would hold events back for 40 ms
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(512)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            text = f"port {port} of {host} is in use; give another --port"
            raise ResourceError(text) from None
        if error.errno == errno.EACCES:
            text = f"port {port} may not be listened at; give another --port, 1024 or more"
            raise ResourceError(text) from None
        text = f"--host {host}: {error.strerror}; expected an address of this machine"
        raise UsageError(text) from None
    return made


def url(listening: socket.socket) -> str:
    """Return where a socket is reached."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Process:
    """A server from its socket on. `run` it once.

    Attributes:
        service: its state, once it runs.

    Args:
        launch: what it is started with.
        listening: the socket, which is closed at the end.
        on_ready: called once it answers.
        on_listening: called when it can be told to end, while the models load.
    """

    def __init__(
        self,
        launch: Launch,
        listening: socket.socket,
        on_ready: Callable[[About], None] = lambda _: None,
        on_listening: Callable[[], None] = lambda: None,
    ) -> None:
        self._launch = launch
        self._listening = listening
        self._on_ready, self._on_listening = on_ready, on_listening
        self._stopping = False
        self._told = False  # to end, by a signal or `stop`
        self._loop: asyncio.AbstractEventLoop | None = None
        self.service: Service | None = None
        self._server: _Server | None = None

    async def run(self, *, signals: bool = True) -> None:
        """Serve until told to end. Raises what loading the engine raises.

        Args:
            signals: end by SIGTERM and Ctrl-C; in the main thread.
        """
        self._loop = asyncio.get_running_loop()
        self.service = service = Service(self._launch.rules, self._launch.limits)
        app = make_app(
            service,
            Keys(self._launch.keys),
            loopback=is_local(self._listening.getsockname()),
            names=self._launch.names,
        )
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",  # errors are logged where they are caught
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_keep_alive=_KEEP_ALIVE,
        )
        self._server = server = _Server(config)
        if signals:
            for number in _SIGNALS:
                self._loop.add_signal_handler(number, self._signalled)
        self._on_listening()
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH)
        loading = asyncio.create_task(self._load(service))
        dropping = asyncio.create_task(server.drop_unread(self._launch.limits.stall))
        try:
            await server.serve([self._listening])
        finally:
            dropping.cancel()
            self._stopping = True  # the load ends, if it is not over
            try:
                await self._unload(loading)
            finally:
                sys.setswitchinterval(before)

    def stop(self) -> None:
        """Have it end as by SIGTERM, from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._tell)

    async def _unload(self, loading: asyncio.Task[Worker]) -> None:
        try:
            worker = await loading
        except DflashError:
            if not self._told:
                raise
        else:
            await asyncio.to_thread(worker.close)

    async def _load(self, service: Service) -> Worker:
        try:
            worker = await asyncio.to_thread(Worker, self._open)
        except BaseException:
            self._stop()
            raise
        about = await service.use(worker)
        if not self._stopping:
            self._on_ready(about)
        return worker

    def _open(self) -> Engine:
        return self._launch.open_engine(lambda _: not self._stopping)

    def _signalled(self) -> None:
        for number in _SIGNALS:  # the next one ends the process
            if self._loop is not None:
                self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self._tell()

    def _tell(self) -> None:
        self._told = (
            self._told or not self._stopping
        )  # a load that failed before has its own reason
        self._stop()

    def _stop(self) -> None:
        service, server, loop = self.service, self._server, self._loop
        if self._stopping or service is None or server is None or loop is None:
            return
        self._stopping = service.stopping = True
        server.should_exit = True
        loop.call_later(self._launch.drain, service.cut)
        loop.call_later(self._launch.drain + _GRACE, server.drop)


class _Server(uvicorn.Server):
    """uvicorn's, without its signals, and without patience for clients that do not read."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to Process."""
        yield

    async def drop_unread(self, stall: float) -> None:
        """Drop connections of which nothing has been read for so many seconds while something waits, for ever."""
        waiting: dict[Any, tuple[int, float]] = {}
        while True:
            await asyncio.sleep(stall / 8)
            now = time.monotonic()
            seen = {}
            for connection in list(self.server_state.connections):
                transport = connection.transport
                size = transport.get_write_buffer_size() if transport is not None else 0
                if not size:
                    continue
                before, since = waiting.get(connection, (size, now))
                seen[connection] = (size, since if size >= before else now)
                if now - seen[connection][1] > stall:
                    _LOG.info("a client that does not read has been dropped")
                    transport.abort()
            waiting = seen

    def drop(self) -> None:
        """Drop all connections."""
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()
