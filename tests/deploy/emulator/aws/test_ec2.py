"""The emulated EC2: launches and ends, prices, capacity and limits, and what goes wrong on demand."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from deploy.emulator.__main__ import main
from deploy.emulator.server import Server
from tests.deploy.emulator.aws.conftest import IMAGE, Cloud
from tests.deploy.emulator.traces import START_S

Make = Callable[..., Cloud]
Recorded = Callable[..., Cloud]


def refusal(call: Callable[[], Any]) -> tuple[str, int, str]:
    with pytest.raises(ClientError) as error:
        call()
    answer = error.value.response
    return (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Message"])


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


def test_no_id_comes_twice_though_everything_else_repeats(make: Make) -> None:
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


# Prices, capacity and limits.


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START_S + seconds, UTC)


def test_price_history_follows_the_recording(recorded: Recorded) -> None:
    cloud = recorded([(0, 1, 0.20), (600, 1, 0.25), (1200, 1, 0.22), (7200, 1, 0.22)])
    cloud.after(1500)
    history = cloud.ec2.describe_spot_price_history(StartTime=at(0), ProductDescriptions=["Linux/UNIX"])
    assert [(one["SpotPrice"], one["Timestamp"]) for one in history["SpotPriceHistory"]] == [
        ("0.220000", at(1200)),
        ("0.250000", at(600)),
        ("0.200000", at(0)),
    ]
    # What is in force at the start is part of the answer, what comes after the end is not.
    part = cloud.ec2.describe_spot_price_history(StartTime=at(700), EndTime=at(1000))["SpotPriceHistory"]
    assert [(one["SpotPrice"], one["Timestamp"]) for one in part] == [("0.250000", at(600))]
    # Prices later than now are not in the answer.
    ahead = cloud.ec2.describe_spot_price_history(EndTime=at(90_000))["SpotPriceHistory"]
    assert [one["SpotPrice"] for one in ahead] == ["0.220000"]
    assert not cloud.ec2.describe_spot_price_history(ProductDescriptions=["Windows"])["SpotPriceHistory"]
    assert not cloud.ec2.describe_spot_price_history(InstanceTypes=["p3.2xlarge"])["SpotPriceHistory"]


def test_price_history_has_pages(recorded: Recorded) -> None:
    cloud = recorded([(60 * k, 1, 0.2 + 0.001 * (k % 7)) for k in range(30)])
    cloud.after(1700)
    pages = cloud.ec2.get_paginator("describe_spot_price_history").paginate(
        StartTime=at(0), PaginationConfig={"PageSize": 10}
    )
    sizes = [len(page["SpotPriceHistory"]) for page in pages]
    assert sizes == [10, 10, 9]


def test_the_recording_before_the_start_is_history(recorded: Recorded) -> None:
    rows = [(0, 1, 0.20), (600, 1, 0.25), (9000, 1, 0.25)]
    cloud = recorded(rows, trace_start_s=1000.0, time_factor=2.0)
    history = cloud.ec2.describe_spot_price_history(StartTime=at(-500))["SpotPriceHistory"]
    # 1000 recorded seconds ago at twice the speed is 500 s ago.
    assert [(one["SpotPrice"], one["Timestamp"]) for one in history] == [
        ("0.250000", at(-200)),
        ("0.200000", at(-500)),
    ]


def test_capacity_runs_out_and_comes_back(make: Make) -> None:
    pool: dict[str, Any] = {
        "zone": "us-east-1a",
        "instance_type": "g4dn.xlarge",
        "spot_usd_hour": 0.2,
        "on_demand_usd_hour": 0.526,
        "spot_capacity": 2,
        "on_demand_capacity": 1,
    }
    cloud = make(pools=[pool])
    first, _ = cloud.spot(), cloud.spot()
    assert refusal(cloud.spot)[0] == "InsufficientInstanceCapacity"
    cloud.run()
    assert refusal(cloud.run)[0] == "InsufficientInstanceCapacity"
    cloud.ec2.terminate_instances(InstanceIds=[first])
    cloud.spot()


def test_no_capacity_while_the_recording_has_none(recorded: Recorded) -> None:
    cloud = recorded([(0, 0, 0.2), (600, 1, 0.2), (9000, 1, 0.2)])
    assert refusal(cloud.spot)[0] == "InsufficientInstanceCapacity"
    cloud.after(600)
    cloud.spot()


def test_a_bid_below_the_price_is_refused(cloud: Cloud) -> None:
    assert refusal(lambda: cloud.spot(MaxPrice="0.1999"))[0] == "SpotMaxPriceTooLow"
    cloud.spot(MaxPrice="0.2")
    assert refusal(lambda: cloud.spot(MaxPrice="0.0001"))[0] == "InvalidParameterValue"


def test_without_a_bid_the_on_demand_price_is_the_limit(recorded: Recorded) -> None:
    cloud = recorded([(0, 1, 0.6), (9000, 1, 0.6)])
    assert refusal(cloud.spot)[0] == "SpotMaxPriceTooLow"


def test_quotas_count_vcpus_and_markets_apart(make: Make) -> None:
    # 4 vCPUs each: two spot instances fit into 11, and one on demand into 4.
    cloud = make(spot_quota={"g": 11}, on_demand_quota={"g": 4})
    cloud.spot()
    cloud.spot(zone="us-east-1b")
    assert refusal(cloud.spot)[0] == "MaxSpotInstanceCountExceeded"
    cloud.run()
    assert refusal(cloud.run)[0] == "VcpuLimitExceeded"
    quotas = cloud.session.client("service-quotas")
    spot = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-3819A6DF")["Quota"]["Value"]
    on_demand = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-DB2E81BA")["Quota"]["Value"]
    assert (spot, on_demand) == (11.0, 4.0)
    unknown = {"ServiceCode": "ec2", "QuotaCode": "L-00000000"}
    assert refusal(lambda: quotas.get_service_quota(**unknown))[0] == "NoSuchResourceException"


def test_placement_scores_say_where_there_is_room(recorded: Recorded) -> None:
    # After 1000 s, of which 750 s had capacity: 10 x 0.75 = 7.5, rounded to even 8.
    cloud = recorded([(0, 0, 0.2), (250, 1, 0.2), (9000, 1, 0.2)])
    asked: dict[str, Any] = {
        "InstanceTypes": ["g4dn.xlarge"],
        "TargetCapacity": 2,
        "SingleAvailabilityZone": True,
        "RegionNames": ["us-east-1"],
    }
    scores = cloud.ec2.get_spot_placement_scores(**asked)["SpotPlacementScores"]
    assert [one["Score"] for one in scores] == [1]
    cloud.after(1000)
    scores = cloud.ec2.get_spot_placement_scores(**asked)["SpotPlacementScores"]
    zones = cloud.ec2.describe_availability_zones(ZoneNames=["us-east-1a"])["AvailabilityZones"]
    assert scores == [{"Region": "us-east-1", "AvailabilityZoneId": zones[0]["ZoneId"], "Score": 8}]
    big = cloud.ec2.get_spot_placement_scores(**{**asked, "TargetCapacity": 11})["SpotPlacementScores"]
    assert [one["Score"] for one in big] == [1]


def test_on_demand_prices_are_for_sale(cloud: Cloud) -> None:
    wanted = {"instanceType": "g4dn.xlarge", "regionCode": "us-east-1", "operatingSystem": "Linux"}
    answer = cloud.session.client("pricing").get_products(
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()],
    )
    (product,) = [json.loads(text) for text in answer["PriceList"]]
    (term,) = product["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert (dimension["unit"], float(dimension["pricePerUnit"]["USD"])) == ("Hrs", 0.526)


def test_offerings_are_the_pools(cloud: Cloud) -> None:
    answer = cloud.ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["g4dn.xlarge"]}]
    )
    assert [one["Location"] for one in answer["InstanceTypeOfferings"]] == ["us-east-1a", "us-east-1b"]


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
    assert refusal(cloud.ec2.describe_instances)[0] == "RequestLimitExceeded"
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
    assert refusal(cloud.run)[0] == "InsufficientInstanceCapacity"
    cloud.run()


def test_in_a_spell_nothing_is_described_and_then_everything_again(make: Make) -> None:
    spell = {
        "start_s": START_S + 100,
        "end_s": START_S + 1000,
        "actions": ["ec2:DescribeInstances"],
        "answer": "empty",
    }
    cloud = make(faults={"spells": [spell], "most": 0})
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


@pytest.mark.real
def test_a_spell_is_over_a_region_and_answers_with_any_code(make: Make) -> None:
    spells = [
        {"regions": ["us-west-2"], "actions": ["ec2:*"], "answer": "Unavailable"},
        {"actions": ["ec2:RunInstances"], "end_s": START_S + 60, "answer": "SomethingThatIsNew"},
    ]
    cloud = make(faults={"spells": spells})
    west = cloud.session.client("ec2", "us-west-2")
    assert refusal(west.describe_instances)[:2] == ("Unavailable", 503)
    assert refusal(cloud.run)[:2] == ("SomethingThatIsNew", 400)
    assert cloud.ec2.describe_instances()["Reservations"] == []
    cloud.after(60)
    cloud.run()
    assert refusal(west.describe_instances)[0] == "Unavailable"


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
    assert refusal(lambda: cloud.see(name))[0] == "InvalidInstanceID.NotFound"
    assert cloud.ec2.describe_instances()["Reservations"] == []
    cloud.after(10)
    assert cloud.state(name) == "pending"


def test_unknown_keys_are_refused_as_each_service_does(make: Make) -> None:
    cloud = make(access_keys=["AKIASOMEBODYELSE0000"])
    assert refusal(cloud.ec2.describe_instances)[0] == "AuthFailure"
    assert refusal(cloud.session.client("sts").get_caller_identity)[0] == "InvalidClientTokenId"
    assert refusal(cloud.session.client("s3").list_buckets)[0] == "InvalidAccessKeyId"
    sqs = cloud.session.client("sqs")
    assert refusal(lambda: sqs.get_queue_url(QueueName="events"))[0] == "UnrecognizedClientException"


def test_denied_actions_name_the_permission(make: Make) -> None:
    cloud = make(denied=["ec2:Run*", "s3:PutObject"])
    code, status, message = refusal(lambda: cloud.run(DryRun=True))
    assert (code, status) == ("UnauthorizedOperation", 403)
    assert "not authorized to perform: ec2:RunInstances on resource" in message
    assert "Encoded authorization failure message: " in message
    s3 = cloud.session.client("s3")
    s3.create_bucket(Bucket="checkpoints")
    assert refusal(lambda: s3.put_object(Bucket="checkpoints", Key="a/b", Body=b"x"))[0] == "AccessDenied"
    cloud.ec2.describe_instances()


def test_a_wrong_clock_is_refused(make: Make) -> None:
    cloud = make(faults={"clock_skew_s": 400.0})
    assert refusal(cloud.ec2.describe_instances)[0] == "RequestExpired"
    code, _, message = refusal(cloud.session.client("sts").get_caller_identity)
    assert (code, "Signature expired" in message) == ("SignatureDoesNotMatch", True)


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
    assert refusal(lambda: cloud.run(**changes))[0] == code
    assert not cloud.emulator.world.instances


class Http:
    """The control interface on a socket."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, name: str, body: Any = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(f"{self._url}/_emulator/{name}", data) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.mark.real
