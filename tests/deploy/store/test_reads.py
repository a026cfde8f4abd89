"""Reads of many rows at once, those that a pass does once, and spans of attempts; figures by hand."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from deploy.billing import Bill
from deploy.model.instances import InstanceState
from deploy.model.jobs import Flower, FlowerClient, JobSpec, JobState, TaskKey
from deploy.model.tasks import Phase, TaskReport
from deploy.store.gantt import Span, Sums
from deploy.store.intents import IntentKind
from deploy.store.store import Store
from tests.deploy.store.cases import FEDERATED, ON_DEMAND, SPOT, add_job, rent, report, request
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
        rent(store, f"i{number}", job_id=f"j{number}", client_token=f"token-i{number}")
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


KEY = TaskKey("j1", "main")
GONE = InstanceState.TERMINATED


def attempts(store: Store) -> None:
    """First two spot instances, of which the provider takes one early and one late; then one on demand."""
    for name in ("i1", "i2"):
        rent(store, name, launched_s=NOW + 1)
    with store.transaction():
        store.instances.ready("i1", NOW + 30)
        store.instances.ready("i2", NOW + 40)
        store.instances.noticed("i2", NOW + 300)
    report(store, "i1", GONE, launched_s=NOW + 1, ended_s=NOW + 100, by_provider=True)
    report(store, "i2", GONE, launched_s=NOW + 1, ended_s=NOW + 300, by_provider=True)
    request(store, "i3", ON_DEMAND, now_s=NOW + 310)
    report(store, "i3", launched_s=NOW + 311)


def test_instances_that_were_asked_for_together_are_one_span(store: Store) -> None:
    attempts(store)
    spans = store.gantt.spans(["j1"], 10, 100)
    assert [span.usd_hour for span in spans] == pytest.approx([0.072, 0.096])
    assert [replace(span, usd_hour=0.0) for span in spans] == [
        # Instances, USD per hour; asked for, launched, ready, ended, noticed; interruptions.
        Span(
            *(KEY, SPOT.offer_id, "spot", 2, 0.0),
            *(NOW, NOW + 1, NOW + 40, NOW + 300, NOW + 300),
            (NOW + 100, NOW + 300),
        ),
        Span(KEY, ON_DEMAND.offer_id, "on_demand", 1, 0.0, NOW + 310, NOW + 311, None, None, None, ()),
    ]


def test_a_span_is_open_until_the_last_instance_has_ended(store: Store) -> None:
    for name in ("i1", "i2"):
        rent(store, name)
    report(store, "i1", GONE, ended_s=NOW + 50, by_provider=True)
    (span,) = store.gantt.spans(["j1"], 10, 100)
    assert span.ended_s is None
    assert span.ready_s is None
    assert span.interruptions == (NOW + 50,)


def test_an_instance_that_we_end_is_no_interruption_and_one_that_was_refused_never_ran(store: Store) -> None:
    rent(store, "i1")
    report(store, "i1", GONE, ended_s=NOW + 90)
    request(store, "i2", now_s=NOW + 100)
    with store.transaction():
        store.instances.ended("i2", NOW + 105)
    ran, refused = store.gantt.spans(["j1"], 10, 100)
    assert (ran.interruptions, ran.ended_s) == ((), NOW + 90)
    assert (refused.launched_s, refused.ended_s) == (None, NOW + 105)


def test_only_the_latest_spans_of_the_first_lanes_of_the_named_jobs(store: Store) -> None:
    attempts(store)
    add_job(store, "j2")
    request(store, "other", job_id="j2")
    clients = tuple(FlowerClient(name=f"c{k}") for k in range(3))
    spec = JobSpec(name="fl", work=Flower(app="app", rounds=1, clients=clients))
    add_job(store, "fl", spec)
    for k in range(3):
        request(store, f"f{k}", job_id="fl", task=f"client-c{k}")
    assert [span.offer_id for span in store.gantt.spans(["j1"], 10, 1)] == [ON_DEMAND.offer_id]
    assert {span.key.job_id for span in store.gantt.spans(["j1"], 10, 100)} == {"j1"}
    assert sorted(span.key.task for span in store.gantt.spans(["fl"], 2, 100)) == ["client-c0", "client-c1"]
    assert [task.key.task for task in store.gantt.lanes(["fl", "j1"], 2)["fl"]] == ["client-c0", "client-c1"]
    assert store.gantt.spans([], 10, 100) == []


def test_sums_are_of_all_tasks(store: Store) -> None:
    add_job(store, "fl", FEDERATED)
    key = TaskKey("fl", "client-one")
    with store.transaction():
        attempt = store.tasks.begin(key, [], NOW)
        store.tasks.report(TaskReport(key, attempt, Phase.RUNNING, progress=0.5, misses=3), NOW)
    assert store.gantt.sums(["fl"]) == {"fl": Sums(tasks=2, tasks_done=0, progress=0.25, misses=3)}


def test_waiting_jobs_come_from_the_oldest_on_and_others_from_the_newest_on(store: Store) -> None:
    for k in range(3):
        add_job(store, f"wait-{k}", submitted_s=NOW + k)
        add_job(store, f"run-{k}", submitted_s=NOW + k, state=JobState.RUNNING)
    assert [job.job_id for job in store.gantt.jobs(JobState.PENDING, 2)] == ["wait-0", "wait-1"]
    assert [job.job_id for job in store.gantt.jobs(JobState.RUNNING, 2)] == ["run-2", "run-1"]


def test_used_and_newest_instances_are_the_live_ones(store: Store) -> None:
    attempts(store)
    request(store, "i4", now_s=NOW + 400)
    assert store.instances.used() == {SPOT.offer_id: 1, ON_DEMAND.offer_id: 1}
    assert [one.instance_id for one in store.instances.newest_live(10)] == ["i4", "i3"]
    assert [one.instance_id for one in store.instances.newest_live(1)] == ["i4"]
