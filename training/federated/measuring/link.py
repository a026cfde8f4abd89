"""The protocol of measured messages, version 1, and a connection that speaks it.

The measuring side sends the line `spotweave-measure-fl 1` and gets it back. Then, as often as it likes, it
sends `exchange SEND RECEIVE` (bytes) and SEND bytes; when all have arrived it gets one byte and RECEIVE
bytes. `bye` ends the connection, `stop` the listener too. Anything else is refused with one line. The bytes
are random, so that no link can compress them.
"""

from __future__ import annotations

import os
import socket
import time

from training.federated.measuring.times import MeasureError

GREETING = b"spotweave-measure-fl 1"
MAX_MESSAGE_BYTES = 8_000_000_000
CONNECT_S = 10.0
GREETING_S = 5.0
STALLED_S = 60.0
MAX_LINE = 100
CHUNK = 1 << 20
ARRIVED = b"\x06"


def parse_address(text: str, option: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT; an IPv6 host may stand in brackets. Raises MeasureError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise MeasureError(f"{option} is {text!r}, expected HOST:PORT, e.g. {option} 10.0.0.5:7007")
    return host.removeprefix("[").removesuffix("]"), int(port)


class RefusedError(Exception):
    """The other side does not keep to the protocol; the message says how."""


def shown(received: bytes) -> str:
    """What a stranger sent, harmless to a terminal."""
    return repr(received[:MAX_LINE].decode("ascii", errors="backslashreplace"))


class Link:
    """A connected socket that reads lines and bulk data through one buffer."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(STALLED_S)
        self.buffer = memoryview(bytearray(CHUNK))
        self.random = memoryview(os.urandom(CHUNK))

    def line(self, until: float) -> bytes:
        """One line without its end, by `until` (time.monotonic). Raises RefusedError and OSError."""
        line = b""
        while not line.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self.connection.settimeout(left)
            # Byte by byte, since what follows a line may be gigabytes that must not be taken with it.
            byte = self.connection.recv(1)
            if not byte:
                raise RefusedError("the connection was closed" if not line else f"no line: {shown(line)}")
            line += byte
            if len(line) > MAX_LINE:
                raise RefusedError(f"no line of the protocol: {shown(line)}")
        self.connection.settimeout(STALLED_S)
        return line.rstrip(b"\r\n")

    def send(self, size: int) -> None:
        """Send `size` random bytes."""
        while size:
            part = min(size, CHUNK)
            self.connection.sendall(self.random[:part])
            size -= part

    def receive(self, size: int) -> None:
        """Read and forget `size` bytes. Raises RefusedError if the other side ends before."""
        while size:
            got = self.connection.recv_into(self.buffer[: min(size, CHUNK)])
            if not got:
                raise RefusedError(f"the connection was closed with {size} bytes to come")
            size -= got
