"""What is done about intents that fail; moments by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from deploy.model.instances import InstanceReport, LaunchRequest
from deploy.model.jobs import JobState
from deploy.providers.base import CapacityError, ThrottledError
from deploy.scheduler.retries.retries import end_job
from tests.deploy.scheduler.worlds import World, batch, cheap_and_sure


@pytest.mark.real
def test_an_offer_that_refused_is_not_asked_again_before_its_time(tmp_path: Path) -> None:
    """It is left alone for 60 s each time, and is all that there is."""
    world = World(tmp_path, cheap_and_sure()[:1])
    asked_s: list[float] = []
    launch = world.provider.launch

    def refuse(request: LaunchRequest) -> InstanceReport:
        asked_s.append(world.clock.now())
        if len(asked_s) < 4:
            raise CapacityError("no capacity")
        return launch(request)

    world.provider.launch = refuse  # type: ignore[method-assign]
    job = world.submit(batch())
    world.until_all_end()
    assert world.state(job) is JobState.SUCCEEDED
    assert len(asked_s) == 4
    assert all(later - earlier >= 60.0 for earlier, later in pairwise(asked_s))
    world.check_nothing_is_left()


def test_an_end_that_was_refused_does_not_wait_behind_looks(tmp_path: Path) -> None:
    """One call is allowed for each pass, and the look of the pass takes it."""
    world = World(tmp_path, cheap_and_sure())
    job = world.submit(batch(work_s=36_000.0))
    world.go(100.0)
    (machine,) = world.cloud.live()
    describe, terminate = world.provider.describe, world.provider.terminate
    left = 0

    def take() -> None:
        nonlocal left
        if left == 0:
            raise ThrottledError("too many requests")
        left -= 1

    def look(deployment: str) -> Sequence[InstanceReport]:
        take()
        return describe(deployment)

    def end(instance_ids: Sequence[str]) -> None:
        take()
        terminate(instance_ids)

    world.provider.describe = look  # type: ignore[method-assign]
    world.provider.terminate = end  # type: ignore[method-assign]
    end_job(world.store, job, JobState.CANCELLED, world.clock.now(), "by its owner")
    left = 1
    world.go(10.0)
    assert world.cloud.live() == [machine]
    left = 1
    world.go(10.0)
    assert world.cloud.live() == []
