"""Batches counted from event logs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.runners.spark.streaming import BatchLog

PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"


def progress(batch: int, duration_ms: int, query: str = "q", work: bool = True) -> str:
    durations = {"triggerExecution": duration_ms} | ({"addBatch": duration_ms // 2} if work else {})
    found = {"id": query, "runId": "r", "name": None, "batchId": batch, "durationMs": durations}
    return json.dumps({"Event": PROGRESS, "progress": found}) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> BatchLog:
    return BatchLog(tmp_path / "events", tmp_path / "batches.json", deadline_s=2.0)


def write(log: BatchLog, text: str, attempt: int = 1, file: int = 1, app: str = "app-1") -> Path:
    folder = log.attempt_folder(attempt) / f"eventlog_v2_{app}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"events_{file}_{app}").open("a") as events:
        events.write(text)
    return folder / f"events_{file}_{app}"


def test_nothing_is_known_before_the_first_batch(log: BatchLog) -> None:
    batches = log.read()
    assert (batches.done, batches.misses, batches.latest_s) == (0, 0, None)


def test_a_batch_over_its_deadline_is_a_miss_and_one_on_it_is_not(log: BatchLog) -> None:
    write(log, progress(0, 2001) + progress(1, 2000) + progress(2, 400))
    batches = log.read()
    assert (batches.done, batches.misses, batches.latest_s) == (3, 1, 0.4)


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


def test_a_batch_that_a_new_driver_repeats_counts_once(log: BatchLog) -> None:
    write(log, progress(0, 100) + progress(1, 100))
    write(log, progress(1, 9000) + progress(2, 100), attempt=2, app="app-2")
    batches = log.read()
    assert (batches.done, batches.misses) == (3, 0)


def test_idle_reports_and_other_events_are_no_batches(log: BatchLog) -> None:
    other = json.dumps({"Event": "SparkListenerJobEnd", "text": PROGRESS}) + "\n"
    write(log, progress(0, 100) + progress(1, 9000, work=False) + other)
    assert log.read().done == 1
    write(log, progress(1, 9000))
    assert (log.read().done, log.read().misses) == (2, 1)


def test_attempts_and_files_are_read_in_the_order_of_their_numbers(log: BatchLog) -> None:
    write(log, progress(2, 300), file=10)
    write(log, progress(1, 200), file=9)
    write(log, progress(3, 400), attempt=10)
    write(log, progress(0, 100), file=2)
    batches = log.read()
    assert (batches.done, batches.latest_s) == (4, 0.4)


def test_logs_that_are_read_are_removed_but_for_the_newest(log: BatchLog) -> None:
    old = write(log, progress(0, 100), file=1)
    new = write(log, progress(1, 100), file=2)
    assert log.read().done == 2
    assert not old.exists()
    assert new.exists()
    assert log.read().done == 2


@pytest.mark.real
@settings(deadline=None)
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
    monkeypatch.setattr("deploy.runners.spark.streaming._LOOK_BYTES", 4096)
    monkeypatch.setattr("deploy.runners.spark.streaming._LINE_BYTES", 1024)
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
    folder = log.attempt_folder(1) / "eventlog_v2_x"
    folder.mkdir(parents=True)
    (folder / "events_1_x").symlink_to(secret)
    os.mkfifo(folder / "events_2_x")
    (log.attempt_folder(1) / "eventlog_v2_y").symlink_to(tmp_path)
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
    assert not log.attempt_folder(4).exists()
    assert log.attempt_folder(5).exists()
