"""The check names what is missing, one line each, and changes nothing; the command line ends with 1 then."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import boto3
import pytest

from deploy.providers.aws.check import check, quota_code, role_of
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.errors import MAKE_SPOT_ROLE, SPOT_ROLE
from deploy.providers.aws.provider import AwsProvider
from deploy.providers.config import Finding
from deploy.yamlfile import ConfigError
from tests.deploy.providers.aws.fake import OTHER, REGION, TYPE, FakeAws, make_config, write_config

OPEN_TO_ALL = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
FOR_ARM = {"State": "available", "Architecture": "arm64"}
OFFERED = [{"InstanceType": TYPE, "Location": f"{REGION}{zone}"} for zone in "ab"]
DENIED = {
    "EvaluationResults": [{"EvalActionName": "ec2:TerminateInstances", "EvalDecision": "explicitDeny"}],
    "IsTruncated": False,
}
QUOTA = {"Quota": {"QuotaCode": "L-1", "Value": 32.0}}


@pytest.fixture
def config(aws: FakeAws, tmp_path: Path) -> AwsConfig:
    """An account in which everything is right."""
    config = make_config(tmp_path, instance_profile="spotweave-node")
    iam = boto3.client("iam", region_name=REGION)
    iam.create_role(RoleName="spotweave-node", AssumeRolePolicyDocument="{}")
    iam.create_role(RoleName=SPOT_ROLE, AssumeRolePolicyDocument="{}")
    iam.create_instance_profile(InstanceProfileName="spotweave-node")
    iam.add_role_to_instance_profile(InstanceProfileName="spotweave-node", RoleName="spotweave-node")
    group = config.regions[REGION].security_group
    pair = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    ec2 = boto3.client("ec2", region_name=REGION)
    rules = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissions"]
    if not any(rule["UserIdGroupPairs"] for rule in rules):
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[pair])
    aws.answers["GetServiceQuota"] = QUOTA
    aws.answers["SimulatePrincipalPolicy"] = {"EvaluationResults": [], "IsTruncated": False}
    return config


def having(verdict: str, aws: FakeAws, config: AwsConfig) -> list[Finding]:
    return [one for one in check(config, aws.session()) if one.verdict == verdict]


def test_rights_are_asked_for_with_what_they_are_needed_on(aws: FakeAws, config: AwsConfig) -> None:
    list(check(config, aws.session(), deployment="sw-1"))
    asked = {one["ActionNames"][0]: one["ResourceArns"] for one in aws.asked["SimulatePrincipalPolicy"]}
    assert asked["ec2:TerminateInstances"] == [f"arn:aws:ec2:{REGION}:123456789012:instance/*"]
    assert asked["iam:PassRole"] == ["arn:aws:iam::123456789012:role/spotweave-node"]
    # The launch that is tried is one as the scheduler makes it: tagged, from these images, encrypted.
    launch = aws.asked["RunInstances"][-1]
    assert launch["DryRun"]
    assert launch["ImageId"] == config.regions[REGION].image
    assert launch["BlockDeviceMappings"][0]["Ebs"]["Encrypted"]
    assert launch["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    tags = {one["ResourceType"]: one["Tags"] for one in launch["TagSpecifications"]}
    assert {"Key": "spotweave:deployment", "Value": "sw-1"} in tags["instance"]


@pytest.mark.parametrize(
    ("operation", "breaks", "what", "word"),
    [
        ("DescribeImages", {"Images": [FOR_ARM]}, f"{REGION} image", "is for arm64"),
        ("GetCallerIdentity", "InvalidClientTokenId", "credentials", "does not accept these credentials"),
        ("SimulatePrincipalPolicy", DENIED, "permissions", "may not ec2:TerminateInstances"),
        ("RunInstances", "UnauthorizedOperation", f"{REGION} launch", "may not ec2:RunInstances"),
        ("DescribeImages", "InvalidAMIID.NotFound", f"{REGION} image", "not there, or not shared"),
        (
            *("DescribeInstanceTypeOfferings", {"InstanceTypeOfferings": OFFERED}, f"{REGION} types"),
            f"{OTHER} is not offered in {REGION}a, {REGION}b",
        ),
        ("GetRole", "NoSuchEntity", "spot role", MAKE_SPOT_ROLE),
        ("GetServiceQuota", {"Quota": {"Value": 0.0}}, f"{REGION} quotas", "ask for at least 2"),
        ("GetInstanceProfile", "NoSuchEntity", "instance profile", "create it"),
        (
            *("DescribeSecurityGroups", {"SecurityGroups": [{"IpPermissions": [OPEN_TO_ALL]}]}),
            *(f"{REGION} security group", "lets in everyone"),
        ),
        ("DescribeSubnets", {"Subnets": []}, f"{REGION} subnets", "is not in this account"),
    ],
)
def test_what_is_missing_is_named(
    aws: FakeAws, config: AwsConfig, operation: str, breaks: Any, what: str, word: str
) -> None:
    if isinstance(breaks, str):
        aws.failures[operation] = [breaks]
    else:
        aws.answers[operation] = breaks
    named = having("missing", aws, config)
    assert {one.what for one in named} == {what}
    assert word in named[0].text
    assert all("\n" not in one.text for one in named)


def test_a_wrong_clock_is_named(aws: FakeAws, config: AwsConfig) -> None:
    made = {one.what: one for one in check(config, aws.session(), lambda: time.time() + 400)}
    assert made["clock"].verdict == "missing"
    assert "+4" in made["clock"].text


def test_no_network_is_one_line(aws: FakeAws, tmp_path: Path) -> None:
    config = AwsConfig.load(write_config(tmp_path, endpoint_url="http://127.0.0.1:9"))
    (said,) = config.check("")
    assert (said.what, said.verdict) == ("credentials", "missing")
    assert "\n" not in said.text
    assert "cannot be reached" in said.text


def test_what_may_not_be_looked_at_is_unknown(aws: FakeAws, config: AwsConfig) -> None:
    aws.failures["SimulatePrincipalPolicy"] = ["AccessDenied"]
    aws.failures["DescribeSubnets"] = ["UnauthorizedOperation"]
    unknown = {one.what: one.text for one in having("unknown", aws, config)}
    assert "permissions" in unknown
    assert "ec2:DescribeSubnets" in unknown[f"{REGION} subnets"]


def test_details_of_spot_offers_and_why_there_are_no_scores(aws: FakeAws, tmp_path: Path) -> None:
    config = AwsConfig.load(write_config(tmp_path))
    aws.set_price(0.06, 1_760_000_000.0)
    aws.failures["GetSpotPlacementScores"] = ["UnauthorizedOperation"] * 2
    provider = AwsProvider(config, aws.session())
    found, notes = config.details(provider, provider.offers(), time.time())
    assert set(found) == {name for name in config.places() if name.endswith("/spot")}
    assert all(one["score"] is None for one in found.values())
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


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"regoins": {}}, "regoins"),
        ({"instance_types": {"m5.large": {"quota": 0}}}, "quota"),
        ({"instance_types": {"x9.large": {"quota": 1}}}, "x9.large"),
        ({"tags": {"aws:x": "1"}}, "reserved"),
        ({"node": {"scheduler_url": "http://10.0.0.1:8443"}}, "scheduler_url"),
    ],
)
def test_a_mistake_is_one_line(aws: FakeAws, tmp_path: Path, changes: dict[str, Any], word: str) -> None:
    path = write_config(tmp_path, **changes)
    with pytest.raises(ConfigError, match=word) as caught:
        AwsConfig.load(path).prices()
    assert "\n" not in str(caught.value)


def test_the_example_configuration_is_one(tmp_path: Path) -> None:
    config = AwsConfig.load(Path(__file__).parents[4] / "configs" / "deploy" / "aws_offers.yaml")
    assert config.prices().usd_hour("us-east-1", "g4dn.xlarge") == 0.526
