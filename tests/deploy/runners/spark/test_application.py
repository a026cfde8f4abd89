"""Drivers' monitoring endpoints, played by a small server."""

from __future__ import annotations

import gzip
import json
import os
import socket
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotweave.deploy.runners.spark.application import ATTEMPT_CONF, Applications, BatchLog, parse
from spotweave.deploy.runners.spark.cluster import free_port
from tests.deploy.runners.patience import Act, drip, peer

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


def driver(attempt_id: str, port: int, answers: dict[str, Any]) -> AbstractContextManager[int]:
    """A driver of this attempt."""
    answers = {
        "": [{"id": "app-1"}],
        "/app-1/environment": {"sparkProperties": [["spark.x", "1"], [ATTEMPT_CONF, attempt_id]]},
    } | answers

    def act(connection: socket.socket) -> None:
        path = connection.recv(65536).split(b" ")[1].decode()
        answer = answers[path.removeprefix("/api/v1/applications")]
        body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + body)

    return peer(act, port=port)


def two_ports() -> int:
    """A port that is free, and so is the next."""
    while True:
        port = free_port(ADDRESS)
        try:
            socket.create_server((ADDRESS, port + 1)).close()
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


SLOW: dict[str, Act] = {
    "drips headers": drip(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "drips a body": drip(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n[", b" "),
    "is silent": lambda connection: time.sleep(60.0),
}


@pytest.mark.real
@pytest.mark.parametrize("act", SLOW.values(), ids=SLOW)
def test_a_slow_driver_is_cut_off_and_left_alone(act: Act) -> None:
    with peer(act) as port:
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

    with peer(endless) as port:
        assert Applications().ask("mine.main.1", ADDRESS, port) is None
        # Some more lies in buffers of the two systems.
        assert sent < 64 << 20

    asked: list[bytes] = []

    def redirect(connection: socket.socket) -> None:
        asked.append(connection.recv(65536).split(b" ")[1])
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: /secret\r\nContent-Length: 0\r\n\r\n")

    with peer(redirect) as port:
        assert Applications().ask("mine.main.1", ADDRESS, port) is None
        assert set(asked) == {b"/api/v1/applications"}

    def packed(connection: socket.socket) -> None:
        body = gzip.compress(b" " * (100 << 20))
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)

    with peer(packed) as port:
        assert Applications().ask("mine.main.1", ADDRESS, port) is None


# Batches counted from event logs.


PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"


def progress(batch: int, duration_ms: int, query: str = "q", work: bool = True) -> str:
    durations = {"triggerExecution": duration_ms} | ({"addBatch": duration_ms // 2} if work else {})
    found = {"id": query, "runId": "r", "name": None, "batchId": batch, "durationMs": durations}
    found["timestamp"] = f"1970-01-01T00:{batch:02}:00.000Z"
    return json.dumps({"Event": PROGRESS, "progress": found}) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> BatchLog:
    return BatchLog(tmp_path / "events", tmp_path / "batches.json", deadline_s=2.0)


def write(log: BatchLog, text: str, attempt: int = 1, file: int = 1, app: str = "app-1") -> Path:
    folder = log._folder / str(attempt) / f"eventlog_v2_{app}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"events_{file}_{app}").open("a") as events:
        events.write(text)
    return folder / f"events_{file}_{app}"


OTHER = json.dumps({"Event": "SparkListenerJobEnd", "text": PROGRESS}) + "\n"
LATER: dict[str, Any] = {"attempt": 2, "app": "app-2"}
LOGS: dict[str, tuple[list[tuple[str, dict[str, Any]]], tuple[int, int, float | None, float | None]]] = {
    "nothing yet": ([], (0, 0, None, None)),
    "one over its deadline and one on it": (
        [(progress(0, 2001) + progress(1, 2000) + progress(2, 400), {})],
        (3, 1, 0.4, 120.0),
    ),
    "repeated by a new driver": (
        [(progress(0, 100) + progress(1, 100), {}), (progress(1, 9000) + progress(2, 100), LATER)],
        (3, 0, 0.1, 120.0),
    ),
    "idle, and another event": (
        [(progress(0, 100) + progress(1, 9000, work=False) + OTHER, {})],
        (1, 0, 0.1, 0),
    ),
    "idle, then done": ([(progress(1, 9000, work=False) + progress(1, 9000), {})], (1, 1, 9.0, 60.0)),
    "in the order of their numbers": (
        [
            (progress(2, 300), {"file": 10}),
            (progress(1, 200), {"file": 9}),
            (progress(3, 400), {"attempt": 10}),
            (progress(0, 100), {"file": 2}),
        ],
        (4, 0, 0.4, 180.0),
    ),
}


@pytest.mark.parametrize(("written", "told"), LOGS.values(), ids=LOGS)
def test_each_batch_counts_once_and_over_its_deadline_as_a_miss(
    log: BatchLog, written: list[tuple[str, dict[str, Any]]], told: tuple[float | None, ...]
) -> None:
    for text, where in written:
        write(log, text, **where)
    found = log.read()
    assert (found.done, found.misses, found.latest_s, found.triggered_s) == told


def test_what_was_counted_survives_a_restart_and_is_not_counted_again(log: BatchLog, tmp_path: Path) -> None:
    write(log, progress(0, 3000))
    log.read()
    write(log, progress(1, 3000))
    again = BatchLog(tmp_path / "events", tmp_path / "batches.json", deadline_s=2.0)
    assert (again.read().done, again.read().misses) == (2, 2)


def test_half_a_line_is_read_when_it_is_whole(log: BatchLog) -> None:
    line = progress(0, 100)
    write(log, line[:50])
    assert log.read().done == 0
    write(log, line[50:])
    assert log.read().done == 1


def test_logs_that_are_read_are_removed_but_for_the_newest(log: BatchLog) -> None:
    old = write(log, progress(0, 100), file=1)
    new = write(log, progress(1, 100), file=2)
    assert log.read().done == 2
    assert not old.exists()
    assert new.exists()
    assert log.read().done == 2


@pytest.mark.real
@given(
    batches=st.lists(st.integers(1, 5000), min_size=1, max_size=30),
    looks=st.lists(st.integers(0, 4000), max_size=8),
)
def test_when_one_looks_changes_no_count(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], looks: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("law")
    log = BatchLog(folder / "events", folder / "batches.json", deadline_s=2.0)
    text = "".join(progress(number, duration) for number, duration in enumerate(batches))
    at = 0
    for look in sorted(min(look, len(text)) for look in looks):
        write(log, text[at:look])
        at = look
        log.read()
    write(log, text[at:])
    found = log.read()
    assert found.done == len(batches)
    assert found.misses == sum(duration > 2000 for duration in batches)
    assert found.latest_s == batches[-1] / 1000


HOSTILE = [
    '{"Event": "' + PROGRESS + '", "progress": {"id": "q", "batchId": 7',
    json.dumps({"Event": PROGRESS}),
    json.dumps({"Event": PROGRESS, "progress": []}),
    json.dumps([PROGRESS]),
    json.dumps(PROGRESS),
    progress(10**30, 100).rstrip(),
    progress(-1, 100).rstrip(),
    progress(5, 10**30).rstrip(),
    progress(5, -1).rstrip(),
    progress(5, 100).rstrip().replace('"addBatch": 50', '"addBatch": "x"'),
    progress(5, 100).rstrip().replace('"triggerExecution": 100', '"triggerExecution": NaN'),
    progress(5, 100).rstrip().replace("1970-01-01T00:05:00.000Z", "soon"),
    progress(5, 100).rstrip().replace("100", "1" * 5000),
    progress(5, 100, query="q" * 1000).rstrip(),
    "[" * 100_000 + PROGRESS,
    PROGRESS + "\udcff\0",
]


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_a_line_that_makes_no_sense_is_no_batch_and_hides_none(log: BatchLog, line: str) -> None:
    place = write(log, progress(0, 100))
    with place.open("ab") as file:
        file.write(line.encode(errors="surrogateescape") + b"\n" + progress(1, 300).encode())
    found = log.read()
    assert (found.done, found.latest_s) == (2, 0.3)
    assert log.read() == found


def test_a_look_reads_no_more_than_its_share(log: BatchLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotweave.deploy.runners.spark.application._LOOK_BYTES", 4096)
    monkeypatch.setattr("spotweave.deploy.runners.spark.application._LINE_BYTES", 1024)
    place = write(log, progress(0, 100))
    with place.open("a") as file:
        file.write("x" * 10_000 + "\n" + progress(1, 200))
    done = [log.read().done for _ in range(4)]
    assert done[0] == 1
    assert done[-1] == 2


def test_links_pipes_and_crowds_do_no_harm(log: BatchLog, tmp_path: Path) -> None:
    secret = tmp_path / "precious"
    secret.write_text(progress(0, 100))
    write(log, progress(0, 100), attempt=2)
    folder = log._folder / "1" / "eventlog_v2_x"
    folder.mkdir(parents=True)
    (folder / "events_1_x").symlink_to(secret)
    os.mkfifo(folder / "events_2_x")
    (log._folder / "1" / "eventlog_v2_y").symlink_to(tmp_path)
    for number in range(3000):
        (folder / f"other_{number}").touch()
    for _ in range(2):
        assert log.read().done == 1
    assert secret.exists()


def test_more_queries_than_anybody_has_are_not_counted(log: BatchLog) -> None:
    write(log, "".join(progress(0, 1, query=f"q{number}") for number in range(1500)))
    assert len(log.read().newest) == 1000


@pytest.mark.parametrize("content", ["", "{", "[]", '{"done": "x"}', '{"done": 1, "more": 2}'])
def test_a_damaged_record_begins_again(log: BatchLog, tmp_path: Path, content: str) -> None:
    write(log, progress(0, 100) + progress(1, 100))
    assert log.read().done == 2
    (tmp_path / "batches.json").write_text(content)
    assert log.read().done == 2


def test_folders_of_earlier_attempts_do_not_pile_up(log: BatchLog) -> None:
    for attempt in range(1, 6):
        write(log, progress(attempt, 100), attempt=attempt)
    assert log.read().done == 5
    assert not (log._folder / "4").exists()
    assert (log._folder / "5").exists()
