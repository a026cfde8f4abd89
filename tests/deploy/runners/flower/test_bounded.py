"""Servers whose answers do not end."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from deploy.runners.flower.identity import Identity
from deploy.runners.flower.superlink import BoundedTransport

Probe = Callable[[socket.socket, threading.Event], None]


@contextmanager
def server(identity: Identity, answer: Probe) -> Iterator[str]:
    """One that answers every request so."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.shown_certificate, identity.shown_key)
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        while not over.is_set():
            try:
                plain, _ = listener.accept()
                with context.wrap_socket(plain, server_side=True) as connection:
                    connection.recv(65536)
                    answer(connection, over)
            except OSError:
                continue

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"https://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            over.set()
            thread.join()


def drip(head: bytes) -> Probe:
    def answer(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(head)
        while not over.wait(0.05):
            connection.sendall(b"x")

    return answer


def flood(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not over.is_set():
        connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")


def say(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    folder: Path = tmp_path_factory.mktemp("identity")
    made = Identity(folder / "keys", folder / "superlink")
    made.make("127.0.0.1")
    made.show()
    return made


def ask(identity: Identity, url: str, within_s: float, most_bytes: int) -> httpx.Response:
    verify = ssl.create_default_context(cafile=str(identity.authority))
    with httpx.Client(transport=BoundedTransport(verify, within_s, most_bytes), timeout=30.0) as client:
        client.get(url).read()
        # The bounds are those of each request.
        return client.get(url)


def test_an_answer_is_an_answer(identity: Identity) -> None:
    with server(identity, say) as url:
        assert ask(identity, url, 30.0, 10_000).content == b"hi"


@pytest.mark.parametrize(
    "head",
    [b"", b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"],
    ids=["from the start", "in the headers", "in the body"],
)
def test_a_byte_now_and_then_does_not_hold_anybody(identity: Identity, head: bytes) -> None:
    with server(identity, drip(head)) as url:
        began_s = time.monotonic()
        with pytest.raises(httpx.HTTPError):
            ask(identity, url, 0.5, 1 << 30)
        # Without the bound: 30 s after the last byte, that is, never.
        assert time.monotonic() - began_s < 20


def test_an_answer_without_end_is_too_large(identity: Identity) -> None:
    with server(identity, flood) as url, pytest.raises(httpx.HTTPError, match="more than 1000000 bytes"):
        ask(identity, url, 60.0, 1_000_000)
