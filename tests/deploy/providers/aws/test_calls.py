"""An endpoint that hangs holds nobody up for longer than is said; every failure has its kind and one line."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from botocore import exceptions as sdk

from spotweave.deploy.providers import cloud as provider_calls
from spotweave.deploy.providers.aws import notices, prices, provider
from spotweave.deploy.providers.aws.check import check, quota_code, role_of
from spotweave.deploy.providers.aws.clients import MAKE_SPOT_ROLE, aws_errors, denied_permission, translated
from spotweave.deploy.providers.aws.config import AwsConfig
from spotweave.deploy.providers.aws.provider import AwsProvider
from spotweave.deploy.providers.base import (
    CapacityError,
    ProviderError,
    QuotaError,
    RefusedError,
    ThrottledError,
)
from spotweave.deploy.providers.cloud import AGAIN_S, MOST_LATE, Calls
from spotweave.deploy.providers.config import Finding, image_finding
from spotweave.deploy.yamlfile import ConfigError
from tests.deploy.emulated import read_models_once
from tests.deploy.emulator.aws.conftest import IMAGE, SPOT, TYPE, ZONE, Cloud, renting
from tests.deploy.emulator.transport import START_S
from tests.deploy.providers.contract import DEPLOYMENT, request

SOON_S = 0.3
LONG_S = 30.0
"""No test waits so long; what hangs would."""


def hang(until: threading.Event) -> Callable[[], str]:
    def ask() -> str:
        until.wait(LONG_S)
        return "late"

    return ask


def test_one_that_hangs_costs_its_time_and_the_others_nothing() -> None:
    until, asked = threading.Event(), Calls("aws")
    began_s = time.monotonic()
    answers, errors = asked.each("look", SOON_S, {"a": hang(until), "b": lambda: "now"})
    assert time.monotonic() - began_s < LONG_S / 2
    assert answers == {"b": "now"}
    assert str(errors["a"]) == "aws a: look: no answer within 0.3 s"
    until.set()


def test_one_that_hangs_is_not_asked_again_while_it_does() -> None:
    until, now_s = threading.Event(), [0.0]
    asked = Calls("aws", lambda: now_s[0])
    began = []

    def ask() -> str:
        began.append(now_s[0])
        return hang(until)()

    for _ in range(3):
        with pytest.raises(ProviderError):
            asked.one("look", SOON_S, "a", ask)
    assert began == [0.0]
    # Something else may be asked there, and the same elsewhere.
    assert asked.one("change", SOON_S, "a", lambda: "x") == asked.one("look", SOON_S, "b", lambda: "x")
    for k in range(1, MOST_LATE + 3):
        now_s[0] = k * AGAIN_S
        with pytest.raises(ProviderError):
            asked.one("look", SOON_S / 10, "a", ask)
    assert len(began) == MOST_LATE
    until.set()
    deadline_s = time.monotonic() + LONG_S
    while time.monotonic() < deadline_s:
        try:
            assert asked.one("look", LONG_S, "a", lambda: "again") == "again"
            break
        except ProviderError:
            time.sleep(0.01)
    else:
        raise AssertionError("it is never asked again")


def test_one_whose_late_call_failed_is_left_alone_for_a_while() -> None:
    until, now_s = threading.Event(), [0.0]
    asked = Calls("aws", lambda: now_s[0])
    ended = threading.Event()

    def fail() -> str:
        until.wait(LONG_S)
        ended.set()
        raise ProviderError("time-out")

    with pytest.raises(ProviderError, match="no answer within"):
        asked.one("look", SOON_S, "a", fail)
    until.set()
    assert ended.wait(LONG_S)
    with pytest.raises(ProviderError, match="left alone"):
        asked.one("look", LONG_S, "a", lambda: "again")
    now_s[0] = AGAIN_S
    assert asked.one("look", LONG_S, "a", lambda: "again") == "again"


def test_kinds_of_errors_stay_what_they_are() -> None:
    def refuse() -> str:
        raise CapacityError("none")

    def stumble() -> str:
        raise KeyError("what")

    with pytest.raises(CapacityError, match="none"):
        Calls("aws").one("launch", LONG_S, "a", refuse)
    _, errors = Calls("aws").each("look", LONG_S, {"a": stumble, "b": refuse})
    assert str(errors["a"]) == "aws a: look: KeyError: 'what'"
    assert isinstance(errors["b"], CapacityError)


def test_no_method_waits_for_a_region_that_hangs(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (provider_calls, notices, prices, provider):
        for name in ("LOOK_S", "QUEUE_S", "CHANGE_S"):
            monkeypatch.setattr(module, name, SOON_S, raising=False)
    until = threading.Event()
    monkeypatch.setattr(cloud, "instead", lambda operation, asked: hang(until)())
    hung, fresh = (AwsProvider(renting(events_queue="events"), cloud.session) for _ in range(2))
    began_s = time.monotonic()
    with pytest.raises(ProviderError, match=r"spot prices: no answer within"):
        hung.offers()
    with pytest.raises(ProviderError, match=r"instances: no answer within"):
        hung.describe(DEPLOYMENT)
    with pytest.raises(ProviderError, match=r"nothing is seen"):
        hung.launch(request(SPOT))
    with pytest.raises(ProviderError, match=r"no answer within"):
        hung.terminate(["i-0123456789abcdef0"])
    with pytest.raises(ProviderError, match=r"launch: no answer within"):
        fresh.launch(request(SPOT))
    assert time.monotonic() - began_s < LONG_S
    # Ending the process does not wait for them either.
    assert all(one.daemon for one in threading.enumerate() if one.name.startswith("aws "))
    until.set()


def test_a_queue_that_hangs_only_warns(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    until = threading.Event()
    monkeypatch.setattr(notices, "QUEUE_S", SOON_S)
    monkeypatch.setattr(notices, "queue_url", lambda sqs, queue: hang(until)())
    made = cloud.provider(events_queue="events")
    launched = made.launch(request(SPOT))
    assert [one.instance_id for one in made.describe(DEPLOYMENT)] == [launched.instance_id]
    until.set()


def client_error(code: str, message: str = "It said.", operation: str = "RunInstances") -> sdk.ClientError:
    return sdk.ClientError({"Error": {"Code": code, "Message": message}}, operation)


KINDS: dict[type[ProviderError], str] = {
    CapacityError: (
        "InsufficientInstanceCapacity SpotMaxPriceTooLow InsufficientVolumeCapacity "
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    ),
    QuotaError: (
        "SpotInstanceCountExceeded NetworkInterfaceLimitExceeded MaxSpotInstanceCountExceeded "
        "VcpuLimitExceeded InstanceLimitExceeded"
    ),
    RefusedError: (
        "OperationNotPermitted UnauthorizedOperation AuthFailure InvalidAMIID.NotFound "
        "Unsupported RequestExpired ExpiredToken IdempotentParameterMismatch "
        "InvalidParameterValue"
    ),
    ThrottledError: "RequestLimitExceeded Throttling",
    ProviderError: "InternalError 503 SomethingNew",
}


@pytest.mark.parametrize(
    ("code", "kind"), [(code, kind) for kind, codes in KINDS.items() for code in codes.split()]
)
def test_a_code_has_its_kind_and_one_line(code: str, kind: type[ProviderError]) -> None:
    made = translated(client_error(code), "aws us-east-1a: launch of m5.large")
    assert type(made) is kind
    assert str(made).startswith("aws us-east-1a: launch of m5.large: ")
    assert "\n" not in str(made)


def test_the_missing_permission_is_named_without_the_encoded_screenful() -> None:
    message = (
        "You are not authorized to perform this operation. User: arn:aws:iam::1:user/x is not authorized to "
        "perform: iam:PassRole on resource: arn:aws:iam::1:role/n because no policy allows it. "
        "Encoded authorization failure message: " + 500 * "A"
    )
    error = client_error("UnauthorizedOperation", message)
    assert denied_permission(error) == "iam:PassRole"
    text = str(translated(error, "here"))
    assert "may not iam:PassRole" in text
    assert "AAAA" not in text
    # One that is not said is the call's own.
    assert denied_permission(client_error("UnauthorizedOperation")) == "ec2:RunInstances"
    assert denied_permission(client_error("AccessDenied", operation="GetProducts")) == "pricing:GetProducts"


@pytest.mark.parametrize(
    ("code", "message", "says"),
    [
        ("RequestExpired", "Request has expired.", "the clock"),
        (
            *(
                "SignatureDoesNotMatch",
                "Signature expired: 20260101T000000Z is now earlier than 20260101T001000Z",
            ),
            "the clock",
        ),
        ("RequestTimeTooSkewed", "", "the clock"),
        ("SignatureDoesNotMatch", "The request signature we calculated does not match", "secret access key"),
        (
            *("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "It said."),
            "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
        ),
    ],
)
def test_what_to_do_is_told_of_a_wrong_clock_a_wrong_key_and_no_role(
    code: str, message: str, says: str
) -> None:
    assert says in str(translated(client_error(code, message), "here"))


@pytest.mark.parametrize(
    ("error", "kind", "word"),
    [
        (sdk.NoCredentialsError(), RefusedError, "aws configure"),
        (sdk.ProfileNotFound(profile="x"), RefusedError, "x"),
        (sdk.EndpointConnectionError(endpoint_url="https://e"), ProviderError, "https://e"),
        (sdk.ReadTimeoutError(endpoint_url="https://e"), ProviderError, "https://e"),
        (sdk.ParamValidationError(report="Missing\nImageId"), RefusedError, "Missing ImageId"),
    ],
)
def test_what_no_service_answered_is_named(error: Exception, kind: type[ProviderError], word: str) -> None:
    with pytest.raises(kind) as caught, aws_errors("aws us-east-1"):
        raise error
    assert type(caught.value) is kind
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


# The check names what is missing, one line each, and changes nothing; the command line ends with 1 then.


OPEN_TO_ALL = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
FOR_ARM = {"State": "available", "Architecture": "arm64"}
OLD = {"State": "available", "Architecture": "x86_64", "Tags": [{"Key": "spotweave", "Value": "0.1.0"}]}
LATE = {
    "Arn": "arn:aws:iam::123456789012:user/me",
    "ResponseMetadata": {"HTTPHeaders": {"date": "Sun, 15 Jun 2025 15:00:00 GMT"}},
}
DENIED = {
    "EvaluationResults": [{"EvalActionName": "ec2:TerminateInstances", "EvalDecision": "explicitDeny"}],
    "IsTruncated": False,
}


@pytest.fixture
def right(cloud: Cloud) -> AwsConfig:
    """Of an account in which everything is right."""
    iam = cloud.session.client("iam")
    iam.create_role(RoleName="spotweave-node", AssumeRolePolicyDocument="{}")
    iam.create_instance_profile(InstanceProfileName="spotweave-node")
    iam.add_role_to_instance_profile(InstanceProfileName="spotweave-node", RoleName="spotweave-node")
    return renting(instance_profile="spotweave-node")


def having(verdict: str, cloud: Cloud, right: AwsConfig) -> list[Finding]:
    return [one for one in check(right, cloud.session) if one.verdict == verdict]


def test_rights_are_asked_for_with_what_they_are_needed_on(cloud: Cloud, right: AwsConfig) -> None:
    list(check(right, cloud.session, deployment="sw-1"))
    asked = {one["ActionNames"][0]: one["ResourceArns"] for one in cloud.asked["SimulatePrincipalPolicy"]}
    assert asked["ec2:TerminateInstances"] == ["arn:aws:ec2:us-east-1:123456789012:instance/*"]
    assert asked["iam:PassRole"] == ["arn:aws:iam::123456789012:role/spotweave-node"]
    # The launch that is tried is one as the scheduler makes it: tagged, from these images, encrypted.
    launch = cloud.asked["RunInstances"][-1]
    assert launch["DryRun"]
    assert launch["ImageId"] == IMAGE
    assert launch["BlockDeviceMappings"][0]["Ebs"]["Encrypted"]
    assert launch["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    tags = {one["ResourceType"]: one["Tags"] for one in launch["TagSpecifications"]}
    assert {"Key": "spotweave:deployment", "Value": "sw-1"} in tags["instance"]


@pytest.mark.parametrize(
    ("made_for", "verdict", "words"),
    [
        (version("spotweave"), "right", "ami-1, built for spotweave "),
        (version("spotweave").replace(".", "-"), "right", "ami-1, built for spotweave "),  # as labels may be
        ("0-1-0", "missing", "ami-1 was built for spotweave 0-1-0, but this is "),
        (None, "unknown", "ami-1 has no tag `spotweave`: "),
    ],
)
def test_an_image_is_right_if_it_was_made_for_this_version(
    made_for: str | None, verdict: str, words: str
) -> None:
    found = image_finding("image", "ami-1", made_for)
    assert (found.verdict, found.text[: len(words)]) == (verdict, words)


@pytest.mark.parametrize(
    ("operation", "breaks", "what", "word"),
    [
        ("DescribeImages", {"Images": [FOR_ARM]}, "us-east-1 image", "is for arm64"),
        ("DescribeImages", {"Images": [OLD]}, "us-east-1 image", "built for spotweave 0.1.0, but this is"),
        ("GetCallerIdentity", "InvalidClientTokenId", "credentials", "does not accept these credentials"),
        ("GetCallerIdentity", LATE, "clock", "synchronise it (NTP)"),
        ("SimulatePrincipalPolicy", DENIED, "permissions", "may not ec2:TerminateInstances"),
        ("RunInstances", "UnauthorizedOperation", "us-east-1 launch", "may not ec2:RunInstances"),
        ("DescribeImages", "InvalidAMIID.NotFound", "us-east-1 image", "not there, or not shared"),
        (
            *("DescribeInstanceTypeOfferings", {"InstanceTypeOfferings": []}, "us-east-1 types"),
            f"{TYPE} is not offered in us-east-1a, us-east-1b",
        ),
        ("GetRole", "NoSuchEntity", "spot role", MAKE_SPOT_ROLE),
        ("GetServiceQuota", {"Quota": {"Value": 0.0}}, "us-east-1 quotas", "ask for at least 4"),
        ("GetInstanceProfile", "NoSuchEntity", "instance profile", "create it"),
        (
            *("DescribeSecurityGroups", {"SecurityGroups": [{"IpPermissions": [OPEN_TO_ALL]}]}),
            *("us-east-1 security group", "lets in everyone"),
        ),
        ("DescribeSubnets", {"Subnets": []}, "us-east-1 subnets", "is not in this account"),
    ],
)
def test_what_is_missing_is_named(
    cloud: Cloud, right: AwsConfig, operation: str, breaks: dict[str, Any] | str, what: str, word: str
) -> None:
    cloud.answers[operation] = breaks
    named = having("missing", cloud, right)
    assert {one.what for one in named} == {what}
    assert word in named[0].text
    assert all("\n" not in one.text for one in named)


def test_no_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    read_models_once(monkeypatch)
    (said,) = renting(endpoint_url="http://127.0.0.1:9").check("")
    assert (said.what, said.verdict) == ("credentials", "missing")
    assert "\n" not in said.text
    assert "cannot be reached" in said.text


def test_what_may_not_be_looked_at_is_unknown(cloud: Cloud, right: AwsConfig) -> None:
    cloud.answers |= {"SimulatePrincipalPolicy": "AccessDenied", "DescribeSubnets": "UnauthorizedOperation"}
    unknown = {one.what: one.text for one in having("unknown", cloud, right)}
    assert "permissions" in unknown
    assert "ec2:DescribeSubnets" in unknown["us-east-1 subnets"]


def test_details_of_spot_offers_and_why_there_are_no_scores(cloud: Cloud) -> None:
    right, provider = renting(), cloud.provider()
    cloud.answers["GetSpotPlacementScores"] = "UnauthorizedOperation"
    found, notes = right.details(provider, provider.offers(), START_S)
    assert {name: one["score"] for name, one in found.items()} == {
        name: None for name in right.places() if name.endswith("/spot")
    }
    assert notes
    assert all(line.startswith("no placement score: ") for line in notes)


def test_quotas_of_families() -> None:
    assert quota_code("m5.large", "spot") == quota_code("t3.micro", "spot") == "L-34B43A08"
    assert quota_code("g4dn.xlarge", "spot") == "L-3819A6DF"
    assert quota_code("p3.2xlarge", "on_demand") == "L-417A185B"
    assert quota_code("inf2.xlarge", "spot") is None
    assert quota_code("p5.48xlarge", "spot") is None


def test_the_role_behind_a_session() -> None:
    assert role_of("arn:aws:sts::123:assumed-role/ops/me") == "arn:aws:iam::123:role/ops"
    assert role_of("arn:aws:iam::123:user/me") == "arn:aws:iam::123:user/me"


QUEUE_URL = "https://sqs.us-west-2.amazonaws.com/1/b"


def load(folder: Path, **changes: Any) -> AwsConfig:
    """From a file, of two regions."""
    content = renting().model_dump(mode="json")
    east = content["regions"]["us-east-1"]
    content["regions"]["us-west-2"] = {**east, "subnets": {"us-west-2a": east["subnets"][ZONE]}}
    path = folder / "aws.yaml"
    path.write_text(json.dumps({**content, **changes}))
    return AwsConfig.load(path)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"regoins": {}}, "regoins"),
        ({"instance_types": {"m5.large": {"quota": 0}}}, "quota"),
        ({"instance_types": {"x9.large": {"quota": 1}}}, "x9.large"),
        ({"tags": {"aws:x": "1"}}, "reserved"),
        ({"node": {"scheduler_url": "http://10.0.0.1:8443"}}, "scheduler_url"),
        ({"events_queue": {"us-east-1": "a"}}, "one for each of us-east-1, us-west-2"),
        ({"events_queue": QUEUE_URL}, "a URL is of one region"),
        ({"events_queue": "a queue"}, "events_queue"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word) as caught:
        load(tmp_path, **changes).prices()
    assert "\n" not in str(caught.value)


def test_queues_of_a_configuration(tmp_path: Path) -> None:
    assert load(tmp_path, events_queue="a").queues == {"us-east-1": "a", "us-west-2": "a"}
    by_region = {"us-east-1": "a", "us-west-2": QUEUE_URL}
    assert load(tmp_path, events_queue=by_region).queues == by_region
    assert load(tmp_path).queues == {}


def test_the_example_configuration_is_one() -> None:
    right = AwsConfig.load(Path(__file__).parents[4] / "configs" / "deploy" / "aws_offers.yaml")
    assert right.prices().usd_hour("us-east-1", "g4dn.xlarge") == 0.526
