"""Events, decisions and intents: what is written down, kept, and backed up."""

from __future__ import annotations

import sqlite3
import stat
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from spotweave.deploy.billing import Bill
from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.model.jobs import Flower, FlowerClient, JobSpec, JobState, TaskKey
from spotweave.deploy.model.tasks import Phase, TaskReport
from spotweave.deploy.store import jobs
from spotweave.deploy.store.backup import backup
from spotweave.deploy.store.database import Database
from spotweave.deploy.store.errors import NotFoundError, StoreError
from spotweave.deploy.store.events import Event
from spotweave.deploy.store.gantt import Span, Sums
from spotweave.deploy.store.intents import CandidateRecord, DecisionRecord, IntentKind, IntentState, Mode
from spotweave.deploy.store.store import Store
from tests.deploy.bills import wrong_charges
from tests.deploy.store.cases import (
    FEDERATED,
    ON_DEMAND,
    SPOT,
    add_job,
    at_once,
    price,
    rent,
    report,
    request,
)
from tests.deploy.store.conftest import NOW, Place

MAIN = TaskKey("j1", "main")
DECISION = DecisionRecord(
    time_s=NOW,
    policy="multicloud-v2",
    mode=Mode.ACT,
    key=MAIN,
    candidates=(
        CandidateRecord("aws/spot", {"cost": 0.25, "deadline": -1.0}, 0.036, True, "cheapest"),
        CandidateRecord("aws/od", {"cost": -0.5, "deadline": 0.0}, 0.096, False, "no capacity\0"),
        CandidateRecord(None),
    ),
    chosen="aws/spot",
    latency_s=0.004,
    shadow_policy="rule",
    shadow_choice=None,
    shadow_difference=0.125,
)


def test_an_intent_is_there_after_a_restart_until_it_is_confirmed(place: Place) -> None:
    with place.open() as store, store.transaction():
        made = store.intents.add(IntentKind.LAUNCH, "i1", {"offer": "aws/spot", "n": 1}, NOW)
    with place.open() as store:
        assert store.intents.pending() == [made] == store.intents.due(NOW)
        assert made.payload == {"offer": "aws/spot", "n": 1}
        with store.transaction():
            assert store.intents.done(made.intent_id, NOW + 1)
            assert not store.intents.done(made.intent_id, NOW + 2)
            assert not store.intents.failed(made.intent_id, "late", NOW + 2)
            assert not store.intents.retry(made.intent_id, "late", NOW + 9)
        known = store.intents.get(made.intent_id)
        assert (known.state, known.ended_s, known.error, known.attempts) == (IntentState.DONE, NOW + 1, "", 0)
        assert store.intents.pending() == []


def test_the_same_is_not_intended_twice_at_once(store: Store) -> None:
    with store.transaction():
        first = store.intents.add(IntentKind.TERMINATE, "i1", {"n": 1}, NOW)
        assert store.intents.add(IntentKind.TERMINATE, "i1", {"n": 2}, NOW + 1) == first
        other = store.intents.add(IntentKind.DRAIN, "i1", {}, NOW)
        store.intents.failed(first.intent_id, "refused", NOW)
        again = store.intents.add(IntentKind.TERMINATE, "i1", {"n": 3}, NOW + 2)
    assert len({first.intent_id, other.intent_id, again.intent_id}) == 3
    refused = store.intents.get(first.intent_id)
    assert (refused.attempts, refused.ended_s, refused.error) == (1, NOW, "refused")
    assert refused.state is IntentState.FAILED
    assert [one.intent_id for one in store.intents.pending()] == [other.intent_id, again.intent_id]


def test_a_retry_waits_for_its_time(store: Store) -> None:
    with store.transaction():
        one = store.intents.add(IntentKind.LAUNCH, "i1", {}, NOW)
        two = store.intents.add(IntentKind.LAUNCH, "i2", {}, NOW)
        assert store.intents.due(NOW) == [one, two]
        assert store.intents.retry(one.intent_id, "no capacity", NOW + 10)
        assert store.intents.retry(two.intent_id, "no capacity", NOW + 5)
    assert store.intents.due(NOW + 4) == []
    assert [intent.intent_id for intent in store.intents.due(NOW + 5)] == [two.intent_id]
    assert [intent.target for intent in store.intents.due(NOW + 10)] == ["i1", "i2"]
    assert [intent.target for intent in store.intents.due(NOW + 10, limit=1)] == ["i1"]
    known = store.intents.get(one.intent_id)
    assert (known.error, known.attempts) == ("no capacity", 1)
    with store.transaction():
        store.intents.done(one.intent_id, NOW + 10)
        store.intents.failed(two.intent_id, "refused", NOW + 10)
    assert store.intents.due(NOW + 20) == []
    with pytest.raises(NotFoundError), store.transaction():
        store.intents.done(999, NOW)
    with pytest.raises(NotFoundError, match="there is no intent 999"):
        store.intents.get(999)


