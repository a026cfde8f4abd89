"""Whatever goes wrong: no job is lost, none runs twice to its end, no machine is left, the bill is right."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from deploy.billing import PriceSegment, Usage, bill, micro_usd_hour, usd
from deploy.model.jobs import JobState
from deploy.providers.simulated import SimulatedOffer
from tests.deploy.scheduler.cases import offer
from tests.deploy.scheduler.faults import (
    PROVIDER_ERRORS,
    RUNNER_ERRORS,
    Faults,
    Faulty,
    Killed,
    faulty_transactions,
)
from tests.deploy.scheduler.worlds import World, batch


class ChaoticWorld(World):
    """A world in which everything that can be called goes wrong at times."""

    faults: Faults

    def restart(self) -> None:
        super().restart()
        provider = Faulty(self.provider, self.faults, PROVIDER_ERRORS)
        runner = Faulty(self.runner, self.faults, RUNNER_ERRORS)
        faulty_transactions(self.store, self.faults)
        self.scheduler.observer._providers = {"simulated": provider}
        self.scheduler.actions._providers = {"simulated": provider}
        kinds = dict.fromkeys(self.runner.kinds, runner)
        self.scheduler.observer._runners = kinds
        self.scheduler.actions._runners = kinds

    def step(self) -> None:
        """A pass, and then perhaps the end of a machine."""
        try:
            self.scheduler.step()
        except Killed:
            self.restart()
        if self.faults.strikes("machine ends"):
            running = self.cloud.live()
            if running:
                by_provider = self.faults.rng.random() < 0.8
                self.cloud.kill(self.faults.rng.choice(running), by_provider=by_provider)
        self.clock.sleep(self.settings.period_s)


def chaos(folder: Path, seed: int, faults: int, jobs: int) -> ChaoticWorld:
    kind = type("Seeded", (ChaoticWorld,), {"faults": Faults(seed, 0.02, faults)})
    offers = [
        SimulatedOffer(
            offer("spot-a", provider="simulated", price_usd_hour=0.21, launch_s=20.0),
            available=lambda now_s: (now_s // 900) % 3 != 0,
        ),
        SimulatedOffer(
            offer("spot-b", provider="simulated", price_usd_hour=0.37, launch_s=40.0),
            available=lambda now_s: (now_s // 1300) % 4 != 1,
        ),
        SimulatedOffer(offer("sure", "on_demand", provider="simulated", launch_s=30.0, quota=8)),
    ]
    world: ChaoticWorld = kind(folder, offers)
    for k in range(jobs):
        while True:
            try:
                world.submit(batch(f"job{k}", work_s=200.0 + 40 * (k % 5), instances=1 + k % 3))
                break
            except Killed:
                world.restart()
                if f"job{k}-1" in {job.job_id for job in world.store.jobs.live()}:
                    break
    for _ in range(200_000):
        world.step()
        if not world.store.jobs.live() and not world.store.instances.live():
            break
    world.faults.left = 0
    for _ in range(20):
        world.step()
    return world


def check(world: ChaoticWorld, jobs: int) -> None:
    ended = world.store.jobs.latest(jobs + 1)
    assert len(ended) == jobs
    assert {job.state for job in ended} == {JobState.SUCCEEDED}, [job.reason for job in ended]
    assert len(world.cloud.completions) == jobs
    assert set(world.cloud.completions.values()) == {1}
    world.check_nothing_is_left()
    assert world.store.costs.total(world.clock.now()).usd == ledger(world)


def ledger(world: ChaoticWorld) -> Decimal:
    """The bill of the cloud itself: every machine that it ever ran, whoever knew of it."""
    total = 0
    known = {
        one.client_token
        for job in world.store.jobs.latest(10_000)
        for one in world.store.instances.of_job(job.job_id)
    }
    for machine in world.cloud.machines.values():
        report = machine.report
        assert report.client_token in known, "a machine that the store never heard of"
        facts = world.cloud.offer(report.offer_id).offer
        usage = Usage(
            launched_s=report.launched_s,
            ended_s=report.ended_s,
            by_provider=report.by_provider,
            segments=(PriceSegment(report.launched_s, micro_usd_hour(facts.price_usd_hour)),),
            on_demand_micro_usd_hour=micro_usd_hour(facts.on_demand_usd_hour),
            minimum_s=facts.billing_minimum_s,
            free_first_s=facts.free_first_s,
        )
        total += bill(usage, world.clock.now()).cost
    return usd(total)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_faults_at_random(tmp_path: Path, seed: int) -> None:
    world = chaos(tmp_path, seed, faults=150, jobs=10)
    assert sum(world.faults.counts.values()) > 30
    check(world, 10)
