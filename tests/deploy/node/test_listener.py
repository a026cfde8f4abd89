"""Who holds connections to an agent, or sends a byte now and then, keeps nobody else from it."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler

import pytest

from deploy.node import server
from deploy.node.client import NodeClient
from deploy.node.server import Listener, QuietHandler
from tests.deploy.node.agents import AgentProcess, wait_until


class Trusting(QuietHandler):
    """Trusts whoever says so, and then reads on."""

    server: Listener

    def do_GET(self) -> None:  # noqa: N802
        if self.path == "/trusted":
            self.server.trust(self.connection, 60.0)
            self.rfile.read(1)
        self.send(200, b"here")


@contextmanager
def listening(context: ssl.SSLContext | None = None) -> Iterator[Listener]:
    handler: type[BaseHTTPRequestHandler] = Trusting
    made = Listener("127.0.0.1", 0, handler, context)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def connect(made: Listener, said: bytes = b"", host: str = "127.0.0.1") -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", made.port), timeout=30, source_address=(host, 0))
    opened.sendall(said)
    return opened


def closed(opened: socket.socket) -> bool:
    """Whether the other side has given it up; waits for that."""
    with suppress(ConnectionError):
        return opened.recv(1) == b""
    return True


GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.mark.real
def test_a_thousand_silent_connections_do_not_keep_the_scheduler_from_an_agent(agent: AgentProcess) -> None:
    with ExitStack() as held:
        for number in range(1000):
            silent = held.enter_context(socket.create_connection((agent.address, agent.port), timeout=30))
            if number % 2:
                # Half of them begin a handshake, which nothing ends.
                silent.sendall(b"\x16\x03\x01\x02\x00")
        shown = agent.pair.certificate
        with NodeClient(agent.address, agent.port, agent.token, shown, within_s=5.0) as client:
            for _ in range(5):
                assert client.status().instance_id == agent.instance_id


@pytest.mark.real
def test_plain_http_is_not_spoken(agent: AgentProcess) -> None:
    with socket.create_connection((agent.address, agent.port), timeout=30) as plain:
        plain.sendall(b"GET /v1/node HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer x\r\n\r\n")
        assert b"HTTP" not in plain.recv(1000)


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nX: y"])
def test_a_request_not_whole_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(server, "STRANGER_S", 0.3)
    with listening() as made, connect(made, said) as slow:
        began_s = time.monotonic()
        stop = threading.Event()

        def drip() -> None:
            with suppress(OSError):
                while not stop.wait(0.05):
                    slow.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            assert closed(slow)
        finally:
            stop.set()
            thread.join()
        assert time.monotonic() - began_s < 20.0


def test_the_oldest_stranger_makes_room_and_who_is_trusted_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST_OF_ADDRESS", 3)
    with listening() as made, ExitStack() as held:
        trusted = held.enter_context(connect(made, b"GET /trusted HTTP/1.1\r\nHost: h\r\n\r\n"))
        wait_until(lambda: not all(about.stranger for about in made._open.values()))
        old, young = (held.enter_context(connect(made)) for _ in range(2))
        wait_until(lambda: len(made._open) == 3)
        served = held.enter_context(connect(made, GET))
        assert closed(old)
        assert served.recv(12) == b"HTTP/1.1 200"
        # What is trusted, and what is younger, goes on.
        trusted.sendall(b"x")
        young.sendall(GET)
        assert trusted.recv(12) == young.recv(12) == b"HTTP/1.1 200"


def test_one_address_takes_no_room_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST_OF_ADDRESS", 2)
    with listening() as made, ExitStack() as held:
        other = held.enter_context(connect(made, host="127.0.0.2"))
        wait_until(lambda: len(made._open) == 1)
        crowd = [held.enter_context(connect(made)) for _ in range(5)]
        assert all(closed(one) for one in crowd[:3])
        other.sendall(GET)
        assert other.recv(12) == b"HTTP/1.1 200"


def test_where_all_are_trusted_a_new_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST", 1)
    with listening() as made, connect(made, b"GET /trusted HTTP/1.1\r\nHost: h\r\n\r\n") as trusted:
        wait_until(lambda: [about.stranger for about in made._open.values()] == [False])
        with connect(made, GET) as refused:
            assert closed(refused)
        trusted.sendall(b"x")
        assert trusted.recv(12) == b"HTTP/1.1 200"
        wait_until(lambda: not made._open)
        with connect(made, GET) as served:
            assert served.recv(12) == b"HTTP/1.1 200"
