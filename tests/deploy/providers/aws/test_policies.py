"""The policies allow every call that the code makes, and none that it does not make."""

from __future__ import annotations

import json
import time
from datetime import date
from pathlib import Path

import boto3
import pytest

from deploy.objects.checking import ACTIONS, check_bucket
from deploy.objects.location import Bucket
from deploy.objects.s3 import S3Objects
from deploy.providers.aws.candidates import candidates
from deploy.providers.aws.catalogue import refreshed
from deploy.providers.aws.check import check
from deploy.providers.aws.clients import Clients
from deploy.providers.aws.provider import AwsProvider
from deploy.providers.aws.rights import POLICIES, actions
from deploy.providers.base import ProviderError
from tests.deploy.providers.aws.fake import REGION, TYPE, FakeAws, make_config
from tests.deploy.providers.contract import DEPLOYMENT, request

# EC2 asks for these by itself: tags in a launch, and the role in the instance profile of a launch.
IMPLIED = {"ec2:CreateTags", "iam:PassRole"}
# Permission by call, where they are not called the same.
PERMISSIONS = {"sqs:DeleteMessageBatch": "sqs:DeleteMessage", "s3:ListObjectsV2": "s3:ListBucket"}
QUEUE = "spotweave-events"
BUCKET = Bucket("spotweave-checkpoints", "here")
SPOT = f"aws/{REGION}a/{TYPE}/spot"


def _work(aws: FakeAws, tmp_path: Path) -> None:
    """Everything that a scheduler does, on every path that calls EC2."""
    provider = AwsProvider(make_config(tmp_path, events_queue=QUEUE), aws.session())
    provider.offers()
    spot = provider.launch(request(SPOT))
    owned = provider.launch(request(f"aws/{REGION}a/{TYPE}/on_demand"))
    aws.interrupt(spot.instance_id, time.time())
    sqs = boto3.client("sqs", region_name=REGION)
    sqs.send_message(QueueUrl=sqs.create_queue(QueueName=QUEUE)["QueueUrl"], MessageBody="no event")
    provider.describe(DEPLOYMENT)
    provider.describe(DEPLOYMENT)
    provider.terminate([owned.instance_id, "i-00000000000000000"])
    provider.close()
    boto3.client("s3", region_name=REGION).create_bucket(Bucket=BUCKET.name)
    objects = S3Objects(Clients(session=aws.session()), BUCKET)
    objects.put("job/a", b"content")
    objects.put("job/a", b"content")
    assert objects.names("job/") == ["job/a"]
    objects.delete("job/a")
    assert objects.get("job/a") is None


def _operate(aws: FakeAws, tmp_path: Path) -> None:
    """Everything that a person does with the commands."""
    config = make_config(tmp_path, instance_profile="spotweave-node", events_queue=QUEUE)
    boto3.client("sqs", region_name=REGION).create_queue(QueueName=QUEUE)
    aws.answers["GetServiceQuota"] = {"Quota": {"Value": 32.0}}
    aws.answers["SimulatePrincipalPolicy"] = {"EvaluationResults": [], "IsTruncated": False}
    aws.answers["GetSpotPlacementScores"] = {"SpotPlacementScores": []}
    aws.answers["GetProducts"] = {"PriceList": []}
    list(check(config, aws.session()))
    boto3.client("s3", region_name=REGION).create_bucket(Bucket=BUCKET.name)
    assert [one.verdict for one in check_bucket(Clients(session=aws.session()), BUCKET)] == ["right"]
    provider = AwsProvider(config, aws.session())
    candidates(provider, time.time())
    clients = provider.clients
    with pytest.raises((ValueError, ProviderError)):
        refreshed(
            clients.get("pricing", REGION), clients.get("ec2", REGION), [REGION], [TYPE], date(2026, 1, 1)
        )


def test_the_scheduler_may_do_what_it_does_and_no_more(aws: FakeAws, tmp_path: Path) -> None:
    _work(aws, tmp_path)
    assert {PERMISSIONS.get(call, call) for call in aws.calls} | IMPLIED == set(actions("scheduler"))


def test_the_operator_may_check_and_no_more(aws: FakeAws, tmp_path: Path) -> None:
    _operate(aws, tmp_path)
    calls = {PERMISSIONS.get(call, call) for call in aws.calls}
    assert calls - set(actions("scheduler")) == set(actions("operator"))


def test_policies_are_narrow() -> None:
    for name in ("scheduler", "operator", "node"):
        content = json.loads((POLICIES / f"{name}.json").read_text())
        assert content["Version"] == "2012-10-17"
        for statement in content["Statement"]:
            if statement["Effect"] == "Allow":
                assert not any("*" in action for action in statement["Action"])
    scheduler = json.loads((POLICIES / "scheduler.json").read_text())["Statement"]
    for statement in scheduler:
        if any(action.startswith("sqs:") for action in statement["Action"]):
            assert statement["Resource"] == "arn:aws:sqs:*:*:spotweave*"
        if set(ACTIONS) & set(statement["Action"]):
            assert statement["Resource"] == "arn:aws:s3:::spotweave-*/*"
        if "s3:ListBucket" in statement["Action"]:
            assert statement["Resource"] == "arn:aws:s3:::spotweave-*"
        if {"ec2:TerminateInstances", "iam:PassRole", "ec2:CreateTags"} & set(statement["Action"]):
            assert statement["Condition"]
