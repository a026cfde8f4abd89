"""IAM policies of one deployment: what its scheduler, its operator and its nodes may do, and no more.

Conditions are those of https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotweave.deploy.objects.location import Bucket
from spotweave.deploy.providers.aws.config import DEPLOYMENT, AwsConfig

LONGEST = 10_240  # characters, without white space, that IAM takes of all policies within a role together
Policy = dict[str, Any]
_Statement = dict[str, Any]


@dataclass(frozen=True)
class Scope:
    """What policies are for: who rents what, and the places in S3 of the scheduler and of nodes."""

    config: AwsConfig
    partition: str
    account: str
    deployment: str
    scheduler_buckets: tuple[Bucket, ...] = ()
    node_buckets: tuple[Bucket, ...] = ()

    def arns(self, resource: str) -> list[str]:
        """ARNs of a resource of EC2 in every region."""
        return [
            f"arn:{self.partition}:ec2:{region}:{self.account}:{resource}" for region in self.config.regions
        ]


def scheduler(scope: Scope) -> Policy:
    """Policy of the role of the scheduler's machine."""
    config, here = scope.config, {"aws:ResourceAccount": scope.account}
    statements = [
        # None of these can be narrowed to resources.
        _allow(
            "Look",
            [
                "ec2:DescribeInstances",
                "ec2:DescribeSpotPriceHistory",
                "ec2:DescribeSpotInstanceRequests",
                "ec2:DescribeImages",
            ],
            ["*"],
            {"StringEquals": {"aws:RequestedRegion": list(config.regions)}},
        ),
        *_launching(scope),
        _allow(
            "EndOnlyOurOwn",
            ["ec2:TerminateInstances"],
            scope.arns("instance/*"),
            {"StringEquals": {f"aws:ResourceTag/{DEPLOYMENT}": scope.deployment, **here}},
        ),
    ]
    if config.queues:
        queues = [
            f"arn:{scope.partition}:sqs:{region}:{scope.account}:{queue.rpartition('/')[2]}"
            for region, queue in config.queues.items()
        ]
        does = ["sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage"]
        statements.append(_allow("HearOfInterruptions", does, queues, {"StringEquals": here}))
    return _policy([*statements, *_kept(scope, scope.scheduler_buckets)])


def operator() -> Policy:
    """Additional policy for `clouds check`, `offers` and refreshing the price list."""
    return _policy(
        [
            _allow(
                "CheckTheAccountAndRefreshThePriceList",
                [
                    "ec2:DescribeAvailabilityZones",
                    "ec2:DescribeInstanceTypeOfferings",
                    "ec2:DescribeInstanceTypes",
                    "ec2:DescribeSecurityGroups",
                    "ec2:DescribeSubnets",
                    "ec2:GetSpotPlacementScores",
                    "events:ListRuleNamesByTarget",
                    "iam:GetInstanceProfile",
                    "iam:GetRole",
                    "iam:SimulatePrincipalPolicy",
                    "pricing:GetProducts",
                    "servicequotas:GetServiceQuota",
                    "sqs:GetQueueAttributes",
                    "sts:GetCallerIdentity",
                ],
                ["*"],
            )
        ]
    )


def node(scope: Scope) -> Policy:
    """Policy of the nodes' role, if they have one. The code of every job gets these rights too."""
    statements = _kept(scope, scope.node_buckets)
    if not statements:
        statements = [{"Sid": "NodesCallNothing", "Effect": "Deny", "Action": ["*"], "Resource": ["*"]}]
    return _policy(statements)


def actions(policy: Policy) -> tuple[str, ...]:
    """Actions that a policy allows, in its order."""
    allowed = [part["Action"] for part in policy["Statement"] if part["Effect"] == "Allow"]
    return tuple(dict.fromkeys(action for group in allowed for action in group))


