"""An HTTP server for a handful of clients: bounded, and quick to start."""

from __future__ import annotations

import logging
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

SOCKET_TIMEOUT_S = 30.0
_MAX_CONNECTIONS = 32
_LINGER_S = 2.0
_log = logging.getLogger(__name__)


class Listener(ThreadingHTTPServer):
    """Listens on one address, in one thread per connection and with few of them."""

    daemon_threads = True
    # A restarted server takes its port at once.
    allow_reuse_address = True

    def __init__(self, address: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
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

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread while there are few enough of them."""
        if not self._slots.acquire(timeout=SOCKET_TIMEOUT_S):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""
        _log.debug("a connection ended early", exc_info=True)


class QuietHandler(BaseHTTPRequestHandler):
    """One request per connection, none of them logged."""

    protocol_version = "HTTP/1.1"
    server_version = "spotweave"
    sys_version = ""
    timeout = SOCKET_TIMEOUT_S

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
