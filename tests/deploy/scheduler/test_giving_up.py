"""What is written down when a job ends: all that still runs of it is ended, whoever has to do it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.model.jobs import FlowerClient, JobState
from deploy.model.tasks import Phase
from deploy.scheduler.retries.retries import attempt_id, end_job
from deploy.store.intents import IntentKind
from tests.deploy.scheduler.test_federated import TrainingWorld
from tests.deploy.scheduler.training import federated
from tests.deploy.scheduler.worlds import cheap_and_sure


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.SUCCEEDED])
def test_the_end_of_a_job_is_the_end_of_every_attempt_and_instance_of_it(
    tmp_path: Path, state: JobState
) -> None:
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=60.0, b=90.0)
    job = world.submit(federated(20, FlowerClient(name="a"), FlowerClient(name="b"), epoch_s=60.0))
    while {task.phase for task in world.store.tasks.of_job(job)} != {Phase.RUNNING}:
        world.go(10.0)
    tasks = world.store.tasks.of_job(job)
    end_job(world.store, job, state, world.clock.now(), "enough")
    stopped = world.store.intents.pending_targets(IntentKind.STOP)
    assert {attempt_id(task) for task in tasks} <= stopped
    ending = world.store.intents.pending_targets(IntentKind.TERMINATE)
    assert ending == {name for task in tasks for name in task.instances}
    before = len(world.store.intents.pending())
    end_job(world.store, job, JobState.FAILED, world.clock.now(), "again")
    assert world.store.jobs.get(job).state is state
    assert len(world.store.intents.pending()) == before
