"""What nodes say of their end reaches the store, once; who does not answer is silent and holds no one up."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from spotweave.deploy import heartbeats
from spotweave.deploy.heartbeats import Heartbeats
from spotweave.deploy.model.clock import VirtualClock
from spotweave.deploy.model.instances import InstanceState, Offer
from spotweave.deploy.node.api import GpuStatus
from spotweave.deploy.node.gpus import Nvml
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.store import Store
from tests.deploy.fake_nvml import FakeNvml
from tests.deploy.node.agents import wait_until
from tests.deploy.store.cases import ON_DEMAND, SPOT, add_job, rent, request
from tests.deploy.store.conftest import NOW


@dataclass(frozen=True)
class Says:
    notice_s: float | None = None
    rebalance: bool = False
    draining: bool = False
    gpus: Sequence[GpuStatus] | None = None
    no_gpus: str = ""


@pytest.fixture
def store(store: Store) -> Store:
    add_job(store)
    return store


def run(store: Store, *names: str, offer: Offer = SPOT) -> None:
    with store.transaction():
        for name in names:
            rent(store, name, offer, state=InstanceState.RUNNING)
            store.instances.ready(name, NOW)


def noticed(store: Store) -> list[str | None]:
    return [one.instance_id for one in store.events.latest(100) if one.kind == "instance.noticed"]


class Ears:
    """A hearing whose rounds and time a test plays; what it asks answers, breaks or hangs."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.silent: set[str] = set()
        self.broken: set[str] = set()
        self.hanging: set[str] = set()
        self.says = Says()
        self.says_of: dict[str, Says] = {}
        self.asked: list[str] = []
        self.hang_s = 60.0
        self.freed = threading.Event()
        self.clock = clock
        self.heartbeats = Heartbeats(store, clock, self._ask)

    def _ask(self, instance: Instance) -> Says | None:
        name = instance.instance_id
        self.asked.append(name)
        if name in self.broken:
            raise SystemExit(3)
        if name in self.hanging:
            self.freed.wait(self.hang_s)
            return None
        return None if name in self.silent else self.says_of.get(name, self.says)

    def round(self, seconds: float = 10.0, rounds: int = 1) -> int:
        """How many told of their end in the last of these rounds."""
        heard = 0
        for _ in range(rounds):
            self.clock.sleep(seconds)
            heard = self.heartbeats.listen()
        return heard

    def silence(self, name: str, later_s: float = 0.0) -> float:
        return self.heartbeats.silent_s(name, self.clock.now() + later_s)


@pytest.fixture
def ears(store: Store) -> Iterator[Ears]:
    made = Ears(store, VirtualClock(NOW))
    yield made
    made.freed.set()
    made.heartbeats.close()


def test_a_notice_is_kept_and_told_once(store: Store, ears: Ears) -> None:
    run(store, "i1", "i2", "i3")
    ears.says_of = {"i1": Says(NOW + 180, True), "i2": Says(rebalance=True)}
    ears.silent = {"i3"}
    assert ears.round() == 2
    told = {one.instance_id: (one.notice_s, one.rebalance) for one in store.instances.live()}
    assert told == {"i1": (NOW + 180, True), "i2": (None, True), "i3": (None, False)}
    assert ears.round() == 0
    # All of them, all the time: also whose end is known.
    assert sorted(ears.asked) == ["i1", "i1", "i2", "i2", "i3", "i3"]
    assert noticed(store) == ["i1"]


def test_each_is_asked_in_turn_where_a_round_holds_few(
    store: Store, ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "_MOST", 2)
    run(store, "i1", "i2", "i3")
    ears.round(rounds=3)
    assert [sorted(ears.asked[k : k + 2]) for k in (0, 2, 4)] == [["i1", "i2"], ["i1", "i3"], ["i2", "i3"]]
    assert len(ears.asked) == 6


def test_what_breaks_once_is_asked_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "_EVERY_S", 0.01)
    run(store, "i1")
    tries: list[str] = []

    def ask(instance: Instance) -> Says | None:
        tries.append(instance.instance_id)
        if len(tries) == 1:
            raise OSError("broken")
        return Says(NOW + 180)

    made = Heartbeats(store, VirtualClock(NOW), ask)
    made.start()
    wait_until(lambda: len(tries) > 1)
    made.close()
    assert store.instances.get("i1").notice_s == NOW + 180
    assert noticed(store) == ["i1"]


def test_silence_is_counted_from_the_last_answer_to_the_last_question(store: Store, ears: Ears) -> None:
    run(store, "i1", "i2")
    ears.round()
    ears.silent = {"i1"}
    # One lost answer, and two, are no silence yet.
    for _ in range(2):
        ears.round()
        assert ears.silence("i1") == 0.0
    ears.round()
    assert ears.silence("i1") == 30.0
    # A scheduler that asks no more makes no one silent by that.
    assert ears.silence("i1", later_s=10_000.0) == 30.0
    assert ears.silence("i1", later_s=-12.0) == 18.0
    assert ears.silence("i2") == 0.0
    assert ears.silence("none") == 0.0
    ears.round()
    assert ears.silence("i1") == 40.0
    ears.silent = set()
    ears.round()
    assert ears.silence("i1") == 0.0


