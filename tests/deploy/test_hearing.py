"""What nodes say of their end reaches the store, once, and nodes that do not answer hold nobody up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy import hearing
from deploy.hearing import Hearing
from deploy.model.instances import InstanceState
from deploy.providers.simulated import VirtualClock
from deploy.store.instances import Instance
from deploy.store.store import Store
from tests.deploy.store.cases import add_job, report, request
from tests.deploy.store.conftest import NOW


@dataclass(frozen=True)
class Says:
    notice_s: float | None = None
    rebalance: bool = False


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'store.db'}", NOW) as opened:
        add_job(opened)
        yield opened


def run(store: Store, *names: str) -> None:
    for name in names:
        request(store, name)
        report(store, name, state=InstanceState.RUNNING, launched_s=NOW, now_s=NOW)
        with store.transaction():
            store.instances.ready(name, NOW)


def noticed(store: Store) -> list[str | None]:
    return [one.instance_id for one in store.events.latest(100) if one.kind == "instance.noticed"]


@contextmanager
def listening(store: Store, said: dict[str, Says | None], asked: list[str]) -> Iterator[Hearing]:
    def ask(instance: Instance) -> Says | None:
        asked.append(instance.instance_id)
        return said.get(instance.instance_id, Says())

    made = Hearing(store, VirtualClock(NOW + 60), ask)
    yield made
    made.close()


def test_a_notice_is_kept_and_told_once(store: Store) -> None:
    run(store, "i1", "i2", "i3")
    said: dict[str, Says | None] = {"i1": Says(NOW + 180, True), "i2": Says(rebalance=True), "i3": None}
    asked: list[str] = []
    with listening(store, said, asked) as heard:
        assert heard.listen() == 2
        told = {name: store.instances.get(name) for name in ("i1", "i2", "i3")}
        assert {name: (one.notice_s, one.rebalance) for name, one in told.items()} == {
            "i1": (NOW + 180, True),
            "i2": (None, True),
            "i3": (None, False),
        }
        assert heard.listen() == 0
        assert sorted(asked) == ["i1", "i2", "i2", "i3", "i3"]
    assert noticed(store) == ["i1"]


def test_each_is_asked_in_turn_where_a_round_does_not_hold_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "_MOST", 2)
    run(store, "i1", "i2", "i3")
    asked: list[str] = []
    with listening(store, {}, asked) as heard:
        rounds = []
        for _ in range(3):
            asked.clear()
            heard.listen()
            rounds.append(sorted(asked))
    assert rounds == [["i1", "i2"], ["i1", "i3"], ["i2", "i3"]]


def test_a_node_that_hangs_and_one_that_breaks_do_not_end_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearing, "_EVERY_S", 0.01)
    run(store, "i1")
    again = threading.Event()
    tries: list[str] = []

    def ask(instance: Instance) -> Says | None:
        tries.append(instance.instance_id)
        if len(tries) == 1:
            raise OSError("broken")
        again.set()
        return Says(NOW + 180)

    made = Hearing(store, VirtualClock(NOW), ask)
    made.start()
    assert again.wait(60)
    made.close()
    assert store.instances.get("i1").notice_s == NOW + 180
    assert noticed(store) == ["i1"]
