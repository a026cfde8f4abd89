"""HTTP whose answers end: a server that sends a byte per second, or without end, is given up in time.

httpx bounds the time between two bytes only.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable

import httpcore
import httpx
from httpcore import SOCKET_OPTION


class BoundedTransport(httpx.HTTPTransport):
    """For a client that is used by one thread at a time.

    Args:
        verify: what the server's certificate is checked with.
        within_s: for a whole request, from connecting to the last byte of the answer.
        most_bytes: of an answer with its headers, as it is sent.
    """

    def __init__(self, verify: ssl.SSLContext, within_s: float, most_bytes: int) -> None:
        super().__init__(verify=verify, trust_env=False)
        self._within_s, self._most_bytes = within_s, most_bytes
        self._until_s = 0.0
        self._left_bytes = 0
        assert isinstance(self._pool, httpcore.ConnectionPool)
        # What httpx does not pass on.
        self._pool._network_backend = _Backend(self)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """See httpx."""
        self._until_s = time.monotonic() + self._within_s
        self._left_bytes = self._most_bytes
        return super().handle_request(request)

    def left_s(self, asked_s: float | None) -> float:
        """How long the next step may take. Raises httpcore.ReadTimeout if nothing is left."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise httpcore.ReadTimeout(f"no whole answer within {self._within_s:g} s")
        return left_s if asked_s is None else min(asked_s, left_s)

    def count(self, size: int) -> None:
        """Note what was received. Raises httpcore.ReadError if it is too much."""
        self._left_bytes -= size
        if self._left_bytes < 0:
            raise httpcore.ReadError(f"the answer has more than {self._most_bytes} bytes")


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, bounds: BoundedTransport) -> None:
        self._inner, self._bounds = inner, bounds

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        found = self._inner.read(max_bytes, self._bounds.left_s(timeout))
        self._bounds.count(len(found))
        return found

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._bounds.left_s(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, self._bounds.left_s(timeout))
        return _Stream(inner, self._bounds)

    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, bounds: BoundedTransport) -> None:
        self._inner, self._bounds = httpcore.SyncBackend(), bounds

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        inner = self._inner.connect_tcp(
            host, port, self._bounds.left_s(timeout), local_address, socket_options
        )
        return _Stream(inner, self._bounds)
