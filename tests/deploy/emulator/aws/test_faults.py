"""What goes wrong on demand, what is refused, and the control interface."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
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


def refusal(call: Callable[[], Any]) -> tuple[str, int, str]:
    with pytest.raises(ClientError) as error:
        call()
    answer = error.value.response
    return (
        answer["Error"]["Code"],
        answer["ResponseMetadata"]["HTTPStatusCode"],
        answer["Error"]["Message"],
    )


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


def test_an_answer_is_lost_after_the_effect(make: Make) -> None:
    cloud = make(faults={"lost": 1.0, "most": 1})
    with pytest.raises(ConnectionClosedError):
        cloud.run(ClientToken="x")
    (name,) = cloud.emulator.world.instances
    assert cloud.run(ClientToken="x")["InstanceId"] == name


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


def test_in_a_spell_every_answer_is_lost_after_the_effect(make: Make) -> None:
    cloud = make(faults={"spells": [{"end_s": START_S + 60, "answer": "lost"}]})
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


def test_objects_go_through_whole(cloud: Cloud) -> None:
    s3 = cloud.session.client("s3")
    s3.create_bucket(Bucket="checkpoints")
    body = bytes(range(256)) * 1000
    s3.put_object(Bucket="checkpoints", Key="a/b", Body=body, IfNoneMatch="*")
    assert s3.get_object(Bucket="checkpoints", Key="a/b")["Body"].read() == body
    assert refusal(lambda: s3.put_object(Bucket="checkpoints", Key="a/b", Body=b"", IfNoneMatch="*"))[0] == (
        "PreconditionFailed"
    )
    assert cloud.emulator.calls["s3:PutObject"] == 2


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
