"""A person stops an instance in the console: its task goes elsewhere, it is ended, and its disk is billed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.billing import usd
from deploy.model.instances import InstanceState
from deploy.model.jobs import JobSpec, JobState, Places
from deploy.providers.aws import names
from deploy.providers.aws.provider import AwsProvider
from tests.deploy.bills import bill_of, wrong_charges
from tests.deploy.emulator.aws.test_chaos import TYPE, AwsWorld
from tests.deploy.emulator.chaos import agree
from tests.deploy.scheduler.worlds import batch


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AwsWorld:
    pools = [
        {
            "zone": zone,
            "instance_type": TYPE,
            "spot_usd_hour": 0.2,
            "on_demand_usd_hour": AwsWorld.on_demand_usd_hour,
        }
        for zone in AwsWorld.zones
    ]
    return AwsWorld(tmp_path, {"pools": pools, "launch_s": 25.0}, monkeypatch)


def on_demand(**changes: Any) -> JobSpec:
    return batch(work_s=3600.0, places=Places(markets=("on_demand",)), **changes)


def go_until(world: AwsWorld, over: Callable[[], bool]) -> None:
    for _ in range(60):
        if over():
            return
        world.go(60.0)
    raise AssertionError("it takes too long")


def running(world: AwsWorld) -> int:
    return len(world.store.instances.in_states([InstanceState.RUNNING]))


@pytest.mark.real
@pytest.mark.parametrize("instances", [1, 2])
def test_the_task_of_a_stopped_instance_is_replaced_and_the_instance_ended(
    world: AwsWorld, instances: int
) -> None:
    job_id = world.submit(on_demand(instances=instances))
    go_until(world, lambda: running(world) == instances)
    world.go(1800.0)
    (stopped, *_) = world.store.instances.live()
    stopped_s = world.clock.now()
    assert world.stop_one()
    world.clock.sleep(40.0)
    world.go(60.0)
    (event,) = [one for one in world.store.events.after(0, 1000) if one.kind == "instance.stopped"]
    told = world.store.instances.get(event.instance_id or "")
    assert (event.job_id, event.data) == (job_id, {"stopped_s": stopped_s})
    assert told.stops == ((stopped_s, None),)
    assert told.state in (InstanceState.STOPPING, InstanceState.TERMINATED)
    if instances == 1:
        assert told == world.store.instances.get(stopped.instance_id)
        (requeued,) = [one for one in world.store.events.after(0, 1000) if one.kind == "task.requeued"]
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
    (one,) = [entry for entry in entries if entry.tags[names.TOKEN] == told.client_token]
    assert one.seconds == stopped_s - one.launched_s
    assert one.ended_s is not None
    assert one.ended_s > stopped_s
    own = bill_of(world.store, told.instance_id, world.clock.now())
    assert float(usd(own.disk)) == pytest.approx(
        50 * 0.08 * (one.ended_s - one.launched_s) / (30 * 86_400), abs=1e-6
    )


def test_a_stopped_instance_that_nobody_knows_is_ended_too(world: AwsWorld) -> None:
    job_id = world.submit(on_demand())
    go_until(world, lambda: running(world) == 1)
    (mine,) = world.emulator.world.living()
    theirs = dict(mine.tags) | {names.TOKEN: "unknown"}
    provider = world.rented["aws"]
    assert isinstance(provider, AwsProvider)
    ec2 = provider.clients.get("ec2", "us-east-1")
    made = ec2.run_instances(
        ImageId=mine.image_id,
        InstanceType=TYPE,
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [
                    {"Key": key, "Value": value}
                    for key, value in theirs.items()
                    if not key.startswith("aws:")
                ],
            }
        ],
    )["Instances"][0]["InstanceId"]
    stranger = world.emulator.world.instances[made]
    world.emulator.world.stop(stranger)
    world.go(600.0)
    assert stranger.state == "terminated"
    assert mine.state == "running"
    assert world.store.jobs.get(job_id).state is JobState.RUNNING
