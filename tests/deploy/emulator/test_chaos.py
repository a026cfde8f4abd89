"""Hours on an AWS where everything goes wrong: nothing lost, nothing leaked, bills exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.emulator.faults import FaultConfig
from deploy.model.jobs import JobState
from tests.deploy.emulator.chaos import PERIOD_S, AwsWorld, difference, spells
from tests.deploy.scheduler.worlds import batch

FAULTS = {
    "error": 0.05,
    "lost": 0.01,
    "launch_failure": 0.25,
    "launch_death": 0.02,
    "calls_per_s": 0.1,
    "burst": 20,
    "describe_delay_s": 30.0,
}
TOGETHER = 25


def rehearse(world: AwsWorld, jobs: int, work_s: float, most_passes: int) -> None:
    """Run jobs, a few at a time, then let everything end without further faults."""
    submitted = 0
    for _ in range(most_passes):
        live = len(world.store.jobs.live())
        for _ in range(min(TOGETHER - live, jobs - submitted)):
            world.submit(batch(f"job{submitted}", work_s=work_s))
            submitted += 1
        if submitted == jobs and not world.store.jobs.live():
            break
        world.go(PERIOD_S)
    world.emulator.faults.change(FaultConfig())
    world.go(30 * PERIOD_S)


def check(world: AwsWorld, jobs: int) -> None:
    ended = world.store.jobs.latest(jobs + 1)
    assert [job.state for job in ended] == [JobState.SUCCEEDED] * jobs, [
        job.reason for job in ended if job.reason
    ]
    assert list(world.cloud.completions.values()) == [1] * jobs
    assert world.leaked() == []
    assert world.store.instances.live() == []
    assert world.store.intents.pending() == []
    assert world.store.costs.audit() == []
    now_s = world.clock.now()
    assert abs(difference(world.store, world.emulator.ledger(), now_s)) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("hours", "interruptions", "failures"), [(60, 20, 10)])
def test_chaos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int, interruptions: int, failures: int
) -> None:
    emulated = {
        "pools": spells(tmp_path, 1, 200.0),
        "launch_s": 25.0,
        "spot_quota": {"g": 400},
        "on_demand_quota": {"g": 400},
        "faults": FAULTS,
    }
    world = AwsWorld(tmp_path, emulated, monkeypatch)
    jobs = max(6, hours // 10)
    rehearse(world, jobs, hours * 3600.0 / jobs, 6000)
    check(world, jobs)
    counts = world.emulator.faults.counts
    ran_s = sum(entry.seconds for entry in world.emulator.ledger())
    print(
        f"\n{ran_s / 3600:.0f} instance-hours, {world.emulator.world.interruptions} interruptions, {counts}"
    )
    print(f"{sum(world.emulator.calls.values())} calls, {world.store.costs.total(world.clock.now()).usd} USD")
    assert ran_s >= hours * 3600
    assert world.emulator.world.interruptions >= interruptions
    assert counts["launch failure"] + counts["launch death"] >= failures
