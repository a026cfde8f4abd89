"""A service that runs for a year: what is over is forgotten, in memory and on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.scheduler.loop import PRUNE_S
from tests.deploy.scheduler.worlds import World, batch, cheap_and_sure

DAY_S = 86_400.0


def test_nothing_is_remembered_of_jobs_that_are_over(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure(available=lambda now_s: (now_s // 200) % 2 == 0))
    for k in range(6):
        world.submit(batch(f"job{k}", work_s=120.0, deadline_s=5000.0 if k % 2 else None))
    world.until_all_end()
    scheduler, roster = world.scheduler, world.scheduler.chooser._roster
    asking = roster.questions
    for kept in (
        scheduler.quarantine._cases,
        scheduler.ending._drained,
        asking._next_s,
        asking._running_s,
        asking._warned,
        roster.lateness._known,
        roster._urgency._ends,
        roster._urgency._patient,
    ):
        assert not kept
    assert not any(scheduler.observer._orphans.values())
    assert not any(scheduler.observer._missing_s.values())


@pytest.mark.real
def test_what_is_older_than_the_store_keeps_is_removed_by_the_loop(tmp_path: Path) -> None:
    world = World(tmp_path, cheap_and_sure())
    job = world.submit(batch())
    world.until_all_end()
    assert world.store.events.after(0, 100, job_id=job)
    assert world.store.decisions.latest(10, job_id=job)
    world.clock.sleep(100 * DAY_S)
    world.go(PRUNE_S)
    assert not world.store.events.after(0, 100, job_id=job)
    assert not world.store.decisions.latest(10, job_id=job)
    assert world.store.jobs.get(job).ended_s is not None, "the books stay"
    assert world.store.costs.of_job(job, world.clock.now()).cost > 0
