"""A SuperLink's log, which its ServerApp may fill, and servers whose answers do not end."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from deploy.runners.flower import superlink as superlink_module
from deploy.runners.flower.identity import Identity
from deploy.runners.flower.superlink import BoundedTransport, SuperLink


@pytest.fixture
def superlink(tmp_path: Path) -> SuperLink:
    return SuperLink(tmp_path, "127.0.0.1", 1, Identity(tmp_path / "keys", tmp_path / "superlink"))


def test_the_last_line_of_a_log_of_any_length(superlink: SuperLink) -> None:
    assert superlink.last_line() == ""
    superlink.log.touch()
    os.truncate(superlink.log, 1 << 40)
    with superlink.log.open("a") as file:
        file.write("\nfirst\nno such option\n")
    tracemalloc.start()
    assert superlink.last_line() == "no such option"
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_a_log_that_grows_without_end_is_cut(superlink: SuperLink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superlink_module, "_LOG_MOST_BYTES", 1 << 20)
    superlink.trim_log()
    # As whoever writes to it does.
    with superlink.log.open("ab", buffering=0) as writer:
        writer.write(b"a line\n")
        superlink.trim_log()
        assert superlink.log.read_bytes() == b"a line\n"
        writer.write(b"x" * (2 << 20) + b"\nnewest\n")
        superlink.trim_log()
        writer.write(b"after\n")
    assert superlink.log.stat().st_size < 1 << 20
    assert superlink.log.read_text().endswith("x\nnewest\nafter\n")
    assert "[what came before was more than 1048576 bytes]" in superlink.log.read_text()


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
