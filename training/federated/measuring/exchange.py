"""Messages of a federated round, really sent over TCP to another machine and timed."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NamedTuple

from spotweave.envs.simulation.federations.application import Messages
from spotweave.training.federated.measuring.link import (
    ARRIVED,
    CONNECT_S,
    GREETING,
    GREETING_S,
    MAX_MESSAGE_BYTES,
    STALLED_S,
    Link,
    Listener,
    MeasureError,
    RefusedError,
    Times,
    shown,
)

# VGG16's weights and ten numbers, what the dummy application of the thesis exchanges.
VGG16 = Messages(0.537082008, 0.537082008, 0.537082008, 1.808e-06)


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


def measure_exchanges(
    host: str, port: int, sizes: Sizes, repetitions: int, *, stop: bool = False
) -> Exchanges:
    """Exchange a round's messages with a listener, once to warm up and then `repetitions` times.

    This side is the federation's server: it sends the weights, gets trained ones, sends the aggregated ones
    and gets metrics.

    Raises:
        MeasureError: if it cannot be reached, does not speak the protocol, refuses or falls silent.
    """
    where = f"peer {host}:{port}"
    try:
        connection = socket.create_connection((host, port), CONNECT_S)
    except OSError as error:
        raise MeasureError(
            f"cannot reach {where}: {error.strerror or error}; start `spotweave measure fl --listen` there "
            f"and open its port to this machine"
        ) from error
    try:
        with connection:
            link = Link(connection)
            connection.sendall(GREETING + b"\n")
            answer = link.line(time.monotonic() + GREETING_S)
            if answer != GREETING:
                raise RefusedError(f"it answers {shown(answer)}, which is no `spotweave measure fl --listen`")
            rounds = [
                (
                    *_exchange(link, sizes.server_train, sizes.client_train),
                    *_exchange(link, sizes.server_aggregate, sizes.client_test),
                )
                for _ in range(1 + repetitions)
            ]
            connection.sendall(b"stop\n" if stop else b"bye\n")
    except RefusedError as problem:
        raise MeasureError(f"{where}: {problem}") from problem
    except TimeoutError as error:
        raise MeasureError(f"{where} does not answer: is it busy with another measurement?") from error
    except OSError as error:
        raise MeasureError(f"lost {where}: {error.strerror or error}") from error
    first, *later = rounds
    each = tuple(Times.of(times) for times in zip(*later, strict=True))
    return Exchanges(each, Times.of([sum(one) for one in later]), sum(first))


def _exchange(link: Link, size_out: int, size_in: int) -> tuple[float, float]:
    began = time.perf_counter()
    link.connection.sendall(f"exchange {size_out} {size_in}\n".encode())
    link.send(size_out)
    arrived = link.connection.recv(1)
    if arrived != ARRIVED:
        if not arrived:
            raise RefusedError("the connection was closed")
        rest = arrived + link.line(time.monotonic() + GREETING_S)
        raise RefusedError(f"it answers {shown(rest)}")
    sent = time.perf_counter()
    link.receive(size_in)
    return sent - began, time.perf_counter() - sent


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
