"""Messages of a federated round, really sent over TCP to another machine and timed.

One machine listens, the other measures, over one HTTP connection: `POST /RECEIVE` with a body of SEND bytes.
The head of the answer comes when all have arrived, its body has RECEIVE bytes. `DELETE /` ends the listener.
The bytes are random, so that no link can compress them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler
from multiprocessing.connection import Connection
from socketserver import TCPServer
from typing import Any, NamedTuple

import numpy as np

from spotweave.envs.simulation.federations.application import Messages

NAME = "spotweave-measure-fl/2"
MAX_MESSAGE_BYTES = 8_000_000_000
# Sending costs money in clouds: a listener that is left open gives out no more than this.
MAX_TOTAL_BYTES = 400_000_000_000
CONNECT_S = 10.0
REQUEST_S = 5.0
STALLED_S = 60.0
CHUNK = 1 << 20
RANDOM = memoryview(os.urandom(CHUNK))

# VGG16's weights and ten numbers, what the dummy application of the thesis exchanges.
VGG16 = Messages(0.537082008, 0.537082008, 0.537082008, 1.808e-06)


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


class Sizes(NamedTuple):
    """Bytes of a round's four messages, in the order in which they are sent (Brum 2023, Figure 5.1)."""

    server_train: int
    client_train: int
    server_aggregate: int
    client_test: int

    @classmethod
    def of(cls, messages: Messages) -> Sizes:
        """Bytes of an application's messages. Raises MeasureError for one that is too large to be sent."""
        sizes = cls(*(round(getattr(messages, f"{name}_gb") * 1e9) for name in cls._fields))
        for name, size in sizes._asdict().items():
            if not 0 <= size <= MAX_MESSAGE_BYTES:
                raise MeasureError(
                    f"message {name} has {size} bytes, expected at most {MAX_MESSAGE_BYTES / 1e9:g} GB"
                )
        return sizes

    @property
    def text(self) -> str:
        """Says what was sent; equal texts are equal workloads."""
        return f"tcp-1, {' + '.join(map(str, self))} bytes per round"


@dataclass(frozen=True)
class Exchanges:
    """What was measured on one link."""

    # [4] seconds of each message, in the order of `Sizes`. A message that is sent is timed until its arrival
    # is known here, so a round trip's latency is in it once
    messages: tuple[Times, ...]
    rounds: Times  # seconds of all four
    first_round_s: float  # seconds of the first round, which opens the connection's window; not in the others


