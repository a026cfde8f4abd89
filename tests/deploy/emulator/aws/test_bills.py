"""Bills of the emulated EC2, by hand."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from deploy.emulator.ledger import total_usd
from tests.deploy.emulator.aws.conftest import Cloud

Make = Callable[..., Cloud]
Recorded = Callable[..., Cloud]


def bill(cloud: Cloud) -> list[Fraction]:
    return [Fraction(one.micro_usd) for one in cloud.emulator.ledger()]


def test_on_demand_costs_its_seconds_and_a_minute_at_least(cloud: Cloud) -> None:
    names = [cloud.run()["InstanceId"] for _ in range(2)]
    cloud.after(30)
    cloud.ec2.terminate_instances(InstanceIds=names[:1])
    cloud.after(3570)
    cloud.ec2.terminate_instances(InstanceIds=names[1:])
    cloud.after(1000)
    # 60 s and 3600 s of 0.526 USD an hour.
    assert bill(cloud) == [Fraction(526_000, 60), Fraction(526_000)]
    # Next to 61 minutes of 8 GiB at 0.08 USD for 30 days.
    disks = Fraction(8 * 80_000 * 3660, 30 * 86_400)
    assert total_usd(cloud.emulator.ledger()) == (Fraction(526_000 * 61, 60) + disks) / 1_000_000


def test_spot_costs_the_price_of_each_second(recorded: Recorded) -> None:
    cloud = recorded([(0, 1, 0.2), (600, 1, 0.3), (1200, 1, 0.1), (9000, 1, 0.1)])
    name = cloud.spot()
    cloud.after(1800)
    cloud.ec2.terminate_instances(InstanceIds=[name])
    # 600 s each at 0.2, 0.3 and 0.1: a sixth of an hour of 0.6.
    assert bill(cloud) == [Fraction(100_000)]


@pytest.mark.parametrize(("end_s", "micro_usd"), [(3599, 0), (3600, 200_000)])
def test_the_first_hour_is_free_if_ec2_ends_it(recorded: Recorded, end_s: int, micro_usd: int) -> None:
    cloud = recorded([(0, 1, 0.2), (end_s, 0, 0.2), (9000, 1, 0.2)])
    cloud.spot()
    cloud.after(4000)
    assert bill(cloud) == [Fraction(micro_usd)]
    assert cloud.emulator.ledger()[0].interrupted


def test_a_launch_that_dies_costs_nothing(make: Make) -> None:
    cloud = make(faults={"launch_death": 1.0})
    name = cloud.run()["InstanceId"]
    cloud.after(20)
    assert cloud.see(name)["StateReason"]["Code"] == "Server.InternalError"
    assert bill(cloud) == [Fraction(0)]


def test_a_disk_costs_through_stops_and_an_instance_anew_from_each_start(cloud: Cloud) -> None:
    disk = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 50, "VolumeType": "gp3"}}
    name = cloud.run(BlockDeviceMappings=[disk])["InstanceId"]
    cloud.after(100)
    world = cloud.emulator.world
    world.stop(world.instances[name])
    cloud.after(3000)
    world.start(world.instances[name])
    cloud.after(30)
    cloud.ec2.terminate_instances(InstanceIds=[name])
    cloud.after(1000)
    (one,) = cloud.emulator.ledger()
    # 100 s, and a minute for the second start.
    assert Fraction(one.micro_usd) == Fraction(526_000 * 160, 3600)
    assert Fraction(one.disk_micro_usd) == Fraction(50 * 80_000 * 3130, 30 * 86_400)


def test_a_disk_costs_also_what_ec2_interrupts_but_not_what_never_ran(recorded: Recorded, make: Make) -> None:
    cloud = recorded([(0, 1, 0.2), (3599, 0, 0.2), (9000, 1, 0.2)])
    cloud.spot()
    cloud.after(4000)
    (one,) = cloud.emulator.ledger()
    assert (one.free, Fraction(one.disk_micro_usd)) == (True, Fraction(8 * 80_000 * 3599, 30 * 86_400))
    cloud = make(faults={"launch_death": 1.0})
    cloud.run()
    cloud.after(100)
    assert total_usd(cloud.emulator.ledger()) == 0


def test_a_month_of_31_days_costs_no_more_than_one_of_30(cloud: Cloud) -> None:
    cloud.run()
    june_s, july_s = 15 * 86_400 + 8 * 3600 + 53 * 60 + 20, 31 * 86_400
    cloud.after(june_s)
    (before,) = cloud.emulator.ledger()
    cloud.after(july_s)
    (after,) = cloud.emulator.ledger()
    assert Fraction(before.disk_micro_usd) == Fraction(640_000 * june_s, 30 * 86_400)
    assert Fraction(after.disk_micro_usd) - Fraction(before.disk_micro_usd) == 640_000
