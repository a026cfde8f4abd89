"""The emulated EC2: launches and ends, prices, capacity and limits, and what goes wrong on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
import yaml
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from spotweave.deploy.emulator.ledger import total_usd
from spotweave.deploy.emulator.server import Server, serve
from spotweave.deploy.yamlfile import ConfigError
from tests.deploy.emulator.aws.conftest import IMAGE, POOL, SPOT, TYPE, ZONE, Cloud
from tests.deploy.emulator.transport import START_S

Make = Callable[..., Cloud]
Recorded = Callable[..., Cloud]


def refusal(call: Callable[[], Any]) -> tuple[str, int, str]:
    with pytest.raises(ClientError) as error:
        call()
    told, about = error.value.response["Error"], error.value.response["ResponseMetadata"]
    return told["Code"], about["HTTPStatusCode"], told["Message"]


def refused(call: Callable[[], Any]) -> str:
    """The code."""
    return refusal(call)[0]


def test_no_id_comes_twice_though_everything_else_repeats(make: Make) -> None:
    first, again, later = (make(start_s=START_S + after_s).run()["InstanceId"] for after_s in (0, 0, 1))
    assert first == again != later


def test_an_instance_takes_its_time(cloud: Cloud) -> None:
    name = cloud.run()["InstanceId"]
    cloud.after(19)
    assert cloud.state(name) == "pending"
    cloud.after(1)
    assert cloud.state(name) == "running"
    cloud.ec2.terminate_instances(InstanceIds=[name])
    assert cloud.state(name) == "shutting-down"
    cloud.after(5)
    seen = cloud.see(name)
    assert seen["State"]["Name"] == "terminated"
    assert seen["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert seen["StateTransitionReason"] == "User initiated (2025-06-15 15:07:00 GMT)"
    assert "PrivateIpAddress" not in seen
    cloud.after(3600)
    with pytest.raises(ClientError, match="InvalidInstanceID"):
        cloud.see(name)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        pytest.param((1000, 1, 0.3), "instance-terminated-by-price", id="a price above a bid"),
        pytest.param((1000, 0, 0.2), "instance-terminated-no-capacity", id="no capacity"),
    ],
)
def test_an_interruption_is_told_by_its_request(
    recorded: Recorded, row: tuple[int, int, float], why: str
) -> None:
    cloud = recorded([(0, 1, 0.2), row, (2000, 1, 0.2), (3000, 1, 0.2)])
    low, high = cloud.spot(MaxPrice="0.25"), cloud.spot()
    request = cloud.see(low)["SpotInstanceRequestId"]
    told = (("active", "fulfilled"), ("active", "marked-for-termination"), ("closed", why))
    for seconds, status in zip((879, 1, 120), told, strict=True):
        cloud.after(seconds)
        by_status = [{"Name": "status-code", "Values": [status[1]]}]
        requests = cloud.ec2.describe_spot_instance_requests(Filters=by_status)["SpotInstanceRequests"]
        (seen,) = [one for one in requests if one["SpotInstanceRequestId"] == request]
        assert (seen["State"], seen["Status"]["Code"]) == status
    cloud.after(5)
    assert (cloud.state(low), cloud.state(high)) == ("terminated", "running" if row[1] else "terminated")


def test_filters_and_pages(cloud: Cloud) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "job", "Value": "a"}]}]
    names = [cloud.run(TagSpecifications=tags)["InstanceId"] for _ in range(4)]
    spot = cloud.spot()

    def pages(name: str, value: str) -> list[list[str]]:
        found = cloud.ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": name, "Values": [value]}], PaginationConfig={"PageSize": 3}
        )
        listed = ([one for part in page["Reservations"] for one in part["Instances"]] for page in found)
        return [[one["InstanceId"] for one in page] for page in listed]

    assert pages("tag:job", "a*") == [names[:3], names[3:]]
    assert pages("instance-lifecycle", "spot") == [[spot]]
    with pytest.raises(ClientError, match="The filter 'life' is invalid"):
        pages("life", "spot")


def test_what_the_emulator_does_not_play_is_refused(cloud: Cloud) -> None:
    specification = {"ImageId": IMAGE}
    assert refused(lambda: cloud.ec2.stop_instances(InstanceIds=["i-0"])) == "UnsupportedOperation"
    assert refused(cloud.ec2.describe_volumes) == "UnsupportedOperation"
    spot = partial(cloud.ec2.request_spot_instances, LaunchSpecification=specification)
    assert refused(spot) == "UnsupportedOperation"
    prices = partial(cloud.session.client("pricing").get_products, ServiceCode="AmazonEC2")
    assert refused(prices) == "UnsupportedOperation"


def test_a_client_token_is_for_one_request(cloud: Cloud) -> None:
    cloud.run(ClientToken="x")
    assert refused(lambda: cloud.run(ClientToken="x", InstanceType="g4dn.2xlarge")) == (
        "IdempotentParameterMismatch"
    )


# Prices, capacity and limits.


def test_prices_follow_the_recording_also_before_the_start(recorded: Recorded) -> None:
    rows = [(0, 1, 0.20), (600, 1, 0.25), (1200, 1, 0.22), (9000, 1, 0.22)]
    cloud = recorded(rows, trace_start_s=1000.0, time_factor=2.0)

    def steps() -> list[tuple[float, float]]:
        (offer,) = [one for one in cloud.provider().offers() if one.offer_id == SPOT]
        return [(at_s - START_S, usd) for at_s, usd in offer.price_steps]

    # 1000 recorded seconds ago at twice the speed is 500 s ago.
    assert steps() == [(-500, 0.20), (-200, 0.25)]
    cloud.after(101)
    assert steps() == [(-500, 0.20), (-200, 0.25), (100, 0.22)]
    # What is in force at the start of a question is part of its answer, what comes after its end is not.
    start, end = (datetime.fromtimestamp(START_S + at_s, UTC) for at_s in (-100, 50))
    (part,) = cloud.ec2.describe_spot_price_history(StartTime=start, EndTime=end)["SpotPriceHistory"]
    assert (part["SpotPrice"], part["Timestamp"].timestamp()) == ("0.250000", START_S - 200)
    assert not cloud.ec2.describe_spot_price_history(ProductDescriptions=["Windows"])["SpotPriceHistory"]


def test_capacity_runs_out_and_comes_back(make: Make) -> None:
    cloud = make(pools=[{**POOL, "spot_capacity": 2, "on_demand_capacity": 1}])
    first, _ = cloud.spot(), cloud.spot()
    assert refused(cloud.spot) == "InsufficientInstanceCapacity"
    cloud.run()
    assert refused(cloud.run) == "InsufficientInstanceCapacity"
    cloud.ec2.terminate_instances(InstanceIds=[first])
    cloud.spot()


def test_no_capacity_while_the_recording_has_none(recorded: Recorded) -> None:
    cloud = recorded([(0, 0, 0.2), (600, 1, 0.2), (9000, 1, 0.2)])
    assert refused(cloud.spot) == "InsufficientInstanceCapacity"
    cloud.after(600)
    cloud.spot()


def test_a_bid_below_the_price_is_refused_also_one_that_is_not_named(
    cloud: Cloud, recorded: Recorded
) -> None:
    assert refused(lambda: cloud.spot(MaxPrice="0.1999")) == "SpotMaxPriceTooLow"
    cloud.spot(MaxPrice="0.2")
    assert refused(lambda: cloud.spot(MaxPrice="0.0001")) == "InvalidParameterValue"
    assert refused(recorded([(0, 1, 0.6), (9000, 1, 0.6)]).spot) == "SpotMaxPriceTooLow"


def test_quotas_count_vcpus_and_markets_apart(make: Make) -> None:
    # 4 vCPUs each: two spot instances fit into 11, and one on demand into 4.
    cloud = make(spot_quota={"g": 11}, on_demand_quota={"g": 4})
    cloud.spot()
    cloud.spot(zone="us-east-1b")
    assert refused(cloud.spot) == "MaxSpotInstanceCountExceeded"
    cloud.run()
    assert refused(cloud.run) == "VcpuLimitExceeded"
    quotas = cloud.session.client("service-quotas")

    def allowed(code: str) -> float:
        return float(quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"])

    assert (allowed("L-3819A6DF"), allowed("L-DB2E81BA")) == (11.0, 4.0)
    assert refused(lambda: allowed("L-00000000")) == "NoSuchResourceException"


def test_placement_scores_say_where_there_is_room(recorded: Recorded) -> None:
    # After 1000 s, of which 750 s had capacity: 10 x 0.75 = 7.5, rounded to even 8.
    cloud = recorded([(0, 0, 0.2), (250, 1, 0.2), (9000, 1, 0.2)])
    asked = {"InstanceTypes": [TYPE], "SingleAvailabilityZone": True, "RegionNames": ["us-east-1"]}

    def scores(capacity: int = 2) -> list[dict[str, Any]]:
        found = cloud.ec2.get_spot_placement_scores(**asked, TargetCapacity=capacity)
        return list(found["SpotPlacementScores"])

    assert [one["Score"] for one in scores()] == [1]
    cloud.after(1000)
    zones = cloud.ec2.describe_availability_zones(ZoneNames=[ZONE])["AvailabilityZones"]
    assert scores() == [{"Region": "us-east-1", "AvailabilityZoneId": zones[0]["ZoneId"], "Score": 8}]
    assert [one["Score"] for one in scores(11)] == [1]


# What goes wrong, and what is refused.


def test_requests_are_throttled_by_the_clock(make: Make) -> None:
    cloud = make(faults={"calls_per_s": 0.5, "burst": 3})
    for _ in range(3):
        cloud.ec2.describe_instances()
    assert refusal(cloud.ec2.describe_instances)[:2] == ("RequestLimitExceeded", 503)
    # Two seconds refill one request; other services have buckets of their own.
    cloud.session.client("sts").get_caller_identity()
    cloud.after(2)
    cloud.ec2.describe_instances()
    assert refused(cloud.ec2.describe_instances) == "RequestLimitExceeded"
    assert cloud.emulator.faults.counts["throttled"] == 2


@pytest.mark.real
def test_errors_come_at_their_rate_and_by_the_seed(make: Make) -> None:
    def errors() -> list[int]:
        cloud = make(faults={"error": 0.2, "actions": ["ec2:Describe*"]})
        found = []
        for k in range(300):
            try:
                cloud.ec2.describe_instances()
            except ClientError:
                found.append(k)
        cloud.session.client("sts").get_caller_identity()
        return found

    first = errors()
    # 60 are expected; five standard deviations of 6.9 are 35.
    assert 25 <= len(first) <= 95
    assert errors() == first


def test_a_launch_fails_for_lack_of_capacity(make: Make) -> None:
    cloud = make(faults={"launch_failure": 1.0, "most": 1})
    assert refused(cloud.run) == "InsufficientInstanceCapacity"
    cloud.run()


def test_in_a_spell_nothing_is_described_and_then_everything_again(make: Make) -> None:
    spell = {"start_s": START_S + 100, "end_s": START_S + 1000, "actions": ["ec2:DescribeInstances"]}
    cloud = make(faults={"spells": [{**spell, "answer": "empty"}], "most": 0})
    name = cloud.run()["InstanceId"]
    assert cloud.state(name) == "pending"
    cloud.after(100)
    assert cloud.ec2.describe_instances()["Reservations"] == []
    # Nothing else is empty, and all that is done is done.
    assert cloud.ec2.describe_spot_price_history()["SpotPriceHistory"]
    cloud.ec2.terminate_instances(InstanceIds=[name])
    cloud.after(900)
    assert cloud.emulator.faults.counts == {"empty": 1}
    assert cloud.state(name) == "terminated"


@pytest.mark.parametrize(
    "faults", [{"lost": 1.0, "most": 2}, {"spells": [{"end_s": START_S + 60, "answer": "lost"}]}]
)
def test_an_answer_is_lost_after_the_effect(make: Make, faults: dict[str, Any]) -> None:
    cloud = make(faults=faults)
    for _ in range(2):
        with pytest.raises(ConnectionClosedError):
            cloud.run(ClientToken="x")
    cloud.after(60)
    (name,) = cloud.emulator.world.instances
    assert cloud.run(ClientToken="x")["InstanceId"] == name


def test_a_new_instance_is_not_described_at_once(make: Make) -> None:
    cloud = make(faults={"describe_delay_s": 10.0})
    name = cloud.run()["InstanceId"]
    assert refused(lambda: cloud.see(name)) == "InvalidInstanceID.NotFound"
    assert cloud.ec2.describe_instances()["Reservations"] == []
    cloud.after(10)
    assert cloud.state(name) == "pending"


def test_unknown_keys_are_refused_as_each_service_does(make: Make) -> None:
    cloud = make(access_keys=["AKIASOMEBODYELSE0000"])
    assert refused(cloud.ec2.describe_instances) == "AuthFailure"
    assert refused(cloud.session.client("sts").get_caller_identity) == "InvalidClientTokenId"
    assert refused(cloud.session.client("s3").list_buckets) == "InvalidAccessKeyId"
    sqs = cloud.session.client("sqs")
    assert refused(lambda: sqs.get_queue_url(QueueName="events")) == "UnrecognizedClientException"


def test_denied_actions_name_the_permission(make: Make) -> None:
    cloud = make(denied=["ec2:Run*", "s3:PutObject"])
    code, status, message = refusal(lambda: cloud.run(DryRun=True))
    assert (code, status) == ("UnauthorizedOperation", 403)
    assert "Encoded authorization failure message: " in message
    s3 = cloud.session.client("s3")
    s3.create_bucket(Bucket="checkpoints")
    assert refused(lambda: s3.put_object(Bucket="checkpoints", Key="a/b", Body=b"x")) == "AccessDenied"
    cloud.ec2.describe_instances()


def test_a_wrong_clock_is_refused(make: Make) -> None:
    cloud = make(faults={"clock_skew_s": 400.0})
    assert refused(cloud.ec2.describe_instances) == "RequestExpired"
    assert refused(cloud.session.client("sts").get_caller_identity) == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ImageId": "ami-00000000000000000"}, "InvalidAMIID.NotFound"),
        ({"InstanceType": "x9.huge"}, "InvalidParameterValue"),
        ({"InstanceType": "g5.xlarge"}, "Unsupported"),
        ({"Placement": {"AvailabilityZone": "us-east-1z"}}, "InvalidParameterValue"),
        ({"Placement": {"AvailabilityZone": "us-east-1c"}}, "Unsupported"),
        ({"SubnetId": "subnet-00000000000000000", "Placement": {}}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupIds": ["sg-00000000000000000"]}, "InvalidGroup.NotFound"),
        ({"KeyName": "mine"}, "InvalidKeyPair.NotFound"),
        ({"IamInstanceProfile": {"Name": "nobody"}}, "InvalidParameterValue"),
        ({"UserData": "x" * 16385}, "InvalidParameterValue"),
        ({"DryRun": True}, "DryRunOperation"),
    ],
)
def test_what_cannot_be_launched(cloud: Cloud, changes: dict[str, Any], code: str) -> None:
    assert refused(lambda: cloud.run(**changes)) == code
    assert not cloud.emulator.world.instances


def ask(url: str, name: str, body: Any = None) -> tuple[int, Any]:
    """The control interface on a socket."""
    answer = httpx.request("GET" if body is None else "POST", f"{url}/_emulator/{name}", json=body)
    return answer.status_code, answer.json()


@pytest.mark.real
def test_the_control_interface_on_a_socket(cloud: Cloud) -> None:
    server = Server(cloud.emulator)
    server.start()
    try:
        http = partial(ask, server.url)
        once = Config(retries={"total_max_attempts": 1})
        keys = {"aws_access_key_id": "AKIAEMULATED00000000", "aws_secret_access_key": "x"}
        ec2 = boto3.client("ec2", "us-east-1", endpoint_url=server.url, config=once, **keys)
        name = cloud.spot()
        assert http("clock", {"advance_s": 60})[1]["instances"] == {"running": 1}
        assert http("clock", {"advance_s": -1})[0] == 400
        assert http("interrupt", {"instance_id": "i-0"})[0] == 400
        assert http("interrupt", {"instance_id": name, "notice_s": 30})[0] == 200
        http("clock", {"advance_s": 40})
        ledger = http("ledger")[1]
        (entry,) = ledger["entries"]
        assert (entry["instance_id"], entry["free"], entry["seconds"]) == (name, True, 90)
        # 90 s of 8 GiB at 0.08 USD for the 30 days of June.
        assert ledger["total_usd"] == pytest.approx(0.64 * 90 / (30 * 86_400))
        http("pool", {"zone": ZONE, "instance_type": TYPE, "spot_capacity": 0})
        assert refused(cloud.spot) == "InsufficientInstanceCapacity"
        assert http("faults", {"lost": 1.0})[0] == 200
        with pytest.raises(ConnectionClosedError):
            ec2.describe_instances()
        status, said = http("faults", {"loss": 1.0})
        assert (status, "loss" in said["error"]) == (400, True)
        assert http("calls")[1]["ec2:DescribeInstances"] == 1
        assert http("nothing")[0] == 404
    finally:
        server.close()
    assert threading.active_count() < 20


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pools": []}, "pools"),
        ({"pool": 1}, "pool"),
        ({"machines": "processes", "clock": "virtual"}, "processes need the real clock"),
        ({"gp3_usd_gib_month": {"us-west-2": 0.08}}, "gp3_usd_gib_month has no us-east-1"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = tmp_path / "aws.yaml"
    path.write_text(yaml.safe_dump({"pools": [POOL], "images": [{"image_id": IMAGE}], **changes}))
    with pytest.raises(ConfigError) as refused:
        serve("aws", path, 0)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


# Bills of the emulated EC2, by hand.


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
def test_the_first_hour_is_free_if_ec2_ends_it_but_for_the_disk(
    recorded: Recorded, end_s: int, micro_usd: int
) -> None:
    cloud = recorded([(0, 1, 0.2), (end_s, 0, 0.2), (9000, 1, 0.2)])
    cloud.spot()
    cloud.after(4000)
    (one,) = cloud.emulator.ledger()
    assert (one.interrupted, one.free, bill(cloud)) == (True, not micro_usd, [Fraction(micro_usd)])
    assert Fraction(one.disk_micro_usd) == Fraction(8 * 80_000 * end_s, 30 * 86_400)


def test_a_launch_that_dies_costs_nothing_nor_does_its_disk(make: Make) -> None:
    cloud = make(faults={"launch_death": 1.0})
    name = cloud.run()["InstanceId"]
    cloud.after(20)
    assert cloud.see(name)["StateReason"]["Code"] == "Server.InternalError"
    cloud.after(80)
    assert bill(cloud) == [Fraction(0)]
    assert total_usd(cloud.emulator.ledger()) == 0


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


def test_a_month_of_31_days_costs_no_more_than_one_of_30(cloud: Cloud) -> None:
    cloud.run()
    june_s, july_s = 15 * 86_400 + 8 * 3600 + 53 * 60 + 20, 31 * 86_400
    cloud.after(june_s)
    (before,) = cloud.emulator.ledger()
    cloud.after(july_s)
    (after,) = cloud.emulator.ledger()
    assert Fraction(before.disk_micro_usd) == Fraction(640_000 * june_s, 30 * 86_400)
    assert Fraction(after.disk_micro_usd) - Fraction(before.disk_micro_usd) == 640_000
