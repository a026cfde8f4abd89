"""What is done about intents that fail; moments by hand."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from deploy.model.instances import InstanceReport, LaunchRequest
from deploy.model.jobs import JobState
from deploy.providers.base import CapacityError
from tests.deploy.scheduler.worlds import World, batch, cheap_and_sure


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