def parse_address(text: str, option: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT; an IPv6 host may stand in brackets. Raises MeasureError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise MeasureError(f"{option} is {text!r}, expected HOST:PORT, e.g. {option} 10.0.0.5:7007")
    return host.removeprefix("[").removesuffix("]"), int(port)


# The measuring side.


def measure_exchanges(
    host: str, port: int, sizes: Sizes, repetitions: int, *, stop: bool = False
) -> Exchanges:
    """Exchange a round's messages with a listener, once to warm up and then `repetitions` times.

    This side is the federation's server: it sends the weights, gets trained ones, sends the aggregated ones
    and gets metrics.

    Raises:
        MeasureError: if it cannot be reached, is something else, refuses or falls silent.
    """
    where = f"peer {host}:{port}"
    connection = HTTPConnection(host, port, timeout=CONNECT_S)
    try:
        connection.connect()
    except OSError as error:
        raise MeasureError(
            f"cannot reach {where}: {error.strerror or error}; start `spotweave measure fl --listen` there "
            f"and open its port to this machine"
        ) from error
    with closing(connection):
        connection.sock.settimeout(STALLED_S)
        try:
            _exchange(connection, 0, 0)  # whoever else is there says so before gigabytes are sent
            rounds = [
                (
                    *_exchange(connection, sizes.server_train, sizes.client_train),
                    *_exchange(connection, sizes.server_aggregate, sizes.client_test),
                )
                for _ in range(1 + repetitions)
            ]
            if stop:
                connection.request("DELETE", "/")
                connection.getresponse()
        except MeasureError as problem:
            raise MeasureError(f"{where}: {problem}") from problem
        except TimeoutError as error:
            raise MeasureError(f"{where} does not answer: is it busy with another measurement?") from error
        except OSError as error:
            raise MeasureError(f"lost {where}: {error.strerror or error}") from error
        except HTTPException as error:
            raise MeasureError(f"{where} is no `spotweave measure fl --listen`: {error!r}") from error
    first, *later = rounds
    each = tuple(Times.of(times) for times in zip(*later, strict=True))
    return Exchanges(each, Times.of([sum(one) for one in later]), sum(first))


def _exchange(connection: HTTPConnection, size_out: int, size_in: int) -> tuple[float, float]:
    began = time.perf_counter()
    connection.request("POST", f"/{size_in}", _random(size_out), {"Content-Length": str(size_out)})
    with connection.getresponse() as answer:
        sent = time.perf_counter()
        if answer.getheader("Server", "").strip() != NAME:
            raise MeasureError(f"it answers {answer.status}, and is no `spotweave measure fl --listen`")
        if answer.status != HTTPStatus.OK:
            raise MeasureError(answer.read().decode("ascii", errors="backslashreplace").strip())
        _forget(answer, size_in)
        answer.read()  # says that nothing more is wanted of it, also of an empty one
    return sent - began, time.perf_counter() - sent


def _random(size: int) -> Iterator[memoryview]:
    """`size` random bytes, in pieces."""
    while size:
        part = RANDOM[: min(size, CHUNK)]
        yield part
        size -= len(part)


def _forget(source: Any, size: int) -> None:
    """Read `size` bytes and keep none. Raises ConnectionError if the other side ends before."""
    buffer = memoryview(bytearray(min(size, CHUNK)))
    while size:
        got = source.readinto(buffer[: min(size, CHUNK)])
        if not got:
            raise ConnectionError(f"the connection was closed with {size} bytes to come")
        size -= got


@contextmanager
def own_peer() -> Iterator[int]:
    """The port of a listener in a process of its own on this machine's loopback. Raises MeasureError."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_listen_on_loopback, args=(there,), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(CONNECT_S * 6):
            raise MeasureError("the peer process on this machine did not start")
        try:
            port: int = here.recv()
        except EOFError as error:
            raise MeasureError("the peer process on this machine ended at once") from error
        yield port
    finally:
        here.close()
        process.terminate()
        process.join()


def _listen_on_loopback(pipe: Connection) -> None:
    listener = Listener("127.0.0.1", 0, STALLED_S, print)
    pipe.send(listener.port)
    pipe.close()
    listener.serve()


# The answering side: `spotweave measure fl --listen`.


class _Handler(BaseHTTPRequestHandler):
    """One connection, which is one measurement."""

    server: Listener
    protocol_version = "HTTP/1.1"
    server_version, sys_version = NAME, ""
    timeout = REQUEST_S
    disable_nagle_algorithm = True
    error_content_type, error_message_format = "text/plain", "%(message)s\n"

    def do_POST(self) -> None:
        try:
            size_in, size_out = self._sizes()
        except ValueError as problem:
            self.send_error(HTTPStatus.BAD_REQUEST, str(problem))
            return
        self.server.left -= size_in + size_out
        self.server.answered += 1
        self.connection.settimeout(STALLED_S)
        _forget(self.rfile, size_in)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(size_out))
        self.end_headers()
        for part in _random(size_out):
            self.wfile.write(part)
        self.connection.settimeout(REQUEST_S)

    def do_DELETE(self) -> None:
        self.server.stopped = self.close_connection = True
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()

    def _sizes(self) -> tuple[int, int]:
        numbers = [self.headers.get("Content-Length", ""), self.path.removeprefix("/")]
        if not all(number.isdecimal() and len(number) < 16 for number in numbers):
            raise ValueError("expected POST /RECEIVE with a Content-Length")
        size_in, size_out = map(int, numbers)
        if max(size_in, size_out) > MAX_MESSAGE_BYTES:
            raise ValueError(f"messages may have {MAX_MESSAGE_BYTES} bytes, got {max(size_in, size_out)}")
        total = size_in + size_out
        if total > self.server.left:
            raise ValueError(f"{self.server.left} bytes are left of this listener's limit, got {total}")
        return size_in, size_out

    def log_error(self, form: str, *values: Any) -> None:
        host, port = self.client_address[:2]
        self.server.say(f"refused {host}:{port}: {form % values}")

    def log_request(self, *_: Any) -> None:
        """Only what goes wrong is worth a line."""


class Listener(TCPServer):
    """Answers measurements, one connection at a time, until `idle_s` pass without one.

    Others reach it by the address `host`, 0.0.0.0 for every one of this machine, at `port`, 0 for a free one;
    `say` gets a line for every refused connection. Raises MeasureError if it cannot listen there.
    """

    allow_reuse_address = True

    def __init__(self, host: str, port: int, idle_s: float, say: Callable[[str], None]) -> None:
        if not 0 < idle_s <= 86_400:
            raise MeasureError(f"--idle is {idle_s:g} s, expected more than 0 and at most 86400")
        self.idle_s = idle_s
        self.say = say
        self.left, self.answered, self.stopped = MAX_TOTAL_BYTES, 0, False
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self.address_family = found[0][0]
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise MeasureError(
                f"cannot listen on {host}:{port}: {error.strerror or error}; give an address of this machine "
                f"and a free port"
            ) from error
        self.port: int = self.server_address[1]

    def serve(self) -> str:
        """Answer until told to stop or idle; why it ended."""
        with self:
            answered, quiet_since = 0, time.monotonic()
            while not self.stopped and self.left > 0:
                # Only who speaks the protocol keeps a listener alive.
                if self.answered > answered:
                    answered, quiet_since = self.answered, time.monotonic()
                self.timeout = quiet_since + self.idle_s - time.monotonic()
                if self.timeout <= 0:
                    return f"idle for {self.idle_s:g} s"
                self.handle_request()
        if self.stopped:
            return "asked to stop"
        return f"{MAX_TOTAL_BYTES / 1e9:g} GB were exchanged, which is the limit"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of a connection that was lost."""
        host, port = client_address[:2]
        self.say(f"lost {host}:{port}: {sys.exc_info()[1]}")


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
