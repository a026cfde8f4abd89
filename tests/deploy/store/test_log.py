"""Events, decisions and intents: what is written down, kept, and backed up."""

from __future__ import annotations

import sqlite3
import stat
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from deploy.model.jobs import JobState, TaskKey
from deploy.store import folders
from deploy.store.backup import backup
from deploy.store.database import Database
from deploy.store.decisions import CandidateRecord, DecisionRecord, Mode
from deploy.store.errors import NotFoundError, StoreError
from deploy.store.events import Event
from deploy.store.folders import Retention
from deploy.store.intents import IntentKind, IntentState
from deploy.store.store import Store
from tests.deploy.bills import wrong_charges
from tests.deploy.store.cases import SPOT, add_job, at_once, price, report, request
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
    assert store.intents.get(first.intent_id).attempts == 1
    assert store.intents.counts() == {IntentState.PENDING: 2, IntentState.DONE: 0, IntentState.FAILED: 1}


def test_a_retry_waits_for_its_time(store: Store) -> None:
    with store.transaction():
        one = store.intents.add(IntentKind.LAUNCH, "i1", {}, NOW)
        two = store.intents.add(IntentKind.LAUNCH, "i2", {}, NOW, not_before_s=NOW + 5)
        assert store.intents.retry(one.intent_id, "no capacity", NOW + 10)
    assert store.intents.due(NOW + 4) == []
    assert [intent.intent_id for intent in store.intents.due(NOW + 5)] == [two.intent_id]
    assert [intent.target for intent in store.intents.due(NOW + 10)] == ["i1", "i2"]
    assert [intent.target for intent in store.intents.due(NOW + 10, limit=1)] == ["i1"]
    known = store.intents.get(one.intent_id)
    assert (known.error, known.attempts) == ("no capacity", 1)
    with pytest.raises(NotFoundError), store.transaction():
        store.intents.done(999, NOW)


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
KEEP = Retention(events=10, decisions=10, intents=10, prices=10)


def test_what_is_older_than_the_retention_goes_and_what_matters_stays(store: Store) -> None:
    add_job(store, "live")
    add_job(store, "over")
    now = NOW + 20 * DAY
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
    last = store.events.last_sequence()
    assert store.prune(now, KEEP) == {"events": 2, "decisions": 1, "intents": 1, "prices": 1}
    assert store.prune(now, KEEP) == {"events": 0, "decisions": 0, "intents": 0, "prices": 0}
    assert [event.job_id for event in store.events.after(0, 99)] == ["live", "live", "over"]
    assert [intent.target for intent in store.intents.pending()] == ["i2"]
    in_force = store.prices.at(SPOT.offer_id, now - 10 * DAY)
    assert in_force is not None
    assert in_force.price_micro_usd_hour == 20_000
    with store.transaction():
        assert store.events.add("a.b", now) > last


def test_what_is_removed_is_removed_in_portions(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "PORTION", 3)
    monkeypatch.setattr(folders, "MOST", 6)
    with place.open() as store:
        with store.transaction():
            for _ in range(10):
                store.events.add("a.b", NOW)
        for number in range(10):
            price(store, 0.01 + number / 1000, NOW + number)
        told = [store.prune(NOW + 99 * DAY, KEEP) for _ in range(3)]
        assert [one["events"] for one in told] == [6, 4, 0]
        assert [one["prices"] for one in told] == [6, 3, 0], "the last one is in force"
        assert len(store.events.after(0, 99)) == 0


def test_numbers_of_removed_events_are_not_used_again(place: Place) -> None:
    with place.open() as store, store.transaction():
        last = [store.events.add("a.b", NOW) for _ in range(3)][-1]
    with place.open() as store:
        assert store.prune(NOW + 99 * DAY, KEEP)["events"] == 3
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
    store.prune(NOW + 1000 * DAY, KEEP)
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
