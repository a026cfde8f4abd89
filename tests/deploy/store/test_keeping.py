"""Retention and backup."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from deploy.model.jobs import JobState, TaskKey
from deploy.store import retention
from deploy.store.decisions import DecisionRecord, Mode
from deploy.store.errors import StoreError
from deploy.store.intents import IntentKind
from deploy.store.retention import Retention
from deploy.store.store import Store
from tests.deploy.bills import wrong_charges
from tests.deploy.store.cases import SPOT, add_job, price, report, request
from tests.deploy.store.conftest import NOW, Place

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
    monkeypatch.setattr(retention, "PORTION", 3)
    monkeypatch.setattr(retention, "MOST", 6)
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
    copy = tmp_path / "copy.db"
    with place.open() as store:
        add_job(store)
        request(store)
        if place.postgresql:
            with pytest.raises(StoreError, match="pg_dump"):
                store.backup(copy)
            assert not copy.exists()
            return
        with store.transaction():
            store.jobs.set_state("j1", JobState.FAILED, NOW)
            store.backup(copy)
        add_job(store, "j2")
        with pytest.raises(StoreError, match="exists already"):
            store.backup(copy)
        with pytest.raises(StoreError, match=r"cannot write the backup .*nowhere"):
            store.backup(tmp_path / "nowhere" / "copy.db")
        assert [file for file in tmp_path.iterdir() if file.name.startswith(".")] == []
        deployment_id = store.deployment_id
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    sqlite3.connect(copy).close()
    assert not copy.with_name("copy.db-wal").exists(), "it is one file"
    with Store.open(f"sqlite:///{copy}", NOW, key_file=place.key_file) as restored:
        assert restored.deployment_id == deployment_id
        assert [job.state for job in restored.jobs.live()] == [JobState.PENDING], "only what was committed"
        assert restored.instances.get("i1").node_token == "secret of i1"
