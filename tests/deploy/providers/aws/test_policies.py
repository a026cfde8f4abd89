"""The policies allow every call that the code makes, and of other launches, ends and objects none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

import pytest

from spotweave.deploy.objects.location import Bucket
from spotweave.deploy.objects.s3 import S3Objects, check_bucket
from spotweave.deploy.providers.aws.catalogue import refreshed
from spotweave.deploy.providers.aws.check import check
from spotweave.deploy.providers.aws.clients import Clients
from spotweave.deploy.providers.aws.config import AwsConfig
from spotweave.deploy.providers.aws.policies import LONGEST, Scope, actions, length, node, operator, scheduler
from spotweave.deploy.providers.aws.provider import AwsProvider
from spotweave.deploy.providers.offers import CatalogueError
from tests.deploy.emulator.aws.conftest import ON_DEMAND, SPOT, TYPE, Cloud, renting
from tests.deploy.providers.contract import DEPLOYMENT, request

# EC2 asks for these by itself: tags in a launch, and the role in the instance profile of a launch.
IMPLIED = {"ec2:CreateTags", "iam:PassRole"}
# Permission by call, where they are not called the same.
PERMISSIONS = {"sqs:DeleteMessageBatch": "sqs:DeleteMessage", "s3:ListObjectsV2": "s3:ListBucket"}
QUEUE = "events"
BUCKET = Bucket("spotweave-checkpoints", "here")
REGION = "us-east-1"
ACCOUNT = "123456789012"
OURS = {"aws:RequestedRegion": REGION, "aws:ResourceAccount": ACCOUNT}
EC2 = f"arn:aws:ec2:{REGION}:{ACCOUNT}:"
Request = tuple[str, str, dict[str, str]]
"""Action, resource, context."""


# IAM's evaluation of one identity policy, as much as our policies use. moto does not look at conditions.
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html

_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda given, wanted: given == wanted,
    "StringLike": fnmatchcase,
    "Bool": lambda given, wanted: given.lower() == wanted.lower(),
    "NumericLessThanEquals": lambda given, wanted: float(given) <= float(wanted),
}


def allowed(policy: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    """Whether a request on one resource is allowed; a launch is one for each resource that it touches."""
    effects = {
        part["Effect"]
        for part in policy["Statement"]
        if any(fnmatchcase(action.lower(), one.lower()) for one in part["Action"])
        and any(fnmatchcase(resource, one) for one in part["Resource"])
        and _holds(part.get("Condition", {}), context)
    }
    return effects == {"Allow"}


def _holds(condition: Mapping[str, Mapping[str, Any]], context: Mapping[str, str]) -> bool:
    """All operators and keys must hold; of a key's values one. A key that a request lacks never holds."""
    return all(
        key in context and any(_OPERATORS[name](context[key], one) for one in _listed(wanted))
        for name, keys in condition.items()
        for key, wanted in keys.items()
    )


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


@pytest.fixture
def cloud(make: Callable[..., Cloud]) -> Cloud:
    """With all that the configuration names."""
    made = make(buckets=[BUCKET.name])
    made.session.client("iam").create_instance_profile(InstanceProfileName="spotweave-node")
    made.ec2.create_key_pair(KeyName="mine")
    sqs = made.session.client("sqs")
    sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName=QUEUE)["QueueUrl"], MessageBody="no event")
    made.called.clear()
    return made


@pytest.fixture
def config() -> AwsConfig:
    return renting(events_queue=QUEUE, instance_profile="spotweave-node", key_name="mine")


@pytest.fixture
def scope(config: AwsConfig) -> Scope:
    return Scope(config, "aws", ACCOUNT, DEPLOYMENT, (BUCKET,), (BUCKET,))


