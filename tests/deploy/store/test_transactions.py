"""Transactions: whole or not at all, one writer at a time, also when it is killed."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from spotweave.deploy.store.store import Store
from tests.deploy.store.cases import a_job, add_job, at_once
from tests.deploy.store.conftest import NOW, Place


def written_and_failed(store: Store, kind: str) -> None:
    with store.transaction():
        store.events.add(kind, NOW)
        raise ZeroDivisionError


def test_what_fails_leaves_nothing(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        written_and_failed(store, "job.submitted")
    assert store.events.last_sequence() == 0
    add_job(store)


def test_writing_needs_a_transaction(store: Store) -> None:
    with pytest.raises(RuntimeError, match=r"outside of `with store.transaction\(\)`"):
        store.events.add("a.b", NOW)
    with pytest.raises(RuntimeError, match="inside a snapshot"), store.snapshot(), store.transaction():
        pass


def test_an_inner_transaction_is_a_part_of_the_outer_one(store: Store) -> None:
    def inner_done_outer_failed() -> None:
        with store.transaction():
            with store.transaction():
                store.events.add("inner.done", NOW)
            raise ZeroDivisionError

    with store.transaction():
        store.events.add("outer.begun", NOW)
        with pytest.raises(ZeroDivisionError):
            written_and_failed(store, "inner.undone")
        with store.transaction():
            store.events.add("inner.kept", NOW)
    assert [event.kind for event in store.events.after(0, 9)] == ["outer.begun", "inner.kept"]
    with pytest.raises(ZeroDivisionError):
        inner_done_outer_failed()
    assert len(store.events.after(0, 9)) == 2


def test_a_writer_sees_its_own_writing_and_nobody_else_does_before_the_commit(place: Place) -> None:
    with place.open() as writer, place.open() as reader:
        with writer.transaction():
            writer.jobs.add(a_job())
            assert writer.jobs.get("j1").job_id == "j1"
            assert reader.jobs.live() == [], "and is not held up"
        assert [job.job_id for job in reader.jobs.live()] == ["j1"]


def test_a_snapshot_is_of_one_moment(place: Place) -> None:
    with place.open() as writer, place.open() as reader:
        add_job(writer, "j1")
        with reader.snapshot():
            assert len(reader.jobs.live()) == 1
            add_job(writer, "j2")
            assert len(reader.jobs.live()) == 1
            assert len(reader.tasks.waiting()) == 1
            with reader.snapshot():
                assert len(reader.jobs.live()) == 1
        assert len(reader.jobs.live()) == 2


@pytest.mark.parametrize("processes", [1, 2])
def test_who_reads_and_then_writes_waits_for_its_turn_and_loses_no_count(
    place: Place, processes: int
) -> None:
    """One that took the lock of SQLite only when it writes would fail: what it has read is old by then."""
    with place.open() as first, place.open() as second:
        add_job(first)

        def count(store: Store) -> None:
            for _ in range(10):
                with store.transaction():
                    assert store.jobs.get("j1").state.live
                    store.jobs.count_user_failure("j1")

        at_once(*(partial(count, store) for store in (first, second)[:processes] * (4 // processes)))
        assert first.jobs.get("j1").user_failures == 40


ROOT = Path(__file__).resolve().parents[3]


def start(place: Place, when: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.deploy.store.writer", place.url, str(place.key_file), str(when)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def whole(store: Store) -> int:
    """How many of the writer's transactions are there; each must be there whole."""
    with store.snapshot():
        jobs = [job.job_id[1:] for job in store.jobs.live()]
        assert [task.key.job_id[1:] for task in store.tasks.waiting()] == jobs
        assert [one.instance_id[1:] for one in store.instances.live()] == jobs
        assert sorted(intent.target[1:] for intent in store.intents.pending()) == sorted(jobs)
        events = [event.instance_id or "" for event in store.events.after(0, 100_000)]
        assert sorted(name[1:] for name in events) == sorted(jobs)
    return len(jobs)


def killed(writer: subprocess.Popen[str]) -> int:
    """Wait for its end. Returns how many transactions it was told are committed."""
    assert writer.stdout is not None
    with writer:
        try:
            told = writer.stdout.read().split()
        finally:
            writer.kill()
    assert writer.returncode == -9
    return len(told)


@pytest.mark.real
def test_kills_between_statements_leave_whole_transactions_and_what_was_told(place: Place) -> None:
    """The 30th statement or so is in the third transaction; offsets go from its begin to its commit."""
    there = 0
    for offset in (2, 5, 8, 11, 14):
        committed = killed(start(place, 30 + offset))
        assert committed > 0
        with place.open() as store:
            told, there = there + committed, whole(store)
            assert there in (told, told + 1), "a commit may have ended before it could be told"
            store.lead().release()
