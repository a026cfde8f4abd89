"""A person stops an instance in the console: its task goes elsewhere, it is ended, and its disk is billed."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy.billing import usd
from spotweave.deploy.emulator.gcp.world import GceInstance
from spotweave.deploy.model.instances import InstanceReport, InstanceState
from spotweave.deploy.model.jobs import JobSpec, JobState, Places
from spotweave.deploy.providers.aws.config import TOKEN
from spotweave.deploy.providers.aws.provider import AwsProvider
from tests.deploy.bills import bill_of, wrong_charges
from tests.deploy.emulator.worlds import CLOUDS, AwsWorld, OneCloud, agree
from tests.deploy.providers.contract import DEPLOYMENT, by_id, request
from tests.deploy.providers.gcp.project import TYPE, ZONES, Project
from tests.deploy.scheduler.worlds import batch


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> OneCloud:
    cloud = CLOUDS[getattr(request, "param", "aws")]
    return cloud(tmp_path, cloud.steady(), monkeypatch)


def on_demand(**changes: Any) -> JobSpec:
    return batch(work_s=3600.0, places=Places(markets=("on_demand",)), **changes)


def go_until(world: OneCloud, over: Callable[[], bool]) -> None:
    for _ in range(60):
        if over():
            return
        world.go(60.0)
    raise AssertionError("it takes too long")


def running(world: OneCloud) -> int:
    return len(world.store.instances.in_states([InstanceState.RUNNING]))


@pytest.mark.real
@pytest.mark.parametrize("world", CLOUDS, indirect=True)
@pytest.mark.parametrize("instances", [1, 2])
def test_the_task_of_a_stopped_instance_moves_and_the_instance_ends(world: OneCloud, instances: int) -> None:
    job_id = world.submit(on_demand(instances=instances))
    go_until(world, lambda: running(world) == instances)
    world.go(1800.0)
    (stopped, *_) = world.store.instances.live()
    # The seconds in which it shuts down are paid for on Google Cloud.
    stopped_s = world.clock.now() + world.shutdown_paid_s
    assert world.stop_one()
    world.clock.sleep(40.0)
    world.go(60.0)
    (event,) = world.events("instance.stopped")
    told = world.store.instances.get(event.instance_id or "")
    assert (event.job_id, event.data) == (job_id, {"stopped_s": stopped_s})
    assert told.stops == ((stopped_s, None),)
    assert told.state in (InstanceState.STOPPING, InstanceState.TERMINATED)
    if instances == 1:
        assert told == world.store.instances.get(stopped.instance_id)
        (requeued,) = world.events("task.requeued")
        assert requeued.data["lost"]
    go_until(world, lambda: not world.store.jobs.live())
    world.go(3600.0)
    assert world.store.jobs.get(job_id).state is JobState.SUCCEEDED
    assert world.leaked() == []
    entries = world.emulator.ledger()
    bill = world.store.costs.of_job(job_id, world.clock.now())
    assert agree(bill, entries)
    assert wrong_charges(world.store) == []
    # What the stopped one ran, and 50 GiB of disk until it was ended.
    (one,) = [entry for entry in entries if entry.tags[world.tags.token] == told.client_token]
    assert one.seconds == stopped_s - one.launched_s
    assert one.ended_s is not None
    assert one.ended_s > stopped_s
    own = bill_of(world.store, told.instance_id, world.clock.now())
    assert float(usd(own.disk)) == pytest.approx(
        50 * world.disk_usd_gib_month * (one.ended_s - one.launched_s) / (30 * 86_400), abs=1e-6
    )


def test_a_stopped_instance_that_nobody_knows_is_ended_too(world: OneCloud) -> None:
    job_id = world.submit(on_demand())
    go_until(world, lambda: running(world) == 1)
    (mine,) = world.emulator.world.living()
    theirs = dict(mine.tags) | {TOKEN: "unknown"}
    provider = world.rented["aws"]
    assert isinstance(provider, AwsProvider)
    ec2 = provider.clients.get("ec2", "us-east-1")
    tags = [{"Key": key, "Value": value} for key, value in theirs.items() if not key.startswith("aws:")]
    about = {"ResourceType": "instance", "Tags": tags}
    asked = {"ImageId": mine.image_id, "InstanceType": AwsWorld.kind, "MinCount": 1, "MaxCount": 1}
    made = ec2.run_instances(**asked, TagSpecifications=[about])["Instances"][0]["InstanceId"]
    stranger = world.emulator.world.instances[made]
    world.emulator.world.stop(stranger)
    world.go(600.0)
    assert stranger.state == "terminated"
    assert mine.state == "running"
    assert world.store.jobs.get(job_id).state is JobState.RUNNING


@pytest.mark.parametrize("world", ["gcp"], indirect=True)
def test_one_that_is_ended_before_the_next_look_is_billed_until_its_stop(world: OneCloud) -> None:
    job_id = world.submit(batch(work_s=3600.0, places=Places(markets=("on_demand",))))
    world.go(1800.0)
    (known,) = world.store.instances.in_states([InstanceState.RUNNING])
    assert world.stop_one()
    stopped_s = world.clock.now() + world.emulator.config.shutdown_s
    world.clock.sleep(600.0)
    provider = world.rented["gcp"]
    provider.terminate([known.provider_id or ""])
    world.clock.sleep(60.0)
    world.go(3 * 3600.0)
    (event,) = world.events("instance.stopped")
    assert (event.instance_id, event.data) == (known.instance_id, {"stopped_s": stopped_s})
    assert world.store.jobs.get(job_id).state is JobState.SUCCEEDED
    assert agree(world.store.costs.of_job(job_id, world.clock.now()), world.emulator.ledger())
    assert wrong_charges(world.store) == []
    ran_s = stopped_s - (known.launched_s or 0.0)
    own = bill_of(world.store, known.instance_id, world.clock.now())
    assert own.seconds == ran_s


# Of Compute Engine the operations tell since when, also of what is gone before the next look.


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


@pytest.mark.parametrize(
    ("market", "rented", "by_provider"),
    [
        pytest.param("on_demand", {}, False, id="a person stops it"),
        pytest.param("spot", {"when_preempted": "stop"}, True, id="it is preempted and stays"),
    ],
)
def test_one_that_was_stopped_ran_until_then(
    tmp_path: Path, market: str, rented: dict[str, Any], by_provider: bool
) -> None:
    one = Rented(tmp_path, market, **rented)
    world, stopped_s = one.project.emulator.world, one.now_s()
    if by_provider:
        world.interrupt(one.instance, 0)
    else:
        world.stop(one.instance)
    one.project.emulator.advance(1000)
    seen = by_id(one.project.provider().describe(DEPLOYMENT))[one.name]
    assert (seen.state, seen.by_provider) == (InstanceState.STOPPED, by_provider)
    assert seen.stopped_s == stopped_s + 5
    one.provider.terminate([one.name])
    (ending,) = one.provider.describe(DEPLOYMENT)
    assert (ending.state, ending.stopped_s) == (InstanceState.STOPPING, stopped_s + 5)
    for report in one.ended():
        # It shuts down for 5 s, which are paid for; its disk is there for 1,000 s more.
        assert (report.stopped_s, report.ended_s) == (stopped_s + 5, stopped_s + 1005)
        assert (report.state, report.by_provider) == (InstanceState.TERMINATED, by_provider)
    (entry,) = one.project.emulator.ledger()
    # 106 s of insert and run, and 1,106 s of 50 GiB at 0.1 USD in June.
    assert entry.seconds == 106
    assert Fraction(entry.disk_micro_usd) == Fraction(5_000_000 * 1106, 30 * 86_400)


def test_one_that_was_started_again_ran_to_its_end(tmp_path: Path) -> None:
    rented = Rented(tmp_path, "on_demand")
    world = rented.project.emulator.world
    world.stop(rented.instance)
    rented.project.emulator.advance(1000)
    world.start(rented.instance)
    rented.project.emulator.advance(1000)
    ended_s = rented.now_s() + 5
    assert {(one.stopped_s, one.ended_s) for one in rented.ended()} == {(None, ended_s)}
