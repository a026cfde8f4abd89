"""How the live loop sees an asynchronous training: nobody waits for anybody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.model.instances import InstanceState
from deploy.model.jobs import Flower, FlowerClient, TaskKey
from deploy.model.strategies import FedAsync, FedAvg, Strategy
from deploy.model.tasks import Phase, TaskReport
from deploy.scheduler.snapshot.rounds import Look, Rounds
from deploy.store.instances import Instance
from deploy.store.tasks import Task
from tests.deploy.scheduler.cases import offer

OFFER = offer("spot", provider="simulated", launch_s=30.0)


def rounds(strategy: Strategy) -> Rounds:
    clients = (FlowerClient(name="a"), FlowerClient(name="b"))
    return Rounds(Flower(app="x", rounds=9, clients=clients, epoch_s=100.0, strategy=strategy), 0.0)


def task(name: str, done: int, epoch_s: float | None, phase: Phase | None) -> Task:
    return Task(
        key=TaskKey("job", name),
        attempt=1,
        phase=phase,
        progress=0.0,
        saved=0.0,
        instances=() if phase is None else (f"i-{name}",),
        misses=0,
        executions_done=done,
        last_execution_s=epoch_s,
        next_due_s=None,
        execution_saved=0.0,
        saved_region="",
        message="",
        reported_s=None,
        waiting_since_s=None,
        losses=0,
        failures=0,
        interruptions=0,
        not_before_s=0.0,
    )


def look(name: str, done: int, epoch_s: float | None, on: str = "") -> Look:
    """A client that trains, or has no instance."""
    phase = Phase.RUNNING if on else None
    mine = task(name, done, epoch_s, phase)
    held = [Instance(on, OFFER, mine.key, "t", "n", InstanceState.RUNNING, 0.0, ready_s=30.0)] if on else []
    return Look(mine, held, TaskReport(mine.key, 1, Phase.RUNNING, executions_done=done))


@pytest.mark.parametrize(("strategy", "left_s"), [(FedAvg(), 100.0), (FedAsync(kind="fed_async"), 0.0)])
def test_a_client_without_an_instance_waits_for_nobody(strategy: Strategy, left_s: float) -> None:
    """In a round it has the 100 s of the other's epoch; here each second without it is lost."""
    known = rounds(strategy)
    for one in (look("client-a", 0, None, on="i-a"), look("client-b", 0, None)):
        known.stand(one, [OFFER])
    assert known.round_left_s("client-b", 0.0) == left_s
    assert known.stands["client-a"].owes
    assert known.stands["client-b"].owes


@pytest.mark.parametrize(("strategy", "cold"), [(FedAvg(), True), (FedAsync(kind="fed_async"), False)])
def test_a_version_that_others_made_is_no_epoch_of_ones_own(strategy: Strategy, cold: bool) -> None:
    """b trains on one instance and moves; the next version is a's, and b's latest epoch is still the old.

    In synchronous rounds it would be the first on the new instance, and tell how long a cold one takes.
    """
    known = rounds(strategy)
    a = look("client-a", 1, 10.0, on="i-a")
    for done, epoch_s, on in ((0, None, "i-1"), (1, 60.0, "i-1"), (2, 50.0, "i-1"), (3, 50.0, "i-2")):
        known.see([replace_done(a, done), look("client-b", done, epoch_s, on=on)], 0.0)
    assert (known._trained_on["client-b"] == "i-2") is cold
    known.see([replace_done(a, 4), look("client-b", 4, 80.0, on="i-2")], 0.0)
    assert known._trained_on["client-b"] == "i-2"
    # Cold on i-1: 60 - 50. On i-2 the first own epoch is the 80 s: 80 - 50 = 30 more than warm.
    assert (known.cold_s("client-b") > 15.0) is not cold


def replace_done(one: Look, done: int) -> Look:
    return one._replace(task=replace(one.task, executions_done=done))
