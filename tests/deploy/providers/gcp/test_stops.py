"""An instance that was stopped, and is gone before the next look: its operations tell since when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deploy.emulator.gcp.records import GceInstance
from deploy.model.instances import InstanceReport, InstanceState
from deploy.model.jobs import JobState, Places
from deploy.providers.gcp.provider import GcpProvider
from tests.deploy.bills import bill_of, wrong_charges
from tests.deploy.emulator.chaos import agree
from tests.deploy.providers.contract import DEPLOYMENT, by_id, request
from tests.deploy.providers.gcp.project import TYPE, ZONES, Project
from tests.deploy.providers.gcp.test_chaos import ON_DEMAND_USD, GcpWorld
from tests.deploy.scheduler.worlds import batch


class Rented:
    """One instance, seen while it ran."""

    def __init__(self, folder: Path, market: str, **rented: Any) -> None:
        self.project = Project(folder, rented=rented, shutdown_s=5)
        self.provider = self.project.provider()
        self.name = self.provider.launch(request(f"gcp/{ZONES[0]}/{TYPE}/{market}")).instance_id
        self.project.emulator.advance(100)
        assert by_id(self.provider.describe(DEPLOYMENT))[self.name].stopped_s is None

    @property
    def instance(self) -> GceInstance:
        return self.project.emulator.world.instances[self.name]

    def now_s(self) -> float:
        return self.project.emulator.world.now_s()

    def ended(self) -> list[InstanceReport]:
        """Told to end, it is gone: as it is told by who knew it, and after a restart."""
        self.provider.terminate([self.name])
        self.project.emulator.advance(60)
        seen = self.provider, self.project.provider()
        return [by_id(one.describe(DEPLOYMENT))[self.name] for one in seen]


def test_one_that_a_person_stopped_ran_until_then(tmp_path: Path) -> None:
    rented = Rented(tmp_path, "on_demand")
    stopped_s = rented.now_s()
    rented.project.emulator.world.stop(rented.instance)
    rented.project.emulator.advance(1000)
    for report in rented.ended():
        assert report.state is InstanceState.TERMINATED
        # It shuts down for 5 s, which are paid for; its disk is there for 1,000 s more.
        assert report.stopped_s == stopped_s + 5
        assert report.ended_s == stopped_s + 1005
        assert not report.by_provider


def test_one_that_is_being_ended_was_stopped_before(tmp_path: Path) -> None:
    rented = Rented(tmp_path, "on_demand")
    stopped_s = rented.now_s()
    rented.project.emulator.world.stop(rented.instance)
    rented.project.emulator.advance(1000)
    rented.provider.terminate([rented.name])
    (report,) = rented.provider.describe(DEPLOYMENT)
    assert (report.state, report.stopped_s) == (InstanceState.STOPPING, stopped_s + 5)


def test_one_that_was_started_again_ran_to_its_end(tmp_path: Path) -> None:
    rented = Rented(tmp_path, "on_demand")
    world = rented.project.emulator.world
    world.stop(rented.instance)
    rented.project.emulator.advance(1000)
    world.start(rented.instance)
    rented.project.emulator.advance(1000)
    ended_s = rented.now_s() + 5
    assert {(one.stopped_s, one.ended_s) for one in rented.ended()} == {(None, ended_s)}


def test_one_that_was_preempted_and_stays_ran_until_then(tmp_path: Path) -> None:
    rented = Rented(tmp_path, "spot", when_preempted="stop")
    taken_s = rented.now_s()
    rented.project.emulator.world.interrupt(rented.instance, 0)
    rented.project.emulator.advance(1000)
    for report in rented.ended():
        assert (report.stopped_s, report.ended_s) == (taken_s + 5, taken_s + 1005)
        assert report.by_provider


def test_its_bill_agrees_with_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pools = [
        {
            "zone": zone,
            "instance_type": TYPE,
            "n_vcpus": 4,
            "spot_usd_hour": 0.2,
            "on_demand_usd_hour": ON_DEMAND_USD,
        }
        for zone in GcpWorld.zones
    ]
    world = GcpWorld(tmp_path, {"pools": pools, "launch_s": 25.0}, monkeypatch)
    job_id = world.submit(batch(work_s=3600.0, places=Places(markets=("on_demand",))))
    world.go(1800.0)
    (known,) = world.store.instances.in_states([InstanceState.RUNNING])
    assert world.stop_one()
    stopped_s = world.clock.now() + world.emulator.config.shutdown_s
    world.clock.sleep(600.0)
    provider = world.rented["gcp"]
    assert isinstance(provider, GcpProvider)
    provider.terminate([known.provider_id or ""])
    world.clock.sleep(60.0)
    world.go(3 * 3600.0)
    (event,) = [one for one in world.store.events.after(0, 1000) if one.kind == "instance.stopped"]
    assert (event.instance_id, event.data) == (known.instance_id, {"stopped_s": stopped_s})
    assert world.store.jobs.get(job_id).state is JobState.SUCCEEDED
    assert agree(world.store.costs.of_job(job_id, world.clock.now()), world.emulator.ledger())
    assert wrong_charges(world.store) == []
    ran_s = stopped_s - (known.launched_s or 0.0)
    own = bill_of(world.store, known.instance_id, world.clock.now())
    assert own.seconds == ran_s
