"""Repeated seconds in short; the protocol of measured messages, version 1; a connection that speaks it.

The measuring side sends the line `spotweave-measure-fl 1` and gets it back. Then, as often as it likes, it
sends `exchange SEND RECEIVE` (bytes) and SEND bytes; when all have arrived it gets one byte and RECEIVE
bytes. `bye` ends the connection, `stop` the listener too. Anything else is refused with one line. The bytes
are random, so that no link can compress them.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

GREETING = b"spotweave-measure-fl 1"
MAX_MESSAGE_BYTES = 8_000_000_000
CONNECT_S = 10.0
GREETING_S = 5.0
STALLED_S = 60.0
MAX_LINE = 100
CHUNK = 1 << 20
ARRIVED = b"\x06"


class MeasureError(ValueError):
    """A measurement that could not be taken; the message is one line that a user can act on."""


class Times(NamedTuple):
    """Median and spread of repeated seconds."""

    median_s: float
    q1_s: float
    q3_s: float
    min_s: float
    max_s: float
    n: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Times:
        """Summarise at least one time."""
        low, q1, median, q3, high = (float(value) for value in np.quantile(seconds, (0, 0.25, 0.5, 0.75, 1)))
        return cls(median, q1, q3, low, high, len(seconds))

    @property
    def text(self) -> str:
        """Median and middle half, for people."""
        return f"{self.median_s:.4g} s (half of {self.n} between {self.q1_s:.4g} and {self.q3_s:.4g})"

    @property
    def warning(self) -> str:
        """Nothing, or what to do where the middle half is wider than 15 % (Brum 2023 had few above that)."""
        wide = self.q3_s - self.q1_s > 0.15 * self.median_s
        return "; they vary much: is the machine or the link busy? Try more --repetitions" if wide else ""


def parse_address(text: str, option: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT; an IPv6 host may stand in brackets. Raises MeasureError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise MeasureError(f"{option} is {text!r}, expected HOST:PORT, e.g. {option} 10.0.0.5:7007")
    return host.removeprefix("[").removesuffix("]"), int(port)


class RefusedError(Exception):
    """The other side does not keep to the protocol; the message says how."""


def shown(received: bytes) -> str:
    """Escape a stranger's bytes for the terminal."""
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


# The answering side: `spotweave measure fl --listen`.

# Sending costs money in clouds: a listener that is left open gives out no more than this.
MAX_TOTAL_BYTES = 400_000_000_000


class Listener:
    """Answers measurements, one connection at a time, until `idle_s` pass without one.

    Others reach it by the address `host`, 0.0.0.0 for every one of this machine, at `port`, 0 for a free one;
    `say` gets a line for every refused connection. Raises MeasureError if it cannot listen there.
    """

    def __init__(self, host: str, port: int, idle_s: float, say: Callable[[str], None]) -> None:
        if not 0 < idle_s <= 86_400:
            raise MeasureError(f"--idle is {idle_s:g} s, expected more than 0 and at most 86400")
        self.idle_s = idle_s
        self.say = say
        self.left = MAX_TOTAL_BYTES
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
            self.socket = socket.create_server((host, port), family=family, backlog=8)
        except OSError as error:
            raise MeasureError(
                f"cannot listen on {host}:{port}: {error.strerror or error}; give an address of this machine "
                f"and a free port"
            ) from error
        self.port: int = self.socket.getsockname()[1]

    def serve(self) -> str:
        """Answer until told to stop or idle; why it ended."""
        with self.socket:
            quiet_since = time.monotonic()
            while True:
                left = quiet_since + self.idle_s - time.monotonic()
                if left <= 0:
                    return f"idle for {self.idle_s:g} s"
                self.socket.settimeout(left)
                try:
                    connection, address = self.socket.accept()
                except TimeoutError:
                    continue
                with connection:
                    answered, stop = self._answer(Link(connection), f"{address[0]}:{address[1]}")
                if stop:
                    return "asked to stop"
                if self.left <= 0:
                    return f"{MAX_TOTAL_BYTES / 1e9:g} GB were exchanged, which is the limit"
                # Only who speaks the protocol keeps a listener alive.
                if answered:
                    quiet_since = time.monotonic()

    def _answer(self, link: Link, who: str) -> tuple[bool, bool]:
        """(whether it spoke the protocol, whether it asked to stop)."""
        spoke = False
        try:
            greeting = link.line(time.monotonic() + GREETING_S)
            if greeting != GREETING:
                raise RefusedError(f"expected {GREETING.decode()!r}, got {shown(greeting)}")
            link.connection.sendall(GREETING + b"\n")
            spoke = True
            while True:
                words = link.line(time.monotonic() + STALLED_S).split()
                if words in ([b"bye"], [b"stop"]):
                    return True, words == [b"stop"]
                size_in, size_out = self._sizes(words)
                self.left -= size_in + size_out
                link.receive(size_in)
                link.connection.sendall(ARRIVED)
                link.send(size_out)
        except RefusedError as problem:
            self.say(f"refused {who}: {problem}")
            with suppress(OSError):  # it may have gone
                link.connection.sendall(f"error: {problem}\n".encode())
        except OSError as error:
            self.say(f"lost {who}: {error.strerror or error}")
        return spoke, False

    def _sizes(self, words: list[bytes]) -> tuple[int, int]:
        numbers = [int(word) for word in words[1:] if word.isdigit() and len(word) < 16]
        if words[:1] != [b"exchange"] or len(words) != 3 or len(numbers) != 2:
            raise RefusedError(f"expected exchange SEND RECEIVE, bye or stop, got {shown(b' '.join(words))}")
        if max(numbers) > MAX_MESSAGE_BYTES:
            raise RefusedError(f"messages may have {MAX_MESSAGE_BYTES} bytes, got {max(numbers)}")
        if sum(numbers) > self.left:
            raise RefusedError(f"{self.left} bytes are left of this listener's limit, got {sum(numbers)}")
        return numbers[0], numbers[1]


def listen_until_done(address: str, idle_s: float) -> None:
    """Say where, answer until the end, say why it ended. Ctrl-C and SIGTERM end it too.

    Raises MeasureError for an address where nothing can listen.
    """
    host, port = parse_address(address, "--listen")
    listener = Listener(host, port, idle_s, lambda line: print(line, file=sys.stderr, flush=True))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"listening on {host}:{listener.port} (ends after {idle_s:g} s without a measurement)", flush=True)
    try:
        reason = listener.serve()
    except KeyboardInterrupt:
        reason = "interrupted"
    print(f"ended: {reason}", flush=True)
