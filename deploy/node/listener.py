"""An HTTP server for a handful of clients: bounded, and quick to start.

The standard library's, because each node would need the packages of any other, and its image with them.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

STRANGER_S = 15.0
"""From the connection to the end of a request's headers, with TLS's handshake."""
_MOST = 64
_MOST_OF_ADDRESS = 32
_LINGER_S = 2.0
_log = logging.getLogger(__name__)


@dataclass
class _Open:
    """A connection. Only who has shown the token is no stranger any more."""

    address: str
    began_s: float
    ends_s: float
    stranger: bool = True


class Listener(ThreadingHTTPServer):
    """Listens on one address, in one thread per connection and with few of them.

    Each connection has an end in time, whatever its client sends or does not. Where there are too many, in
    all or of one address, the oldest stranger makes room: holding connections shuts no one else out.

    Args:
        address: to listen on.
        port: 0 for a free one.
        handler: of requests.
        context: of TLS; None: plain.
    """

    daemon_threads = True
    # A restarted server takes its port at once.
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(
        self,
        address: str,
        port: int,
        handler: type[BaseHTTPRequestHandler],
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._context = context
        self._open: dict[socket.socket, _Open] = {}
        self._guard = threading.Lock()
        if ":" in address:
            self.address_family = socket.AF_INET6
        super().__init__((address, port), handler)

    @property
    def port(self) -> int:
        """On which it listens."""
        return int(self.server_address[1])

    def server_bind(self) -> None:
        """Bind, without the name lookup of http.server, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.port

    def service_actions(self) -> None:
        """Between two connections, and twice a second: end what has had its time."""
        now_s = time.monotonic()
        with self._guard:
            late = [connection for connection, about in self._open.items() if about.ends_s <= now_s]
            for connection in late:
                self._shut(connection)

    def trust(self, connection: socket.socket, within_s: float) -> None:
        """The client of this one has shown its token: it has so long from now, and makes room for nobody."""
        with self._guard:
            about = self._open.get(connection)
            if about is not None:
                about.stranger, about.ends_s = False, time.monotonic() + within_s

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread, which has the handshake too: here nothing may wait."""
        if self._admit(request, str(client_address[0])):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One connection."""
        connection = request
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(
                    request, server_side=True, do_handshake_on_connect=False
                )
                with self._guard:
                    # Whoever was shut meanwhile finds that out in the handshake.
                    if (about := self._open.pop(request, None)) is not None:
                        self._open[connection] = about
                connection.do_handshake()
        except (OSError, ValueError):
            self.handle_error(request, client_address)
            self.shutdown_request(connection)
        else:
            super().process_request_thread(connection, client_address)
        finally:
            with self._guard:
                self._open.pop(connection, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""
        _log.debug("a connection ended early", exc_info=True)

    def _admit(self, connection: socket.socket, address: str) -> bool:
        now_s = time.monotonic()
        with self._guard:
            rivals = [one for one, about in self._open.items() if about.address == address]
            if len(rivals) < _MOST_OF_ADDRESS:
                rivals = list(self._open) if len(self._open) >= _MOST else []
            if rivals:
                strangers = [one for one in rivals if self._open[one].stranger]
                if not strangers:
                    return False
                self._shut(min(strangers, key=lambda one: self._open[one].began_s))
            self._open[connection] = _Open(address, now_s, now_s + STRANGER_S)
            return True

    def _shut(self, connection: socket.socket) -> None:
        """Wake its thread, wherever in it the connection is waited for; that thread closes it."""
        del self._open[connection]
        with suppress(OSError):
            # Not the method of an SSLSocket: that is not for two threads.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)


class QuietHandler(BaseHTTPRequestHandler):
    """One request per connection, none of them logged."""

    protocol_version = "HTTP/1.1"
    server_version = "spotweave"
    sys_version = ""

    def log_message(self, format: str, *args: Any) -> None:
        """Others ask every few seconds."""

    def send(self, code: int, content: bytes, kind: str = "") -> None:
        """A whole answer, the last one of this connection."""
        self.close_connection = True
        self.send_response(code)
        if kind:
            self.send_header("Content-Type", kind)
        if code != 204:
            self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        if code >= 400:
            self._linger()

    def _linger(self) -> None:
        """Take what the client still sends: closing on unread data would reset the answer away."""
        end = time.monotonic() + _LINGER_S
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(_LINGER_S)
        while time.monotonic() < end and self.connection.recv(1 << 20):
            pass
