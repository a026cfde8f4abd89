"""What is written down of decisions, and what is not because it was before."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.model.jobs import FlowerClient
from deploy.model.tasks import Phase
from tests.deploy.scheduler.test_federated import TrainingWorld
from tests.deploy.scheduler.training import federated, key_of
from tests.deploy.scheduler.worlds import World, batch, cheap_and_sure


@pytest.mark.real
def test_an_idle_client_that_stays_where_it_is_says_so_once(tmp_path: Path) -> None:
    """The other one needs 30 s longer, for which no release pays; it is asked about every 10 s."""
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=60.0, b=90.0)
    job = world.submit(federated(20, FlowerClient(name="a"), FlowerClient(name="b"), epoch_s=60.0))
    quick, idle = key_of(job, "a"), 0
    for _ in range(60):
        world.go(10.0)
        idle += world.store.tasks.get(quick).phase is Phase.WAITING
    assert idle >= 10
    told = [event.data["offer"] for event in world.events("task.decided") if event.task == quick.task]
    assert told == ["spot", "spot"]
    assert len([one for one in world.store.decisions.latest(100) if one.key == quick]) == 2


@pytest.mark.real
def test_a_task_that_waits_again_after_a_loss_says_so_again(tmp_path: Path) -> None:
    down = [False]
    world = World(tmp_path, cheap_and_sure(available=lambda _: not down[0])[:1])
    job = world.submit(batch(work_s=400.0))
    world.go(100.0)
    down[0] = True
    world.go(200.0)
    down[0] = False
    world.until_all_end()
    told = [event.data["offer"] for event in world.events("task.decided") if event.job_id == job]
    assert told == ["spot", None, "spot"]