def test_a_decision_comes_back_with_its_candidates(store: Store) -> None:
    with store.transaction():
        made = store.decisions.add(DECISION)
    known = store.decisions.get(made.decision_id)
    assert known == replace(made, candidates=known.candidates)
    assert known.candidates[0] == DECISION.candidates[0]
    assert known.candidates[1].reason == "no capacity\N{REPLACEMENT CHARACTER}"
    assert known.candidates[2] == CandidateRecord(None)
    with store.transaction():
        other = store.decisions.add(replace(DECISION, key=TaskKey("j2", "main"), chosen=None))
    assert [one.decision_id for one in store.decisions.latest(5)] == [other.decision_id, made.decision_id]
    assert [one.key.job_id for one in store.decisions.latest(5, job_id="j2")] == ["j2"]
    with pytest.raises(NotFoundError, match="older than what is kept"):
        store.decisions.get(999)


def test_a_value_that_is_no_number_is_refused_and_nothing_kept(store: Store) -> None:
    with pytest.raises(Exception, match=r"(?i)not JSON compliant"), store.transaction():
        store.events.add("a.b", NOW, {"x": float("nan")})
    assert store.events.last_sequence() == 0


def test_events_are_read_from_a_number_on(store: Store) -> None:
    with store.transaction():
        first = store.events.add("job.submitted", NOW, {"name": "x"}, job_id="j1")
        second = store.events.add("task.placed", NOW + 1, key=MAIN, instance_id="i1", decision_id=7)
        third = store.events.add("job.submitted", NOW + 2, job_id="j2")
    assert first < second < third == store.events.last_sequence()
    assert [event.sequence for event in store.events.after(0, 10)] == [first, second, third]
    assert [event.sequence for event in store.events.after(first, 1)] == [second]
    placed = store.events.after(first, 10, job_id="j1")[0]
    assert (placed.kind, placed.task, placed.instance_id) == ("task.placed", "main", "i1")
    assert (placed.decision_id, placed.data) == (7, {})
    assert [event.sequence for event in store.events.latest(2)] == [second, third]


def test_a_follower_misses_no_event_of_several_writers(place: Place) -> None:
    """Each writer adds pairs; a follower that reads on from the last number must see all, in order."""
    writers, pairs = 3, 15
    seen: list[Event] = []

    def write(number: int) -> None:
        with place.open() as own:
            for pair in range(pairs):
                with own.transaction():
                    own.events.add("pair.first", NOW, {"writer": number, "pair": pair})
                    own.events.add("pair.second", NOW, {"writer": number, "pair": pair})

    def follow(store: Store) -> None:
        last, end = 0, time.monotonic() + 60.0
        while len(seen) < 2 * writers * pairs:
            assert time.monotonic() < end
            for event in store.events.after(last, 7):
                assert event.sequence > last
                last = event.sequence
                seen.append(event)

    with place.open() as store:
        at_once(partial(follow, store), *(partial(write, number) for number in range(writers)))
        assert [event.sequence for event in store.events.after(0, 1000)] == [event.sequence for event in seen]
        for first, second in zip(seen[::2], seen[1::2], strict=True):
            assert (first.kind, second.kind, first.data) == ("pair.first", "pair.second", second.data)


DAY = 86_400.0


