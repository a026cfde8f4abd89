"""Launches, interruptions and ends, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest
from botocore.exceptions import ClientError

from deploy.emulator.ledger import total_usd
from tests.deploy.emulator.aws.conftest import IMAGE, Cloud
from tests.deploy.emulator.traces import START_S

Recorded = Callable[..., Cloud]


def events(cloud: Cloud) -> list[tuple[str, int, dict[str, Any]]]:
    """(kind, seconds from the start, detail) of all that have come since the last look."""
    sqs = cloud.session.client("sqs")
    url = sqs.get_queue_url(QueueName="events")["QueueUrl"]
    found = []
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
        for message in messages:
            event = json.loads(message["Body"])
            when = datetime.fromisoformat(event["time"]).replace(tzinfo=UTC).timestamp()
            found.append((event["detail-type"], int(when) - START_S, event["detail"]))
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return found


def test_no_id_comes_twice_though_everything_else_repeats(make: Callable[..., Cloud]) -> None:
    first, again, later = (make(start_s=START_S + after_s).run()["InstanceId"] for after_s in (0, 0, 1))
    assert first == again != later


def test_an_instance_takes_its_time(cloud: Cloud) -> None:
    name = cloud.run()["InstanceId"]
    assert cloud.state(name) == "pending"
    cloud.after(19)
    assert cloud.state(name) == "pending"
    cloud.after(1)
    assert cloud.state(name) == "running"
    cloud.ec2.terminate_instances(InstanceIds=[name])
    assert cloud.state(name) == "shutting-down"
    cloud.after(5)
    seen = cloud.see(name)
    assert (seen["State"]["Name"], seen["StateReason"]["Code"]) == (
        "terminated",
        "Client.UserInitiatedShutdown",
    )
    assert seen["StateTransitionReason"] == "User initiated (2025-06-15 15:07:00 GMT)"
    assert "PrivateIpAddress" not in seen
    cloud.after(3600)
    with pytest.raises(ClientError, match="InvalidInstanceID"):
        cloud.see(name)


def test_an_interruption_comes_with_notice(recorded: Recorded) -> None:
    cloud = recorded([(0, 1, 0.2), (1000, 0, 0.2), (2000, 1, 0.2)])
    name = cloud.spot()
    request = cloud.see(name)["SpotInstanceRequestId"]

    def status() -> tuple[str, str]:
        answer = cloud.ec2.describe_spot_instance_requests(SpotInstanceRequestIds=[request])
        one = answer["SpotInstanceRequests"][0]
        return one["State"], one["Status"]["Code"]

    cloud.after(879)
    assert (cloud.state(name), status()) == ("running", ("active", "fulfilled"))
    cloud.after(1)
    assert (cloud.state(name), status()) == ("running", ("active", "marked-for-termination"))
    cloud.after(120)
    assert status() == ("closed", "instance-terminated-no-capacity")
    cloud.after(5)
    seen = cloud.see(name)
    assert seen["State"]["Name"] == "terminated"
    assert seen["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    assert seen["StateTransitionReason"] == "Service initiated (2025-06-15 15:23:20 GMT)"
    told = [(kind, when) for kind, when, detail in events(cloud) if detail["instance-id"] == name]
    assert told == [
        ("EC2 Instance State-change Notification", 0),
        ("EC2 Instance State-change Notification", 20),
        ("EC2 Instance Rebalance Recommendation", 820),
        ("EC2 Spot Instance Interruption Warning", 880),
        ("EC2 Instance State-change Notification", 1000),
        ("EC2 Instance State-change Notification", 1005),
    ]


def test_a_price_above_the_bid_interrupts(recorded: Recorded) -> None:
    cloud = recorded([(0, 1, 0.2), (1000, 1, 0.3), (2000, 1, 0.2), (3000, 1, 0.2)])
    low, high = cloud.spot(MaxPrice="0.25"), cloud.spot()
    cloud.after(1010)
    assert (cloud.state(low), cloud.state(high)) == ("terminated", "running")
    answer = cloud.ec2.describe_spot_instance_requests(
        Filters=[{"Name": "status-code", "Values": ["instance-terminated-by-price"]}]
    )
    assert [one["InstanceId"] for one in answer["SpotInstanceRequests"]] == [low]


def test_what_is_stopped_by_the_market_comes_back(recorded: Recorded) -> None:
    cloud = recorded([(0, 1, 0.2), (1000, 0, 0.2), (2000, 1, 0.2), (9000, 1, 0.2)])
    name = cloud.spot(SpotInstanceType="persistent", InstanceInterruptionBehavior="stop")
    cloud.after(1005)
    seen = cloud.see(name)
    assert (seen["State"]["Name"], seen["StateReason"]["Code"]) == ("stopped", "Server.SpotInstanceShutdown")
    # It looks every minute: 1005 + 60 k is first at or after 2000 for k = 17, which is 2025.
    cloud.after(2024 - 1005)
    assert cloud.state(name) == "stopped"
    cloud.after(1)
    assert cloud.state(name) == "pending"
    cloud.after(20)
    assert cloud.state(name) == "running"
    warned = [detail for kind, _, detail in events(cloud) if "Warning" in kind]
    assert warned == [{"instance-id": name, "instance-action": "stop"}]


def test_filters_and_pages(cloud: Cloud) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "job", "Value": "a"}]}]
    names = [cloud.run(TagSpecifications=tags)["InstanceId"] for _ in range(4)]
    spot = cloud.spot()

    def pages(name: str, value: str) -> list[list[str]]:
        found = cloud.ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": name, "Values": [value]}], PaginationConfig={"PageSize": 3}
        )
        return [
            [one["InstanceId"] for part in page["Reservations"] for one in part["Instances"]]
            for page in found
        ]

    assert pages("tag:job", "a*") == [names[:3], names[3:]]
    assert pages("instance-lifecycle", "spot") == [[spot]]
    with pytest.raises(ClientError, match="The filter 'life' is invalid"):
        pages("life", "spot")


@pytest.mark.parametrize(
    ("action", "given"),
    [
        ("stop_instances", {"InstanceIds": ["i-0"]}),
        ("describe_volumes", {}),
        ("request_spot_instances", {"LaunchSpecification": {"ImageId": IMAGE}}),
    ],
)
def test_what_would_be_done_behind_the_emulators_back_is_refused(
    cloud: Cloud, action: str, given: dict[str, Any]
) -> None:
    with pytest.raises(ClientError, match="UnsupportedOperation"):
        getattr(cloud.ec2, action)(**given)


def test_a_client_token_gives_one_instance(cloud: Cloud) -> None:
    first = cloud.run(ClientToken="x")["InstanceId"]
    assert cloud.run(ClientToken="x")["InstanceId"] == first
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        cloud.run(ClientToken="x", InstanceType="g4dn.2xlarge")
    assert len(cloud.emulator.world.instances) == 1


# Bills by hand.


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


def test_a_launch_that_dies_costs_nothing(make: Callable[..., Cloud]) -> None:
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


def test_a_disk_costs_also_what_ec2_interrupts_but_not_what_never_ran(
    recorded: Recorded, make: Callable[..., Cloud]
) -> None:
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
