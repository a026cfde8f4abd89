"""What is expected of jobs that run, against what the core will really take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.scheduler.snapshot.estimates import need_of
from deploy.scheduler.snapshot.needs import Need
from envs.simulation.market import columns as at
from envs.simulation.snapshot import Category
from envs.simulation.world import EpisodeKey
from tests.deploy.parity.playing import Live, config_of, policy_named
from tests.deploy.parity.trainings import row_of

JOBS = 10


@pytest.mark.real
def test_what_is_left_of_a_running_job_is_what_the_core_takes(tmp_path: Path) -> None:
    config = config_of(JOBS)
    live = Live(policy_named("maf", config), (), config, EpisodeKey(0, "test", 0), tmp_path)
    step = live.scheduler.step
    found: list[tuple[int, Need, int]] = []

    def watched() -> None:
        step()
        found.extend(_running(live))

    live.scheduler.step = watched  # type: ignore[method-assign]
    live.play()
    live.store.close()
    assert len({job for job, _, _ in found}) >= JOBS // 2
    for _, need, left_s in found:
        # A checkpoint that is being written now is either done or still to come.
        assert abs(need.left_here_s - left_s) <= need.save_s + 1


def _running(live: Live) -> Iterator[tuple[int, Need, int]]:
    """(job, its need, seconds that the core says are left) of all jobs without batches that work now."""
    core = live.core
    for task in live.store.tasks.placed():
        job = row_of(task.key)
        if core.phase(job) != at.WORKING or core.job[job, at.CATEGORY] == Category.STREAMING:
            continue
        held = list(live.store.instances.named(task.instances).values())
        now_s = live.clock.now()
        need = need_of(live.store.jobs.get(task.key.job_id), task, held, now_s, live.scheduler.settings, None)
        yield job, need, int(core.lanes.when[0, job, at.EVENT_S]) - core.now
