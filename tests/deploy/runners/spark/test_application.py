"""Drivers' monitoring endpoints, played by a small server."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from deploy.runners.spark.application import ATTEMPT_CONF, Applications, parse
from deploy.runners.spark.master import free_port

ADDRESS = "127.0.0.1"


def job(tasks: int, done: int, skipped: int = 0, failed: int = 0) -> dict[str, int]:
    counts = {"Completed": done, "Skipped": skipped, "Failed": failed}
    return {"numTasks": tasks, **{f"num{kind}Tasks": count for kind, count in counts.items()}}


def executor(name: str, host: str, active: bool = True) -> dict[str, object]:
    return {"id": name, "hostPort": f"{host}:4711", "isActive": active}


EXECUTORS = [
    executor("driver", "127.0.0.1"),
    executor("0", "127.0.0.2"),
    executor("1", "127.0.0.3", active=False),
]


@contextmanager
def driver(attempt_id: str, port: int, answers: dict[str, Any]) -> Iterator[None]:
    """A driver of this attempt."""
    answers = {
        "": [{"id": "app-1"}],
        "/app-1/environment": {"sparkProperties": [["spark.x", "1"], [ATTEMPT_CONF, attempt_id]]},
    } | answers

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers[self.path.removeprefix("/api/v1/applications")]
            body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer((ADDRESS, port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def two_ports() -> int:
    """A port that is free, and so is the next."""
    while True:
        port = free_port(ADDRESS)
        try:
            HTTPServer((ADDRESS, port + 1), BaseHTTPRequestHandler).server_close()
        except (OSError, OverflowError):
            continue
        return port


def test_skipped_tasks_are_not_work_and_only_the_end_is_the_end() -> None:
    found = parse("url", "app-1", EXECUTORS, [job(10, 4, failed=1), job(20, 5, skipped=15)])
    assert (found.tasks_done, found.tasks, found.failed_tasks) == (9, 15, 1)
    assert found.progress == 9 / 15
    assert found.executors == ("127.0.0.2",)
    assert parse("url", "app-1", [], [job(10, 10)]).progress == 0.99
    assert parse("url", "app-1", [], []).progress == 0.0


def test_the_driver_is_found_on_the_next_port_if_another_has_its_own() -> None:
    port = two_ports()
    stages = {"/app-1/executors": EXECUTORS, "/app-1/jobs": [job(4, 1)]}
    applications = Applications()
    with driver("other.main.1", port, {}), driver("mine.main.1", port + 1, stages):
        found = applications.ask("mine.main.1", ADDRESS, port)
        assert found is not None
        assert (found.url, found.progress) == (f"http://{ADDRESS}:{port + 1}", 0.25)
        assert applications.ask("mine.main.1", ADDRESS, port) == found
    assert applications.ask("mine.main.1", ADDRESS, port) is None


def test_a_driver_that_still_starts_says_nothing_yet() -> None:
    port = free_port(ADDRESS)
    with driver("mine.main.1", port, {"": "<html>Spark is starting up. Please wait a while</html>"}):
        assert Applications().ask("mine.main.1", ADDRESS, port) is None


@pytest.mark.parametrize(
    "answers",
    [
        {"": {"id": "app-1"}},
        {"": [{"id": ["x"]}]},
        {"": [{"id": "../../x"}]},
        {"": [1, None, "x"]},
        {"": "[" * 100_000},
        {"/app-1/environment": []},
        {"/app-1/environment": {"sparkProperties": {"x": 1}}},
        {"/app-1/environment": {"sparkProperties": [[1, 2, 3], None]}},
        {"/app-1/jobs": {"numTasks": 1}},
        {"/app-1/jobs": [job(-1, 1)]},
        {"/app-1/jobs": [job(10**30, 1)]},
        {"/app-1/jobs": [{**job(1, 1), "numFailedTasks": "x"}]},
        {"/app-1/jobs": "1" * 5000},
        {"/app-1/jobs": [job(1, 1)] * 20_000},
        {"/app-1/executors": [None]},
        {"/app-1/executors": [{**executor("0", "x" * 500)}]},
        {"/app-1/executors": "<html>"},
    ],
    ids=range(17),
)
def test_an_answer_of_another_shape_is_none(answers: dict[str, Any]) -> None:
    port = free_port(ADDRESS)
    whole = {"/app-1/executors": EXECUTORS, "/app-1/jobs": [job(4, 1)]}
    with driver("mine.main.1", port, whole | answers):
        assert Applications().ask("mine.main.1", ADDRESS, port) is None


@contextmanager
def hostile(act: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port where each connection is treated so, until the end."""
    with socket.create_server((ADDRESS, 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(connection,), daemon=True).start()

        def one(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                act(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def drip(head: bytes, more: bytes) -> Callable[[socket.socket], None]:
    def act(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(more)
            time.sleep(0.1)

    return act


SLOW = {
    "drips headers": drip(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "drips a body": drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n[", b" "),
    "is silent": lambda connection: time.sleep(60.0),
}


@pytest.mark.real
@pytest.mark.parametrize("act", SLOW.values(), ids=SLOW)
def test_a_slow_driver_is_cut_off_and_left_alone(act: Callable[[socket.socket], None]) -> None:
    with hostile(act) as port:
        applications = Applications()
        began_s = time.monotonic()
        assert applications.ask("mine.main.1", ADDRESS, port) is None
        took_s = time.monotonic() - began_s
        assert 1.0 < took_s < 30.0
        began_s = time.monotonic()
        assert applications.ask("mine.main.1", ADDRESS, port) is None
        assert time.monotonic() - began_s < took_s / 2


def test_an_endless_or_packed_answer_and_a_redirect_are_none() -> None:
    sent = 0

    def endless(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n[")
        while True:
            sent += connection.send(b" " * 65536)

    with hostile(endless) as port:
        assert Applications().ask("mine.main.1", ADDRESS, port) is None
        # Some more lies in buffers of the two systems.
        assert sent < 64 << 20

    asked: list[bytes] = []

    def redirect(connection: socket.socket) -> None:
        asked.append(connection.recv(65536).split(b" ")[1])
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: /secret\r\nContent-Length: 0\r\n\r\n")

    with hostile(redirect) as port:
        assert Applications().ask("mine.main.1", ADDRESS, port) is None
        assert set(asked) == {b"/api/v1/applications"}

    def packed(connection: socket.socket) -> None:
        body = gzip.compress(b" " * (100 << 20))
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)

    with hostile(packed) as port:
        assert Applications().ask("mine.main.1", ADDRESS, port) is None
