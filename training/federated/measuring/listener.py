"""The answering side of measured messages: `spotweave measure fl --listen`."""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from training.federated.measuring.link import (
    ARRIVED,
    GREETING,
    GREETING_S,
    MAX_MESSAGE_BYTES,
    STALLED_S,
    Link,
    MeasureError,
    RefusedError,
    parse_address,
    shown,
)

# Sending costs money in clouds: a listener that is left open gives out no more than this.
MAX_TOTAL_BYTES = 400_000_000_000


class Listener:
    """Answers measurements, one connection at a time.

    Args:
        host: address of this machine that others reach it by; 0.0.0.0 for every one.
        port: 0 for a free one.
        idle_s: ends after this many seconds without a measurement.
        say: gets a line for every refused connection.

    Raises:
        MeasureError: if it cannot listen there.
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

    Raises:
        MeasureError: for an address where nothing can listen.
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