def _work(cloud: Cloud, config: AwsConfig) -> None:
    """Everything that a scheduler does, on every path that calls AWS."""
    provider = AwsProvider(config, cloud.session, cloud.now_s)
    provider.offers()
    spot = provider.launch(request(SPOT))
    owned = provider.launch(request(ON_DEMAND))
    cloud.take(spot.instance_id)
    cloud.after(5)
    provider.describe(DEPLOYMENT)
    provider.describe(DEPLOYMENT)
    provider.terminate([owned.instance_id, "i-00000000000000000"])
    provider.close()
    objects = S3Objects(Clients(session=cloud.session), BUCKET)
    objects.put("job/a", b"content")
    objects.put("job/a", b"content")
    assert objects.names("job/") == ["job/a"]
    objects.delete("job/a")
    assert objects.get("job/a") is None


def calls(cloud: Cloud) -> set[str]:
    """Permissions that were made use of."""
    return {PERMISSIONS.get(call, call) for call in cloud.called}


def test_the_scheduler_may_do_what_it_does_and_no_more(cloud: Cloud, config: AwsConfig, scope: Scope) -> None:
    _work(cloud, config)
    assert calls(cloud) | IMPLIED == set(actions(scheduler(scope)))


def test_the_operator_may_check_and_no_more(cloud: Cloud, config: AwsConfig, scope: Scope) -> None:
    # Everything that a person does with the commands.
    list(check(config, cloud.session))
    assert [one.verdict for one in check_bucket(Clients(session=cloud.session), BUCKET)] == ["right"]
    provider = AwsProvider(config, cloud.session, cloud.now_s)
    config.details(provider, provider.offers(), cloud.now_s())
    pricing, ec2 = (provider.clients.get(service, REGION) for service in ("pricing", "ec2"))
    cloud.answers["GetProducts"] = {"PriceList": []}
    with pytest.raises(CatalogueError):
        refreshed(pricing, ec2, [REGION], [TYPE], date(2026, 1, 1))
    assert calls(cloud) - set(actions(scheduler(scope))) == set(actions(operator()))


def tagged_as(kind: str, specifications: list[dict[str, Any]]) -> dict[str, str]:
    """The context that tags make."""
    return {f"aws:{kind}/{tag['Key']}": tag["Value"] for tag in specifications[0]["Tags"]}


def _launch(sent: dict[str, Any], template: dict[str, Any], template_name: str) -> Iterator[Request]:
    """What EC2 asks IAM about a launch: a request for each resource that it touches or makes."""
    tagged = tagged_as("RequestTag", sent["TagSpecifications"])
    # What is made has no account yet.
    made = {"aws:RequestedRegion": REGION}
    metadata, disk = template["MetadataOptions"], template["BlockDeviceMappings"][0]["Ebs"]
    hops = str(metadata["HttpPutResponseHopLimit"])
    instance = {"ec2:InstanceType": sent["InstanceType"], "ec2:MetadataHttpTokens": metadata["HttpTokens"]}
    instance |= {"ec2:MetadataHttpPutResponseHopLimit": hops}
    volume = {"ec2:Encrypted": str(disk["Encrypted"]).lower(), "ec2:VolumeType": disk["VolumeType"]}
    volume |= {"ec2:VolumeSize": str(disk["VolumeSize"])}
    of_template = tagged_as("ResourceTag", template["TagSpecifications"])
    run = "ec2:RunInstances"
    yield run, f"{EC2}instance/*", made | tagged | instance
    yield run, f"{EC2}volume/*", made | volume
    yield run, f"{EC2}network-interface/*", made
    yield run, f"{EC2}spot-instances-request/*", made
    yield run, f"arn:aws:ec2:{REGION}::image/{template['ImageId']}", made
    yield run, f"{EC2}subnet/{sent['SubnetId']}", OURS
    yield run, f"{EC2}security-group/{template['SecurityGroupIds'][0]}", OURS
    yield run, f"{EC2}key-pair/{template['KeyName']}", OURS
    yield run, f"{EC2}launch-template/{template_name}", OURS | of_template
    for what in ("instance", "volume"):
        yield "ec2:CreateTags", f"{EC2}{what}/*", made | {"ec2:CreateAction": "RunInstances"}
    role = {"iam:PassedToService": "ec2.amazonaws.com"}
    yield "iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/{template['IamInstanceProfile']['Name']}", role