def _launching(scope: Scope) -> Iterable[_Statement]:
    config, launch = scope.config, ["ec2:RunInstances"]
    ours = {f"aws:RequestTag/{DEPLOYMENT}": scope.deployment}
    # What does not exist yet has no account that could be compared: its ARN names it.
    here = {"aws:ResourceAccount": scope.account}
    yield _allow(
        "LaunchOurInstances",
        launch,
        scope.arns("instance/*"),
        {
            "StringEquals": {
                **ours,
                "ec2:InstanceType": list(config.instance_types),
                "ec2:MetadataHttpTokens": "required",
            },
            "NumericLessThanEquals": {"ec2:MetadataHttpPutResponseHopLimit": "1"},
        },
    )
    yield _allow(
        "FromOurImages",
        launch,
        [
            f"arn:{scope.partition}:ec2:{region}::image/{part.image}"
            for region, part in config.regions.items()
        ],
    )
    prefix = {region: f"arn:{scope.partition}:ec2:{region}:{scope.account}:" for region in config.regions}
    network = [
        f"{prefix[region]}{name}"
        for region, part in config.regions.items()
        for name in (
            *(f"subnet/{subnet}" for subnet in part.subnets.values()),
            f"security-group/{part.security_group}",
            *([f"key-pair/{config.key_name}"] if config.key_name else []),
        )
    ]
    yield _allow("InOurNetwork", launch, network, {"StringEquals": here})
    yield _allow(
        "WithEncryptedDisks",
        launch,
        scope.arns("volume/*"),
        {
            "Bool": {"ec2:Encrypted": "true"},
            "StringEquals": {"ec2:VolumeType": "gp3"},
            "NumericLessThanEquals": {"ec2:VolumeSize": str(config.disk_gib)},
        },
    )
    yield _allow(
        "WithWhatALaunchMakes",
        launch,
        [*scope.arns("network-interface/*"), *scope.arns("spot-instances-request/*")],
    )
    yield _allow(
        "ByOurTemplates",
        launch,
        scope.arns("launch-template/*"),
        {"StringEquals": {f"aws:ResourceTag/{DEPLOYMENT}": scope.deployment, **here}},
    )
    yield _allow(
        "MakeOurTemplates",
        ["ec2:CreateLaunchTemplate"],
        scope.arns("launch-template/*"),
        {"StringEquals": ours},
    )
    yield _allow(
        "TagWhatIsMade",
        ["ec2:CreateTags"],
        [*scope.arns("instance/*"), *scope.arns("volume/*"), *scope.arns("launch-template/*")],
        {"StringEquals": {"ec2:CreateAction": ["RunInstances", "CreateLaunchTemplate"]}},
    )
    if config.instance_profile is not None:
        yield _allow(
            "GiveNodesTheirRole",
            ["iam:PassRole"],
            # The console and our guide give a profile's role the name of the profile.
            [f"arn:{scope.partition}:iam::{scope.account}:role/{config.instance_profile}"],
            {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
        )


def _kept(scope: Scope, buckets: Iterable[Bucket]) -> list[_Statement]:
    """Objects under the prefixes of buckets, and their names."""
    here = {"StringEquals": {"aws:ResourceAccount": scope.account}}
    statements = []
    for n, bucket in enumerate(buckets, 1):
        arn = f"arn:{scope.partition}:s3:::{bucket.name}"
        does = ["s3:PutObject", "s3:GetObject", "s3:DeleteObject"]
        statements.append(_allow(f"KeepCheckpoints{n}", does, [f"{arn}/{bucket.key('*')}"], here))
        under = {"StringLike": {"s3:prefix": [bucket.key("*")]}} if bucket.prefix else {}
        statements.append(_allow(f"FindCheckpoints{n}", ["s3:ListBucket"], [arn], {**here, **under}))
    return statements


def _allow(
    sid: str, does: Sequence[str], to: Sequence[str], condition: Mapping[str, Mapping[str, Any]] | None = None
) -> _Statement:
    statement = {"Sid": sid, "Effect": "Allow", "Action": list(does), "Resource": list(to)}
    return {**statement, "Condition": condition} if condition else statement


def _policy(statements: Iterable[_Statement]) -> Policy:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def length(policy: Policy) -> int:
    """As IAM counts it."""
    return len(json.dumps(policy, separators=(",", ":")))
