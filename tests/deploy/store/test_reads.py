"""Reads: of many rows at once, and those that a pass does once."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from deploy.billing import Bill
from deploy.model.instances import InstanceState
from deploy.model.jobs import JobState, TaskKey
from deploy.model.tasks import Phase, TaskReport
from deploy.store.intents import IntentKind
from deploy.store.store import Store
from tests.deploy.store.cases import FEDERATED, add_job, report, request
from tests.deploy.store.conftest import NOW


def test_tasks_that_wait_and_tasks_that_are_placed(store: Store) -> None:
    add_job(store, "j1")
    add_job(store, "j2", FEDERATED, submitted_s=NOW + 1)
    add_job(store, "j3", submitted_s=NOW + 2)
    one, two = (TaskKey("j2", f"client-{name}") for name in ("one", "two"))
    with store.transaction():
        store.tasks.begin(two, ["i1"], NOW + 5)
        store.jobs.set_state("j3", JobState.CANCELLED, NOW + 6)
    assert [row.key for row in store.tasks.waiting()] == [TaskKey("j1", "main"), one]
    assert [task.key for task in store.tasks.placed()] == [two]
    with store.transaction():
        kept = store.tasks.report_all(
            [
                TaskReport(two, 1, Phase.RUNNING, 0.5, 0.25, "half", details={"log": "x"}),
                TaskReport(one, 1, Phase.RUNNING),
                TaskReport(TaskKey("j9", "main"), 1, Phase.RUNNING),
            ],
            NOW + 9,
        )
    assert [(before.phase, told.phase) for before, told in kept] == [(Phase.STARTING, Phase.RUNNING)]
    task = store.tasks.get(two)
    assert (task.phase, task.progress, task.saved, task.message) == (Phase.RUNNING, 0.5, 0.25, "half")
    assert (task.details, task.reported_s) == ({"log": "x"}, NOW + 9)


def test_named_jobs_instances_and_bills(store: Store) -> None:
    for number in (1, 2):
        add_job(store, f"j{number}")
        request(store, f"i{number}", job_id=f"j{number}")
        report(store, f"i{number}", client_token=f"token-i{number}")
    report(store, "i1", InstanceState.TERMINATED, ended_s=NOW + 100, now_s=NOW + 100)
    assert set(store.jobs.named({"j1", "j2", "j3"})) == {"j1", "j2"}
    found = store.instances.named({"i1", "i2", "i3"})
    assert found == {name: store.instances.get(name) for name in ("i1", "i2")}
    later_s = NOW + 1000
    bills = store.costs.of_jobs(["j1", "j2", "j3"], later_s)
    assert bills == {name: store.costs.of_job(name, later_s) for name in ("j1", "j2", "j3")}
    assert (bills["j1"].seconds, bills["j2"].seconds, bills["j3"]) == (100, 1000, Bill())


def test_intents_by_kind(store: Store) -> None:
    with store.transaction():
        store.intents.add(IntentKind.START, "a", {}, NOW)
        store.intents.add(IntentKind.LAUNCH, "b", {}, NOW)
        store.intents.done(store.intents.add(IntentKind.LAUNCH, "c", {}, NOW).intent_id, NOW)
    assert store.intents.pending_targets(IntentKind.LAUNCH, IntentKind.STOP) == {"b"}
    assert [one.target for one in store.intents.due(NOW, kinds=(IntentKind.START,))] == ["a"]


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
