"""What the live loop measures of a federated training."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.model.jobs import FlowerClient
from deploy.scheduler.snapshot.memberships import Membership
from tests.deploy.scheduler.test_federated import TrainingWorld
from tests.deploy.scheduler.training import federated, key_of
from tests.deploy.scheduler.worlds import cheap_and_sure


@pytest.mark.real
def test_starts_and_epochs_are_measured(tmp_path: Path) -> None:
    """Epochs go with the speed of the instance; a training that has gone on shows what its rounds take."""
    world = TrainingWorld(tmp_path, cheap_and_sure(), a=60.0, b=900.0)
    job = world.submit(federated(4, FlowerClient(name="a"), FlowerClient(name="b"), epoch_s=600.0))
    seen: list[Membership] = []
    memberships = world.scheduler.chooser._roster.memberships
    for _ in range(60):
        world.go(50)
        if world.trainings[job].done == 4:
            break
        memberships.look(world.store.jobs.get(job))
        about = memberships.member(key_of(job, "b"))
        assert about is not None
        seen.append(about)
    # Before a round is done the job's own word counts.
    assert seen[0].epoch_s == 600
    assert seen[-1].epoch_s == pytest.approx(900, rel=0.25)
    assert seen[-1].rounds_left < seen[0].rounds_left
