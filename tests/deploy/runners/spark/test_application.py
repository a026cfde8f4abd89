"""Drivers' monitoring endpoints, played by a small server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from deploy.runners.spark.application import ATTEMPT_CONF, Applications, parse
from deploy.runners.spark.master import free_port

ADDRESS = "127.0.0.1"


def job(tasks: int, done: int, skipped: int = 0, failed: int = 0) -> dict[str, int]:
    return {
        "numTasks": tasks,
        "numCompletedTasks": done,
        "numSkippedTasks": skipped,
        "numFailedTasks": failed,
    }


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
