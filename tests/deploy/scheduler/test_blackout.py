"""A provider that does not say what runs, for an hour: nothing stays unbooked, and nothing is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.simulated import SimulatedOffer, SimulatedProvider
from deploy.model.instances import InstanceReport, InstanceState
from deploy.providers.base import PartialError, ProviderError
from tests.deploy.scheduler.cases import offer
from tests.deploy.scheduler.worlds import SETTINGS, World, batch, cheap_and_sure

HOUR_S = 3600.0
SLOW = replace(SETTINGS, period_s=30.0)
NEAR, FAR = "near", "far"


def _rented(world: World) -> list[tuple[float, float]]:
    """(seconds, USD) of all machines that ever were, as the cloud has it; each costs a minute at least."""
    found = []
    for machine in world.cloud.machines.values():
        report = machine.report
        assert report.ended_s is not None
        seconds = max(60.0, report.ended_s - report.launched_s)
        found.append((seconds, seconds * world.cloud.offer(report.offer_id).offer.price_usd_hour / HOUR_S))
    return found


def _check_bill(world: World, job: str) -> None:
    rented = _rented(world)
    assert world.spent_usd(job) == pytest.approx(sum(usd for _, usd in rented), abs=1e-6)
    now_s = world.clock.now()
    booked = [
        max(60.0, (one.ended_s or now_s) - one.launched_s)
        for one in world.store.instances.of_job(job)
        if one.launched_s is not None
    ]
    assert sorted(booked) == sorted(seconds for seconds, _ in rented)
    world.check_nothing_is_left()


class Blind(SimulatedProvider):
    """While it is dark it describes nothing, ends nothing although it says so, and no node can be reached."""

    blind = False

    def go_dark(self) -> None:
        self.blind = True
        self.cloud.hung_s = {f"sim-{number}": self.cloud.clock.now() for number in range(1, 100)}

    def recover(self) -> None:
        self.blind = False
        self.cloud.hung_s = {}

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        return [] if self.blind else super().describe(deployment)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        if not self.blind:
            super().terminate(instance_ids)


@pytest.mark.real
@pytest.mark.parametrize("taken_meanwhile", [False, True])
def test_what_was_believed_to_have_vanished_is_found_and_paid_for_all_of_its_time(
    tmp_path: Path, taken_meanwhile: bool
) -> None:
    world = World(tmp_path, cheap_and_sure(), settings=SLOW)
    blind = Blind(world.cloud)
    world.rents_from(blind)
    job = world.submit(batch(work_s=20_000.0))
    world.go(100)
    blind.go_dark()
    world.go(HOUR_S)
    vanished = world.events("instance.vanished")
    assert vanished
    running = world.cloud.live()
    if taken_meanwhile:
        # Ended while nobody could see it: then it is not found, but it is paid until then.
        world.cloud.kill(running[0], by_provider=False)
    blind.recover()
    world.cancel(job)
    world.go(200)
    assert len(world.events("instance.found")) == len(vanished) - taken_meanwhile
    assert world.events("instance.orphan_ended") == []
    _check_bill(world, job)


def test_what_is_found_within_its_first_hour_is_not_free(tmp_path: Path) -> None:
    spot = offer("spot", provider="simulated", launch_s=30.0, free_first_s=HOUR_S)
    settings = replace(SETTINGS, vanished_after_s=100.0)
    world = World(tmp_path, [SimulatedOffer(spot)], settings=settings)
    blind = Blind(world.cloud)
    world.rents_from(blind)
    job = world.submit(batch(work_s=600.0))
    world.go(100)
    blind.go_dark()
    world.go(200)
    assert world.events("instance.vanished")
    # It may run: as long as it is not known to have been interrupted it is paid.
    assert world.store.costs.of_job(job, world.clock.now()).usd > 0
    blind.recover()
    world.ends_well(job)
    _check_bill(world, job)


def test_one_old_answer_takes_up_nothing(world: World) -> None:
    job = world.submit(batch())
    world.go(100)
    (running,) = world.provider.describe(world.store.deployment_id)
    assert running.state is InstanceState.RUNNING

    class Stale(SimulatedProvider):
        answers = 1

        def describe(self, deployment: str) -> Sequence[InstanceReport]:
            if self.cloud.live() or not self.answers:
                return super().describe(deployment)
            self.answers -= 1
            return [running]

    world.rents_from(Stale(world.cloud))
    world.ends_well(job)
    assert world.events("instance.found", "instance.orphan_ended") == []


class Regional(SimulatedProvider):
    """One of two regions may be silent.

    Attributes:
        silent: its name; "" for none.
    """

    silent = ""

    def describe(self, deployment: str) -> Sequence[InstanceReport]:
        reports = super().describe(deployment)
        if not self.silent:
            return reports
        heard = [one for one in reports if self.cloud.offer(one.offer_id).offer.region != self.silent]
        raise PartialError(heard, {self.silent: ProviderError("down")})


@pytest.mark.real
def test_a_silent_region_spoils_nothing_and_hides_no_other(tmp_path: Path) -> None:
    offers = [
        offer(name, provider="simulated", launch_s=30.0, region=region, quota=1)
        for name, region in (("n", NEAR), ("f", FAR))
    ]
    world = World(tmp_path, [SimulatedOffer(one) for one in offers], settings=SLOW)
    regional = Regional(world.cloud)
    world.rents_from(regional)
    jobs = [world.submit(batch(f"job{n}", work_s=1.5 * HOUR_S)) for n in range(2)]
    world.go(100)
    regional.silent = FAR
    near = next(name for name in world.cloud.live() if world.cloud.machines[name].report.offer_id == "n")
    world.cloud.kill(near, by_provider=True)
    world.go(HOUR_S)
    # What the one that answers says is heard.
    assert len(world.events("instance.ended")) == 1
    assert world.events("instance.vanished") == []
    regional.silent = ""
    world.ends_well(*jobs)
    assert world.cloud.launches == 3
    assert world.events("instance.found", "instance.orphan_ended") == []
