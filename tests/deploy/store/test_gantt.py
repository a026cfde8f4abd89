"""Spans of attempts, lanes and sums; all figures by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.model.instances import InstanceState
from deploy.model.jobs import Flower, FlowerClient, JobSpec, JobState, TaskKey
from deploy.model.tasks import Phase, TaskReport
from deploy.store.gantt import Span, Sums
from deploy.store.store import Store
from tests.deploy.store.cases import FEDERATED, ON_DEMAND, SPOT, add_job, report, request
from tests.deploy.store.conftest import NOW

KEY = TaskKey("j1", "main")
GONE = InstanceState.TERMINATED


def attempts(store: Store) -> None:
    """First two spot instances, of which the provider takes one early and one late; then one on demand."""
    add_job(store)
    for name in ("i1", "i2"):
        request(store, name)
        report(store, name, launched_s=NOW + 1)
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
        Span(
            KEY,
            SPOT.offer_id,
            "spot",
            instances=2,
            usd_hour=0.0,
            requested_s=NOW,
            launched_s=NOW + 1,
            ready_s=NOW + 40,
            ended_s=NOW + 300,
            notice_s=NOW + 300,
            interruptions=(NOW + 100, NOW + 300),
        ),
        Span(
            KEY,
            ON_DEMAND.offer_id,
            "on_demand",
            instances=1,
            usd_hour=0.0,
            requested_s=NOW + 310,
            launched_s=NOW + 311,
            ready_s=None,
            ended_s=None,
            notice_s=None,
            interruptions=(),
        ),
    ]


def test_a_span_is_open_until_the_last_instance_has_ended(store: Store) -> None:
    add_job(store)
    for name in ("i1", "i2"):
        request(store, name)
        report(store, name)
    report(store, "i1", GONE, ended_s=NOW + 50, by_provider=True)
    (span,) = store.gantt.spans(["j1"], 10, 100)
    assert span.ended_s is None
    assert span.ready_s is None
    assert span.interruptions == (NOW + 50,)


def test_an_instance_that_we_end_is_no_interruption_and_one_that_was_refused_never_ran(store: Store) -> None:
    add_job(store)
    request(store, "i1")
    report(store, "i1")
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
        with store.transaction():
            store.instances.request(
                f"f{k}", SPOT, TaskKey("fl", f"client-c{k}"), client_token=f"f{k}", node_token="", now_s=NOW
            )
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