@pytest.mark.parametrize("before_s", [10_000.0, -3600.0], ids=["after a restart", "with its clock set back"])
def test_a_node_has_its_time_again(store: Store, ears: Ears, before_s: float) -> None:
    run(store, "i1", "i2")
    ears.silent = {"i1"}
    ears.round()
    if before_s > 0:
        ears.heartbeats.close()
        ears.heartbeats = Heartbeats(store, ears.clock, ears._ask)
    ears.clock._now_s += before_s
    ears.round(rounds=4)
    assert ears.silence("i1") == 30.0


def test_on_demand_instances_and_those_with_a_notice_are_heard_too(store: Store, ears: Ears) -> None:
    run(store, "firm", offer=ON_DEMAND)
    run(store, "noticed", "other")
    with store.transaction():
        store.instances.noticed("noticed", NOW + 1000)
    ears.silent = {"firm", "noticed"}
    ears.round(rounds=4)
    assert ears.silence("firm") == ears.silence("noticed") == 30.0
    with store.transaction():
        store.instances.ended("firm", NOW)
    ears.round()
    assert (ears.silence("firm"), ears.silence("noticed")) == (0.0, 40.0)
    assert "firm" not in ears.heartbeats._heard


def test_where_all_nodes_are_silent_it_is_us_for_a_while(store: Store, ears: Ears) -> None:
    run(store, "i1", "i2", "i3")
    ears.round()
    ears.silent = {"i1", "i2", "i3"}
    for _ in range(59):
        ears.round()
        assert ears.silence("i1") == 0.0
    ears.round()
    assert ears.silence("i1") == 600.0
    # One that answers shows that it is not us.
    ears.silent = {"i1", "i2"}
    ears.round()
    assert ears.silence("i1") == 610.0
    assert ears.silence("i3") == 0.0


@pytest.mark.real
def test_whatever_breaks_at_one_node_the_others_are_heard(
    store: Store, ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(store, "i1", "i2", "i3")
    ears.broken = {"i1"}
    # What i2 says cannot be kept.
    keep = store.instances.noticed

    def noticed(name: str, notice_s: float | None, *, rebalance: bool = False) -> bool:
        if name == "i2":
            raise OverflowError("poison")
        return keep(name, notice_s, rebalance=rebalance)

    monkeypatch.setattr(store.instances, "noticed", noticed)
    ears.says = Says(NOW + 500)
    ears.round(rounds=4)
    assert store.instances.get("i3").notice_s == NOW + 500
    assert ears.silence("i1") == 30.0
    assert ears.silence("i2") == ears.silence("i3") == 0.0


@pytest.mark.nightly
def test_three_hundred_that_hang_of_a_thousand_hold_no_one_up(
    store: Store, ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in earnest, a question is given up after as long as a round is, and rounds follow each other.
    monkeypatch.setattr(heartbeats, "_ROUND_S", 0.3)
    ears.hang_s = 0.3
    names = [f"i{number:04d}" for number in range(1000)]
    run(store, *names)
    ears.hanging = {name for name in names if name[-1] in "037"}
    began_s = time.monotonic()
    rounds = 25
    for _ in range(rounds):
        ears.round()
        assert len(ears.heartbeats._asked) <= heartbeats._MOST
    # One after the other, those that hang would have taken 90 s each time.
    assert time.monotonic() - began_s < 60.0
    times = Counter(ears.asked)
    healthy = set(names) - ears.hanging
    assert min(times[name] for name in healthy) >= rounds * heartbeats._MOST // 1000 // 2
    assert not any(ears.silence(name) for name in healthy)
    assert all(ears.silence(name) > 0 for name in ears.hanging)


def test_a_new_node_that_hangs_is_not_waited_for(store: Store, ears: Ears) -> None:
    request(store, "i1")
    request(store, "i2")
    new, other = store.instances.get("i1"), store.instances.get("i2")
    ears.hanging = {"i1"}
    assert not ears.heartbeats.answers(new)
    assert not ears.heartbeats.answers(new)
    assert ears.asked == ["i1"]
    # Another is heard all the same, at a later call.
    wait_until(lambda: ears.heartbeats.answers(other))
    ears.hanging = set()
    ears.freed.set()
    wait_until(lambda: ears.heartbeats.answers(new))
    ears.says = Says(draining=True)
    assert not any(ears.heartbeats.answers(new) for _ in range(5))


def test_a_node_whose_offer_promises_gpus_takes_work_once_it_has_looked_for_them(
    store: Store, ears: Ears
) -> None:
    with_gpu = replace(SPOT, offer_id="g", gpu="T4", gpus=1, gpu_memory_gib=16.0)
    with store.transaction():
        rent(store, "i1", with_gpu, state=InstanceState.RUNNING)
    new = store.instances.get("i1")
    assert not any(ears.heartbeats.answers(new) for _ in range(5))
    ears.says = Says(gpus=Nvml(FakeNvml).look().gpus)
    wait_until(lambda: ears.heartbeats.answers(new))
    assert ears.heartbeats.lacks("i1") == ""
    ears.says = Says(gpus=(), no_gpus="no driver")
    wait_until(lambda: ears.heartbeats.answers(new))
    told = "its offer promises 1 T4 of 16 GiB, it has no GPU (no driver)"
    assert ears.heartbeats.lacks("i1") == told