@pytest.fixture
def launch(cloud: Cloud, config: AwsConfig) -> list[Request]:
    """The requests of a launch as the provider makes it."""
    _work(cloud, config)
    made = cloud.asked["CreateLaunchTemplate"][0]
    return list(_launch(cloud.asked["RunInstances"][0], made["LaunchTemplateData"], "lt-0123"))


def test_a_launch_of_ours_is_allowed(cloud: Cloud, scope: Scope, launch: list[Request]) -> None:
    policy = scheduler(scope)
    assert [one for one in launch if not allowed(policy, *one)] == []
    template = cloud.asked["CreateLaunchTemplate"][0]
    context = {"aws:RequestedRegion": REGION} | tagged_as("RequestTag", template["TagSpecifications"])
    assert allowed(policy, "ec2:CreateLaunchTemplate", f"{EC2}launch-template/*", context)
    of_template = {"aws:RequestedRegion": REGION, "ec2:CreateAction": "CreateLaunchTemplate"}
    assert allowed(policy, "ec2:CreateTags", f"{EC2}launch-template/*", of_template)
    assert allowed(policy, "ec2:DescribeInstances", "*", {"aws:RequestedRegion": REGION})


SPOILED: list[tuple[str, str, str | None]] = [
    ("instance/", "ec2:InstanceType", "p4d.24xlarge"),
    ("instance/", "aws:RequestTag/spotweave:deployment", "another"),
    ("instance/", "aws:RequestTag/spotweave:deployment", None),
    ("instance/", "ec2:MetadataHttpTokens", "optional"),
    ("instance/", "ec2:MetadataHttpPutResponseHopLimit", "2"),
    ("volume/", "ec2:Encrypted", "false"),
    ("volume/", "ec2:VolumeSize", "51"),
    ("volume/", "ec2:VolumeType", "io2"),
    ("subnet/", "aws:ResourceAccount", "999999999999"),
    ("security-group/", "aws:ResourceAccount", "999999999999"),
    ("launch-template/", "aws:ResourceTag/spotweave:deployment", "another"),
    ("launch-template/", "aws:ResourceTag/spotweave:deployment", None),
    ("role/", "iam:PassedToService", "lambda.amazonaws.com"),
]


def test_a_launch_that_is_not_ours_is_refused(scope: Scope, launch: list[Request]) -> None:
    policy = scheduler(scope)
    for about, key, value in SPOILED:
        (found,) = [one for one in launch if about in one[1] and one[0] != "ec2:CreateTags"]
        action, resource, context = found
        assert allowed(policy, action, resource, context)
        rest = {name: context[name] for name in context if name != key}
        spoiled = rest if value is None else {**rest, key: value}
        assert not allowed(policy, action, resource, spoiled), (about, key, value)
    # Nor with another image, subnet, group, key pair or role, in another region or account.
    for action, resource, context in launch:
        others = [resource.replace(REGION, "eu-west-1"), resource.replace(ACCOUNT, "999999999999")]
        if "/*" not in resource and "launch-template" not in resource:
            others.append(f"{resource.rpartition('/')[0]}/other-0123")
        for other in others:
            assert other == resource or not allowed(policy, action, other, context), other


