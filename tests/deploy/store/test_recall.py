"""Reads that a pass does once: what they are answered from, and when they are done again."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from deploy.model.instances import InstanceState
from deploy.model.jobs import JobState, TaskKey
from deploy.model.tasks import Phase, TaskReport
from deploy.store.store import Store
from tests.deploy.store.cases import add_job, report, request
from tests.deploy.store.conftest import NOW

ONE, TWO = TaskKey("j1", "main"), TaskKey("j2", "main")


@pytest.fixture
def two_jobs(store: Store) -> Store:
    """One that waits, and one that has a place."""
    add_job(store, "j1")
    add_job(store, "j2")
    request(store, "i2", job_id="j2")
    with store.transaction():
        store.tasks.begin(TWO, ["i2"], NOW)
    return store


def test_what_nobody_writes_to_is_read_once(two_jobs: Store) -> None:
    with two_jobs.remembering():
        assert two_jobs.tasks.placed() is two_jobs.tasks.placed()
        assert two_jobs.tasks.waiting() is two_jobs.tasks.waiting()
        assert two_jobs.instances.named(["i2"])["i2"] is two_jobs.instances.named(["i2"])["i2"]
        with two_jobs.transaction():
            two_jobs.events.add("x.y", NOW)
        assert [task.key for task in two_jobs.tasks.placed()] == [TWO]
    assert two_jobs.tasks.placed() is not two_jobs.tasks.placed()


def test_what_was_written_is_seen(two_jobs: Store) -> None:
    with two_jobs.remembering():
        before, waiting = two_jobs.tasks.placed(), two_jobs.tasks.waiting()
        with two_jobs.transaction():
            two_jobs.tasks.report_all([TaskReport(TWO, 1, Phase.RUNNING, progress=0.5)], NOW + 1)
            (own,) = two_jobs.tasks.placed()
            assert own.phase is Phase.RUNNING, "in the transaction itself too"
        (after,) = two_jobs.tasks.placed()
        assert (before[0].progress, after.progress) == (0.0, 0.5)
        assert two_jobs.tasks.waiting() is waiting, "of those that wait no runner says anything"
        with two_jobs.transaction():
            two_jobs.tasks.begin(ONE, ["i2"], NOW)
        assert [row.key for row in two_jobs.tasks.waiting()] == []
        assert two_jobs.jobs.named(["j1"])["j1"].state is JobState.PENDING
        with two_jobs.transaction():
            two_jobs.jobs.set_state("j1", JobState.CANCELLED, NOW)
        assert two_jobs.jobs.named(["j1"])["j1"].state is JobState.CANCELLED
        assert [task.key for task in two_jobs.tasks.placed()] == [TWO]


def test_what_is_undone_is_not_kept(two_jobs: Store) -> None:
    with two_jobs.remembering():
        with suppress(KeyError), two_jobs.transaction():
            two_jobs.tasks.begin(ONE, ["i2"], NOW)
            assert two_jobs.tasks.waiting() == []
            raise KeyError
        assert [row.key for row in two_jobs.tasks.waiting()] == [ONE]


def test_what_another_thread_writes_is_seen(two_jobs: Store) -> None:
    with two_jobs.remembering():
        assert two_jobs.instances.live()[0].state is InstanceState.REQUESTED
        other = threading.Thread(target=report, args=(two_jobs, "i2"), kwargs={"client_token": "token-i2"})
        other.start()
        other.join()
        assert two_jobs.instances.live()[0].state is InstanceState.LAUNCHING
