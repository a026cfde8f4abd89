"""One exchange with a node agent: with the one certificate that it may show, and bounded in time and size."""

from __future__ import annotations

import http.client
import math
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import lru_cache
from typing import Any, BinaryIO

_CONNECT_S = 2.0
_BLOCK = 1 << 16


class ExchangeError(Exception):
    """There was no answer, or none that can be used; one line. Whether the node acted is not known."""


def exchange(
    address: tuple[str, int],
    certificate: str,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str],
    body: bytes | BinaryIO | None,
    within_s: float,
    most_bytes: int,
) -> tuple[int, bytes]:
    """Ask, and read the whole answer.

    A node is not trusted: whatever it sends, and however slowly, this ends in time and keeps within its size.

    Args:
        address: IP address and port.
        certificate: PEM; whoever shows another one is asked nothing.
        method: of HTTP.
        path: quoted, with its query.
        headers: of the request.
        body: of the request.
        within_s: for all of it, from the connection to the last byte.
        most_bytes: of the answer's body.

    Returns:
        The status and the body.

    Raises:
        ExchangeError: see there.
    """
    ends_s = time.monotonic() + within_s
    try:
        with closing(_Connection(address, _trust(certificate), ends_s)) as connection:
            connection.connect()
            # Whoever refuses a body may close before it has all of it, and has said why.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, dict(headers))
            with closing(connection.getresponse()) as response:
                length = response.length
                if length is None or response.chunked or length > most_bytes:
                    raise ExchangeError(
                        f"expected its length, at most {most_bytes} bytes, and then the answer"
                    )
                return response.status, response.read()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ExchangeError(str(error).partition("\n")[0][:200] or type(error).__name__) from error


class _Connection(http.client.HTTPConnection):
    """TLS to one certificate, with an end in time for everything."""

    def __init__(self, address: tuple[str, int], trust: ssl.SSLContext, ends_s: float) -> None:
        super().__init__(*address, blocksize=_BLOCK)
        self._trust = trust
        self._ends_s = ends_s

    def connect(self) -> None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # Wrapped before it connects: of a peer that is gone already, wrap_socket loses the socket unclosed.
        secure = self._trust.wrap_socket(
            socket.socket(family, socket.SOCK_STREAM), do_handshake_on_connect=False
        )
        assert isinstance(secure, _Socket)
        self.sock = secure
        secure.settimeout(min(_CONNECT_S, _left_s(self._ends_s)))
        secure.connect((self.host, self.port))
        secure.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Until then, the handshake as a whole; nothing is sent to whoever does not pass it.
        secure.settimeout(_left_s(self._ends_s))
        secure.do_handshake()
        secure.ends_s = self._ends_s


class _Socket(ssl.SSLSocket):
    """Each read and write gets the time that is left: a byte now and then gives nobody more of it."""

    ends_s = math.inf

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        self.settimeout(_left_s(self.ends_s))
        return super().recv_into(buffer, nbytes, flags)

    def send(self, data: Any, flags: int = 0) -> int:
        self.settimeout(_left_s(self.ends_s))
        return super().send(data, flags)


def _left_s(ends_s: float) -> float:
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no whole answer in time")
    return left_s


@lru_cache(maxsize=2048)
def _trust(certificate: str) -> ssl.SSLContext:
    """Trusts a certificate itself, whatever name it bears, and nothing else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.sslsocket_class = _Socket
    context.load_verify_locations(cadata=certificate)
    return context
