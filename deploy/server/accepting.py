"""Accepting connections: within limits, and with as many open files as the process may have."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import threading

import structlog
import uvicorn

from deploy.server.connections import Connections, Guarded, Guest

log = structlog.get_logger("server")

_NO_ROOM_S = 0.05
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_FILES_MOST = 65_536
FILES_KEPT = 256
"""For everything but connections: the database, logs, jobs' files."""


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
        self._closing = closing
        self._connections = connections
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
        """Let a connection make itself ready for requests."""
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
    """Wait for the first byte, or the end, of a connection."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(connection, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(connection)