def test_what_is_older_than_the_retention_goes_and_what_matters_stays(store: Store) -> None:
    add_job(store, "live")
    add_job(store, "over")
    now = NOW + 200 * DAY
    with store.transaction():
        store.jobs.set_state("over", JobState.SUCCEEDED, NOW)
        for job_id in ("live", "over"):
            for time_s in (NOW, now - DAY):
                key = TaskKey(job_id, "main")
                store.events.add("task.placed", time_s, key=key)
                store.decisions.add(DecisionRecord(time_s, "maf", Mode.ACT, key, (), None, 0.001))
        store.events.add("service.started", NOW)
        store.intents.done(store.intents.add(IntentKind.LAUNCH, "i1", {}, NOW).intent_id, NOW)
        store.intents.add(IntentKind.LAUNCH, "i2", {}, NOW)
    price(store, 0.01, NOW)
    price(store, 0.02, NOW + DAY)
    price(store, 0.03, now - DAY)
    assert store.prune(now) == {"events": 2, "decisions": 1, "intents": 1, "prices": 1}
    assert store.prune(now) == {"events": 0, "decisions": 0, "intents": 0, "prices": 0}
    assert [event.job_id for event in store.events.after(0, 99)] == ["live", "live", "over"]
    assert [intent.target for intent in store.intents.pending()] == ["i2"]
    in_force = store.prices.at(SPOT.offer_id, now - 90 * DAY)
    assert in_force is not None
    assert in_force.price_micro_usd_hour == 20_000


def test_what_is_removed_is_removed_in_portions_and_its_numbers_are_not_used_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "PORTION", 3)
    monkeypatch.setattr(jobs, "MOST", 6)
    with place.open() as store, store.transaction():
        last = [store.events.add("a.b", NOW) for _ in range(10)][-1]
    with place.open() as store:
        for number in range(10):
            price(store, 0.01 + number / 1000, NOW + number)
        told = [store.prune(NOW + 99 * DAY) for _ in range(3)]
        assert [one["events"] for one in told] == [6, 4, 0]
        assert [one["prices"] for one in told] == [6, 3, 0], "the last one is in force"
        assert store.events.after(0, 99) == []
        assert store.events.last_sequence() == 0
        with store.transaction():
            assert store.events.add("a.b", NOW) > last


def test_what_was_paid_is_never_forgotten(store: Store) -> None:
    add_job(store)
    request(store)
    price(store, 0.36, NOW - 1)
    report(store)
    price(store, 0.72, NOW + 50)
    with store.transaction():
        store.instances.ended("i1", NOW + 100)
        store.jobs.set_state("j1", JobState.SUCCEEDED, NOW + 100)
    before = store.costs.total(NOW)
    assert before.cost > 0
    store.prune(NOW + 1000 * DAY)
    assert store.costs.total(NOW) == before
    assert wrong_charges(store) == []


def test_a_backup_of_a_store_in_use_is_a_store(place: Place, tmp_path: Path) -> None:
    copy, database = tmp_path / "copy.db", Database(place.url)
    with place.open() as store:
        add_job(store)
        request(store)
        if place.postgresql:
            with pytest.raises(StoreError, match="pg_dump"):
                backup(database, copy)
            assert not copy.exists()
            return
        with store.transaction():
            store.jobs.set_state("j1", JobState.FAILED, NOW)
            backup(database, copy)
        add_job(store, "j2")
        with pytest.raises(StoreError, match="exists already"):
            backup(database, copy)
        with pytest.raises(StoreError, match=r"cannot write the backup .*nowhere"):
            backup(database, tmp_path / "nowhere" / "copy.db")
        assert [file for file in tmp_path.iterdir() if file.name.startswith(".")] == []
        deployment_id = store.deployment_id
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    sqlite3.connect(copy).close()
    assert not copy.with_name("copy.db-wal").exists(), "it is one file"
    with Store.open(f"sqlite:///{copy}", NOW, key_file=place.key_file) as restored:
        assert restored.deployment_id == deployment_id
        assert [job.state for job in restored.jobs.live()] == [JobState.PENDING], "only what was committed"
        assert restored.instances.get("i1").node_token == "secret of i1"


# Reads of many rows at once, those that a pass does once, and spans of attempts; figures by hand.


