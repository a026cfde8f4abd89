"""Limits on open connections, and which are closed when there are too many.

uvicorn limits neither the time that a request's head may take nor the connections of an address, and answers
503 to everyone once its one limit is reached. Here, when there are too many, whoever keeps the service
waiting goes: the oldest idle connection of the address that has most. The clients of a proxy share its
address, so an address at its limit loses idle connections; a new one is refused only where all others are
being answered.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import resource
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import structlog
import uvicorn
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from spotweave.deploy.server.middleware import Metrics

_LEAST_TAKEN = 16 << 10


class Waits(Enum):
    """Reason why a connection is idle."""

    REQUEST = "request"  # waiting for the client's handshake, or the head of its next request
    BODY = "body"  # waiting for the rest of a request's body
    ANSWER = "answer"  # waiting for our answer


@dataclass(frozen=True)
class ConnectionLimits:
    """What clients may take."""

    most: int = 1000  # connections at once
    most_each: int = 500  # of one address (of IPv6: of one /64 network)
    # a handshake must be over, and each request's head must have come, after so long
    head_within_s: float = 10.0
    stalled_s: float = 30.0  # a client that takes less than 16 KiB of what it is sent in so long is cut off


@dataclass(eq=False)
class Guest:
    """One connection."""

    network: str
    waits: Waits = Waits.REQUEST
    drop: Callable[[], object] = field(default=lambda: None, repr=False)


class Connections:
    """All connections of a service. For the thread of its event loop only."""

    def __init__(self, limits: ConnectionLimits, metrics: Metrics) -> None:
        self.limits, self._metrics = limits, metrics
        # In the order in which they began to wait for what they wait for.
        self._guests: dict[str, dict[Guest, None]] = {}
        self._count = 0

    def enter(self, address: str) -> Guest | None:
        """A new connection, for which another one may have to go; None if none can."""
        network = network_of(address)
        if len(self._guests.get(network, ())) >= self.limits.most_each:
            room = self._evict(network)
        else:
            room = self._count < self.limits.most or self.make_room()
        if not room:
            self._metrics.cut.labels("refused").inc()
            return None
        guest = Guest(network)
        self._guests.setdefault(network, {})[guest] = None
        self._count += 1
        self._metrics.connections.set(self._count)
        return guest

    def now_waits(self, guest: Guest, waits: Waits) -> None:
        """A connection waits for something else, or for the next of the same."""
        guest.waits = waits
        mine = self._guests.get(guest.network, {})
        if guest in mine:
            del mine[guest]
            mine[guest] = None

    def leave(self, guest: Guest) -> None:
        """A connection has ended."""
        mine = self._guests.get(guest.network, {})
        if guest not in mine:
            return
        del mine[guest]
        if not mine:
            del self._guests[guest.network]
        self._count -= 1
        self._metrics.connections.set(self._count)

    def make_room(self) -> bool:
        """End one that its client keeps waiting, of the network with most connections; False if none does."""
        for network in sorted(self._guests, key=lambda one: -len(self._guests[one])):
            if self._evict(network):
                return True
        return False

    def note_cut(self, why: str) -> None:
        """Count a connection that a time limit ended."""
        self._metrics.cut.labels(why).inc()

    def _evict(self, network: str) -> bool:
        for waits in (Waits.REQUEST, Waits.BODY):
            for guest in self._guests[network]:
                if guest.waits is waits:
                    self.leave(guest)
                    guest.drop()
                    self._metrics.cut.labels("evicted").inc()
                    return True
        return False


def network_of(address: str) -> str:
    """Network of an address: the address itself, or its /64 for IPv6, all of which one machine may use."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