def test_the_control_interface_on_a_socket(cloud: Cloud) -> None:
    server = Server(cloud.emulator)
    server.start()
    try:
        http = Http(server.url)
        ec2 = boto3.client(
            "ec2",
            endpoint_url=server.url,
            region_name="us-east-1",
            aws_access_key_id="AKIAEMULATED00000000",
            aws_secret_access_key="x",
            config=Config(retries={"total_max_attempts": 1}),
        )
        name = cloud.spot()
        assert http.ask("clock", {"advance_s": 60})[1]["instances"] == {"running": 1}
        assert http.ask("clock", {"advance_s": -1})[0] == 400
        assert http.ask("interrupt", {"instance_id": "i-0"})[0] == 400
        assert http.ask("interrupt", {"instance_id": name, "notice_s": 30})[0] == 200
        http.ask("clock", {"advance_s": 40})
        ledger = http.ask("ledger")[1]
        assert [(one["instance_id"], one["free"], one["seconds"]) for one in ledger["entries"]] == [
            (name, True, 90)
        ]
        # 90 s of 8 GiB at 0.08 USD for the 30 days of June.
        assert ledger["total_usd"] == pytest.approx(0.64 * 90 / (30 * 86_400))
        http.ask("pool", {"zone": "us-east-1a", "instance_type": "g4dn.xlarge", "spot_capacity": 0})
        assert refusal(cloud.spot)[0] == "InsufficientInstanceCapacity"
        assert http.ask("faults", {"lost": 1.0})[0] == 200
        with pytest.raises(ConnectionClosedError):
            ec2.describe_instances()
        status, said = http.ask("faults", {"loss": 1.0})
        assert (status, "loss" in said["error"]) == (400, True)
        assert http.ask("calls")[1]["ec2:DescribeInstances"] == 1
        assert http.ask("nothing")[0] == 404
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
def test_a_mistake_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], said: str
) -> None:
    pool = {
        "zone": "us-east-1a",
        "instance_type": "m5.large",
        "spot_usd_hour": 0.04,
        "on_demand_usd_hour": 0.096,
    }
    path = tmp_path / "aws.yaml"
    path.write_text(yaml.safe_dump({"pools": [pool], "images": [{"image_id": IMAGE}], **changes}))
    assert main(["aws", "--config", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