def test_tasks_that_wait_and_tasks_that_are_placed(store: Store) -> None:
    add_job(store, "j1")
    add_job(store, "j2", FEDERATED, submitted_s=NOW + 1)
    add_job(store, "j3", submitted_s=NOW + 2)
    one, two = (TaskKey("j2", f"client-{name}") for name in ("one", "two"))
    tasks = [(task.key, task.attempt, task.waiting_since_s) for task in store.tasks.of_job("j2")]
    assert tasks == [(one, 0, NOW + 1), (two, 0, NOW + 1)]
    with store.transaction():
        store.tasks.begin(two, ["i1"], NOW + 5)
        store.jobs.set_state("j3", JobState.CANCELLED, NOW + 6)
    assert [row.key for row in store.tasks.waiting()] == [TaskKey("j1", "main"), one]
    assert [task.key for task in store.tasks.placed()] == [two]
    with store.transaction():
        kept = store.tasks.report_all(
            [
                TaskReport(two, 1, Phase.RUNNING, message="half"),
                TaskReport(one, 1, Phase.RUNNING),
                TaskReport(TaskKey("j9", "main"), 1, Phase.RUNNING),
            ],
            NOW + 9,
        )
    assert [(before.phase, told.phase) for before, told in kept] == [(Phase.STARTING, Phase.RUNNING)]
    assert store.tasks.get(two).message == "half"


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
        store.intents.done(store.intents.add(IntentKind.LAUNCH, "c", {}, NOW - 5).intent_id, NOW)
        store.intents.add(IntentKind.LAUNCH, "d", {}, NOW + 5)
    assert store.intents.pending_targets(IntentKind.LAUNCH, IntentKind.STOP) == {"b", "d"}
    counts = store.intents.pending_counts()
    assert counts == {IntentKind.START: (1, NOW), IntentKind.LAUNCH: (2, NOW)}
    assert [one.target for one in store.intents.due(NOW, kinds=(IntentKind.START,))] == ["a"]


TWO = TaskKey("j2", "main")


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
            two_jobs.tasks.begin(MAIN, ["i2"], NOW)
        assert [row.key for row in two_jobs.tasks.waiting()] == []
        assert two_jobs.jobs.named(["j1"])["j1"].state is JobState.PENDING
        with two_jobs.transaction():
            two_jobs.jobs.set_state("j1", JobState.CANCELLED, NOW)
        assert two_jobs.jobs.named(["j1"])["j1"].state is JobState.CANCELLED
        assert [task.key for task in two_jobs.tasks.placed()] == [TWO]


def test_what_is_undone_is_not_kept(two_jobs: Store) -> None:
    with two_jobs.remembering():
        with suppress(KeyError), two_jobs.transaction():
            two_jobs.tasks.begin(MAIN, ["i2"], NOW)
            assert two_jobs.tasks.waiting() == []
            raise KeyError
        assert [row.key for row in two_jobs.tasks.waiting()] == [MAIN]


def test_what_another_thread_writes_is_seen(two_jobs: Store) -> None:
    with two_jobs.remembering():
        assert two_jobs.instances.live()[0].state is InstanceState.REQUESTED
        other = threading.Thread(target=report, args=(two_jobs, "i2"), kwargs={"client_token": "token-i2"})
        other.start()
        other.join()
        assert two_jobs.instances.live()[0].state is InstanceState.LAUNCHING


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
            *(MAIN, SPOT.offer_id, "spot", 2, 0.0),
            *(NOW, NOW + 1, NOW + 40, NOW + 300, NOW + 300),
            (NOW + 100, NOW + 300),
        ),
        Span(MAIN, ON_DEMAND.offer_id, "on_demand", 1, 0.0, NOW + 310, NOW + 311, None, None, None, ()),
    ]


def test_a_span_ends_with_its_last_instance_and_what_we_end_is_no_interruption(store: Store) -> None:
    for name in ("i1", "i2"):
        rent(store, name)
    report(store, "i1", GONE, ended_s=NOW + 50, by_provider=True)
    (span,) = store.gantt.spans(["j1"], 10, 100)
    assert (span.ended_s, span.ready_s, span.interruptions) == (None, None, (NOW + 50,))
    report(store, "i2", GONE, ended_s=NOW + 90)
    request(store, "refused", now_s=NOW + 100)
    with store.transaction():
        store.instances.ended("refused", NOW + 105)
    ran, refused = store.gantt.spans(["j1"], 10, 100)
    assert (ran.interruptions, ran.ended_s) == ((NOW + 50,), NOW + 90)
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
        store.tasks.report_all([TaskReport(key, attempt, Phase.RUNNING, progress=0.5, misses=3)], NOW)
    assert store.gantt.sums(["fl"]) == {"fl": Sums(tasks=2, tasks_done=0, progress=0.25, misses=3)}


def test_used_and_newest_instances_are_the_live_ones(store: Store) -> None:
    attempts(store)
    request(store, "i4", now_s=NOW + 400)
    assert store.instances.used() == {SPOT.offer_id: 1, ON_DEMAND.offer_id: 1}
    assert [one.instance_id for one in store.instances.latest(10, live=True)] == ["i4", "i3"]
    assert [one.instance_id for one in store.instances.latest(1, live=True)] == ["i4"]