ONE, ALL = f"{EC2}instance/i-1", "arn:aws:s3:::spotweave-checkpoints"
SQS = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{QUEUE}"
TAG = "aws:ResourceTag/spotweave:deployment"
TO_EC2 = {"iam:PassedToService": "ec2.amazonaws.com"}
OTHERS: list[tuple[str, str, dict[str, str | None], bool]] = [
    ("ec2:TerminateInstances", ONE, {}, True),
    ("ec2:TerminateInstances", ONE, {TAG: "another"}, False),
    ("ec2:TerminateInstances", ONE, {TAG: None}, False),
    ("ec2:TerminateInstances", ONE, {"aws:ResourceAccount": "999999999999"}, False),
    ("ec2:TerminateInstances", ONE.replace(REGION, "eu-west-1"), {}, False),
    # A tag cannot be put on what is somebody else's, to end it then.
    ("ec2:CreateTags", ONE, {}, False),
    ("ec2:CreateTags", ONE, {"ec2:CreateAction": "CreateVolume"}, False),
    ("ec2:StopInstances", ONE, {}, False),
    ("ec2:ModifyInstanceAttribute", ONE, {}, False),
    ("ec2:DescribeInstances", "*", {"aws:RequestedRegion": "eu-west-1"}, False),
    ("s3:PutObject", f"{ALL}/here/job/a", {}, True),
    ("s3:PutObject", f"{ALL}/there/job/a", {}, False),
    ("s3:PutObject", f"{ALL}2/here/job/a", {}, False),
    ("s3:PutObject", f"{ALL}/here/job/a", {"aws:ResourceAccount": "999999999999"}, False),
    ("s3:ListBucket", ALL, {"s3:prefix": "here/job/"}, True),
    ("s3:ListBucket", ALL, {"s3:prefix": "here/"}, True),
    ("s3:ListBucket", ALL, {"s3:prefix": ""}, False),
    ("s3:ListBucket", ALL, {}, False),
    ("sqs:ReceiveMessage", SQS, {}, True),
    ("sqs:ReceiveMessage", f"{SQS}2", {}, False),
    ("sqs:ReceiveMessage", SQS, {"aws:ResourceAccount": "999999999999"}, False),
    ("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/spotweave-node", {**TO_EC2}, True),
    ("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/admin", {**TO_EC2}, False),
]


def test_what_else_the_scheduler_may_and_may_not(scope: Scope) -> None:
    policy = scheduler(scope)
    for action, resource, changes, may in OTHERS:
        context = {**OURS, TAG: DEPLOYMENT, **changes}
        given = {key: value for key, value in context.items() if value is not None}
        assert allowed(policy, action, resource, given) is may, (action, resource, changes)


def test_without_a_profile_no_role_may_be_passed_and_without_places_nothing_is_kept(scope: Scope) -> None:
    config = scope.config.model_copy(update={"instance_profile": None, "events_queue": None})
    bare = replace(scope, config=config, scheduler_buckets=(), node_buckets=())
    assert not [name for name in actions(scheduler(bare)) if not name.startswith("ec2:")]
    assert not allowed(node(bare), "s3:GetObject", "arn:aws:s3:::spotweave-checkpoints/here/a", OURS)
    assert actions(node(bare)) == ()


def test_nodes_may_use_the_place_of_spark_alone(scope: Scope) -> None:
    policy = node(scope)
    assert set(actions(policy)) == {"s3:PutObject", "s3:GetObject", "s3:DeleteObject", "s3:ListBucket"}
    assert allowed(policy, "s3:GetObject", "arn:aws:s3:::spotweave-checkpoints/here/a", OURS)
    assert not allowed(policy, "s3:GetObject", "arn:aws:s3:::spotweave-checkpoints/a", OURS)


def test_policies_are_ones_that_iam_takes(cloud: Cloud, scope: Scope) -> None:
    iam = cloud.session.client("iam")
    for k, policy in enumerate((scheduler(scope), operator(), node(scope))):
        iam.create_policy(PolicyName=f"p{k}", PolicyDocument=json.dumps(policy))
        assert length(policy) < LONGEST
        sids = [part["Sid"] for part in policy["Statement"]]
        assert len(set(sids)) == len(sids)
        for part in policy["Statement"]:
            if part["Effect"] == "Allow":
                assert not any("*" in action for action in part["Action"])
                looks = ("Describe", "Get", "List", "Simulate")
                looking = all(action.split(":")[1].startswith(looks) for action in part["Action"])
                assert looking or part["Resource"] != ["*"]