class Guarded(H11Protocol):
    """HTTP/1.1 with limits on the time that a client takes. h11 bounds the size of a request's head."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        connections: Connections,
        guest: Guest,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._all = connections
        self._guest = guest
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request."""
        super().connection_made(transport)
        self._guest.drop = transport.abort
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        super().connection_lost(exc)
        _cancel(self._head_timer)
        _cancel(self._stall_timer)
        self._all.leave(self._guest)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may have come already."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._await_head()
        else:
            self._look()

    def pause_writing(self) -> None:
        """Called when the client stops reading."""
        super().pause_writing()
        self._watch_sending()

    def resume_writing(self) -> None:
        """Called when the client reads again."""
        super().resume_writing()
        _cancel(self._stall_timer)

    def _await_head(self) -> None:
        """Start the time limit of the whole head, however slowly its bytes arrive."""
        self._all.now_waits(self._guest, Waits.REQUEST)
        _cancel(self._head_timer)
        self._head_timer = self.loop.call_later(self._all.limits.head_within_s, self._no_head)

    def _look(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            return
        _cancel(self._head_timer)
        waits = Waits.BODY if self.cycle.more_body else Waits.ANSWER
        if waits is not self._guest.waits:
            self._all.now_waits(self._guest, waits)

    def _no_head(self) -> None:
        if self.transport.get_write_buffer_size():
            # It still takes what it is sent, on a slow line.
            self._watch_sending()
        else:
            self._cut("head")

    def _watch_sending(self) -> None:
        _cancel(self._stall_timer)
        left = self.transport.get_write_buffer_size()
        self._stall_timer = self.loop.call_later(self._all.limits.stalled_s, self._stalled, left)

    def _stalled(self, before: int) -> None:
        if self.transport.get_write_buffer_size() > before - _LEAST_TAKEN:
            self._cut("stalled")
        else:
            self._watch_sending()

    def _cut(self, why: str) -> None:
        self._all.note_cut(why)
        self.transport.abort()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


# Accepting connections: within limits, and with as many open files as the process may have.

log = structlog.get_logger("server")

_NO_ROOM_S = 0.05
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_FILES_MOST = 65_536
FILES_KEPT = 256  # for everything but connections: the database, logs, jobs' files


def files_allowed() -> int:
    """How many files this process can open at once after `allow_files`."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return _FILES_MOST if hard == resource.RLIM_INFINITY else min(hard, _FILES_MOST)


def allow_files() -> int:
    """Ask for as many open files as this process may have. Returns how many it can open at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = files_allowed()
    if soft == resource.RLIM_INFINITY or soft >= most:
        return _FILES_MOST if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


class Server(uvicorn.Server):
    """uvicorn, but connections are taken here: they have limits from their acceptance on, handshakes too."""

    def __init__(self, config: uvicorn.Config, closing: threading.Event, connections: Connections) -> None:
        super().__init__(config)
        self._closing, self._connections = closing, connections
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept, on the one socket."""
        assert sockets is not None
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            return
        self.servers = []
        self._accepting = asyncio.create_task(self._accept(sockets[0]))
        self._accepting.add_done_callback(self._deaf)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: first whatever would go on for ever."""
        # Streams of events never end by themselves.
        self._closing.set()
        if self._accepting is not None:
            self._accepting.cancel()
        for handshake in self._handshakes:
            handshake.cancel()
        await super().shutdown(sockets)

    def _deaf(self, accepting: asyncio.Task[None]) -> None:
        # Rather no service, which is noticed and started again, than one that nobody can reach.
        if not accepting.cancelled():
            log.error("connections are not accepted any more", exc_info=accepting.exception())
            self.should_exit = True

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                exhausted = error.errno in _EXHAUSTED
                if exhausted:
                    self._connections.make_room()
                await asyncio.sleep(_NO_ROOM_S if exhausted else 0)
                continue
            try:
                guest = self._connections.enter(str(address[0]))
            except BaseException:
                accepted.close()
                raise
            if guest is None:
                accepted.close()
            else:
                self._welcome(accepted, guest)
            # A burst of them must not keep those who are here already waiting.
            await asyncio.sleep(0)

    def _welcome(self, accepted: socket.socket, guest: Guest) -> None:
        ready = asyncio.create_task(self._connect(accepted, guest))
        guest.drop = ready.cancel
        self._handshakes.add(ready)

        def settled(task: asyncio.Task[None]) -> None:
            self._handshakes.discard(task)
            failure = None if task.cancelled() else task.exception()
            if isinstance(failure, TimeoutError | ConnectionAbortedError):
                self._connections.note_cut("head")
            # What speaks no TLS here, or nothing at all, is no news.
            if task.cancelled() or isinstance(failure, OSError):
                self._connections.leave(guest)
                accepted.close()

        ready.add_done_callback(settled)

    async def _connect(self, accepted: socket.socket, guest: Guest) -> None:
        within_s = None
        if self.config.ssl is not None:
            within_s = self._connections.limits.head_within_s
            # TLS takes a quarter of a MiB from its first moment on: that is for those who begin to speak.
            async with asyncio.timeout(within_s):
                await _readable(accepted)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: Guarded(self.config, self.server_state, self.lifespan.state, self._connections, guest),
            accepted,
            ssl=self.config.ssl,
            ssl_handshake_timeout=within_s,
        )


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection)
