"""What is asked of EC2, and what is made of its delays, refusals and ends."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import boto3
import pytest

from deploy.billing import PriceSegment, Usage, bill
from deploy.model.instances import InstanceState
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.describe import described
from deploy.providers.aws.provider import AwsProvider
from deploy.providers.base import CapacityError, ProviderError, QuotaError, RefusedError
from deploy.security.tokens import join_token
from tests.deploy.providers.aws.fake import REGION, TYPE, FakeAws, make_config
from tests.deploy.providers.contract import DEPLOYMENT, by_id, request

SPOT = f"aws/{REGION}a/{TYPE}/spot"
ON_DEMAND = f"aws/{REGION}a/{TYPE}/on_demand"


class Clock:
    def __init__(self) -> None:
        self.now_s = time.time()

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def config(aws: FakeAws, tmp_path: Path) -> AwsConfig:
    return make_config(tmp_path, owner="ann", tags={"team": "rl"})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def provider(aws: FakeAws, config: AwsConfig, clock: Clock) -> AwsProvider:
    return AwsProvider(config, aws.session(), clock)


def test_a_launch_is_tagged_capped_and_holds_no_secret(aws: FakeAws, provider: AwsProvider) -> None:
    asked = request(SPOT)
    provider.launch(asked)
    sent = aws.asked["RunInstances"][-1]
    assert sent["InstanceMarketOptions"] == {
        "MarketType": "spot",
        "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
    }
    assert len(sent["ClientToken"]) == 64
    tags = {tag["Key"]: tag["Value"] for tag in sent["TagSpecifications"][0]["Tags"]}
    assert tags == {
        "Name": "spotweave job-1 main",
        "spotweave:deployment": DEPLOYMENT,
        "spotweave:job": "job-1",
        "spotweave:task": "main",
        "spotweave:owner": "ann",
        "spotweave:client-token": asked.client_token,
        "team": "rl",
    }
    text = (
        base64.b64decode(sent["UserData"]).decode() if "cloud" not in sent["UserData"] else sent["UserData"]
    )
    assert text.startswith("#cloud-config\n")
    assert asked.node_token not in text
    assert asked.node_token not in repr(sent)
    content = json.loads(text.partition("\n")[2])
    join = json.loads(content["write_files"][0]["content"])
    assert content["write_files"][0]["permissions"] == "0600"
    assert join["client_token"] == asked.client_token
    assert join["join_token"] == join_token(asked.node_token, asked.client_token)


def test_a_template_is_made_once_and_closes_what_it_can(aws: FakeAws, provider: AwsProvider) -> None:
    provider.launch(request(SPOT))
    provider.launch(request(ON_DEMAND))
    assert aws.calls["ec2:CreateLaunchTemplate"] == 1
    data = aws.asked["CreateLaunchTemplate"][0]["LaunchTemplateData"]
    assert data["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
    }
    assert data["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert "UserData" not in data


def test_a_template_that_is_there_is_used_and_one_that_is_gone_is_made_again(
    aws: FakeAws, config: AwsConfig, provider: AwsProvider
) -> None:
    provider.launch(request(SPOT))
    AwsProvider(config, aws.session()).launch(request(SPOT))
    ec2 = boto3.client("ec2", region_name=REGION)
    templates = ec2.describe_launch_templates()["LaunchTemplates"]
    assert len(templates) == 1
    ec2.delete_launch_template(LaunchTemplateName=templates[0]["LaunchTemplateName"])
    aws.failures["RunInstances"] = ["InvalidLaunchTemplateName.NotFoundException"]
    provider.launch(request(ON_DEMAND))
    assert len(ec2.describe_launch_templates()["LaunchTemplates"]) == 1


def test_the_lower_of_two_price_limits_is_sent(aws: FakeAws, tmp_path: Path) -> None:
    config = make_config(tmp_path, instance_types={TYPE: {"quota": 2, "max_price_usd_hour": 0.06}})
    provider = AwsProvider(config, aws.session())
    provider.launch(request(SPOT))
    assert aws.asked["RunInstances"][-1]["InstanceMarketOptions"]["SpotOptions"]["MaxPrice"] == "0.060000"


def test_a_refusal_closes_its_zone_for_a_while_only(
    aws: FakeAws, provider: AwsProvider, clock: Clock
) -> None:
    aws.closed.add((f"{REGION}a", TYPE, "spot"))
    with pytest.raises(CapacityError):
        provider.launch(request(SPOT))
    offers = {offer.offer_id: offer for offer in provider.offers()}
    assert not offers[SPOT].available
    assert offers[SPOT].reason.startswith("left alone until ")
    assert "InsufficientInstanceCapacity" in offers[SPOT].reason
    assert offers[f"aws/{REGION}b/{TYPE}/spot"].available
    assert offers[ON_DEMAND].available
    clock.now_s += 121
    again = {offer.offer_id: offer for offer in provider.offers()}[SPOT]
    assert again.available
    assert again.up_ratio < 1.0
    assert (again.notice_s, again.free_first_s, again.billing_minimum_s) == (120.0, 3600.0, 60.0)
    assert (again.vcpus, again.memory_gib, again.on_demand_usd_hour) == (2, 8.0, 0.096)
    # 50 GiB at 0.08 USD.
    assert again.disk_usd_month == 4.0


def test_a_full_quota_holds_the_offer_until_something_ends(aws: FakeAws, provider: AwsProvider) -> None:
    first = provider.launch(request(ON_DEMAND))
    aws.full = True
    with pytest.raises(QuotaError, match="Service Quotas"):
        provider.launch(request(SPOT))
    held = {offer.offer_id: offer for offer in provider.offers()}[SPOT]
    assert not held.available
    assert held.up_ratio == 1.0
    provider.terminate([first.instance_id])
    assert {offer.offer_id: offer for offer in provider.offers()}[SPOT].available


def test_a_price_limit_of_one_request_says_nothing_of_the_offer(aws: FakeAws, provider: AwsProvider) -> None:
    with pytest.raises(CapacityError):
        provider.launch(replace(request(SPOT), max_price_usd_hour=0.01))
    assert all(offer.available for offer in provider.offers())


def test_a_launch_that_failed_costs_nothing_on_demand_either(
    config: AwsConfig, provider: AwsProvider, clock: Clock
) -> None:
    launched = datetime(2026, 3, 1, 12, 0, 7, tzinfo=UTC)
    entry = {
        "InstanceId": "i-1",
        "InstanceType": TYPE,
        "Placement": {"AvailabilityZone": f"{REGION}a"},
        "State": {"Name": "terminated"},
        "StateReason": {"Code": "Server.InternalError"},
        "StateTransitionReason": "Server.InternalError",
        "LaunchTime": launched,
    }
    one = described(entry, REGION, config).report
    assert (one.state, one.by_provider) == (InstanceState.TERMINATED, True)
    assert one.launched_s == one.ended_s == launched.timestamp()
    offer = {offer.offer_id: offer for offer in provider.offers()}[ON_DEMAND]
    usage = Usage(
        launched_s=one.launched_s,
        ended_s=one.ended_s,
        by_provider=one.by_provider,
        segments=(PriceSegment(one.launched_s, 96_000),),
        on_demand_micro_usd_hour=96_000,
        minimum_s=offer.billing_minimum_s,
        free_first_s=offer.free_first_s,
    )
    assert bill(usage, clock()).cost == 0
    # What ran for a second before the provider ended it is charged.
    assert bill(replace(usage, ended_s=one.launched_s + 1), clock()).cost == 60 * 96_000


def test_an_instance_that_ec2_does_not_show_yet_is_there(
    aws: FakeAws, provider: AwsProvider, clock: Clock
) -> None:
    launched = provider.launch(request(SPOT))
    aws.hidden.add(launched.instance_id)
    assert by_id(provider.describe(DEPLOYMENT))[launched.instance_id].state is not InstanceState.TERMINATED
    clock.now_s += 121
    # It was never seen: after a while it is not believed in any more.
    assert provider.describe(DEPLOYMENT) == []
    aws.hidden.clear()
    assert launched.instance_id in by_id(provider.describe(DEPLOYMENT))


def test_an_instance_that_was_seen_and_is_gone_is_not_made_up(aws: FakeAws, provider: AwsProvider) -> None:
    launched = provider.launch(request(SPOT))
    provider.describe(DEPLOYMENT)
    aws.hidden.add(launched.instance_id)
    assert provider.describe(DEPLOYMENT) == []


def test_an_ended_instance_is_reported_for_an_hour(aws: FakeAws, provider: AwsProvider, clock: Clock) -> None:
    launched = provider.launch(request(SPOT))
    provider.terminate([launched.instance_id])
    ended = by_id(provider.describe(DEPLOYMENT))[launched.instance_id]
    aws.hidden.add(launched.instance_id)
    clock.now_s += 3500
    assert by_id(provider.describe(DEPLOYMENT))[launched.instance_id] == ended
    clock.now_s += 200
    assert provider.describe(DEPLOYMENT) == []


def test_an_interruption_ends_when_its_spot_request_says(
    aws: FakeAws, provider: AwsProvider, clock: Clock
) -> None:
    launched = provider.launch(request(SPOT))
    provider.describe(DEPLOYMENT)
    ended_s = float(int(clock.now_s) + 100)
    aws.interrupt(launched.instance_id, ended_s)
    clock.now_s += 150
    ended = by_id(provider.describe(DEPLOYMENT))[launched.instance_id]
    assert (ended.by_provider, ended.ended_s) == (True, ended_s)
    assert aws.calls["ec2:DescribeSpotInstanceRequests"] == 1
    provider.describe(DEPLOYMENT)
    assert aws.calls["ec2:DescribeSpotInstanceRequests"] == 1
    offer = {offer.offer_id: offer for offer in provider.offers()}[SPOT]
    assert "interrupted" in offer.reason


def test_an_end_is_when_ec2_says(aws: FakeAws, provider: AwsProvider) -> None:
    launched = provider.launch(request(SPOT))
    backend_says = boto3.client("ec2", region_name=REGION)
    provider.terminate([launched.instance_id])
    raw = backend_says.describe_instances(InstanceIds=[launched.instance_id])["Reservations"][0]["Instances"][
        0
    ]
    assert raw["StateTransitionReason"].startswith("User initiated (")
    ended = by_id(provider.describe(DEPLOYMENT))[launched.instance_id]
    assert ended.ended_s is not None
    assert ended.ended_s == int(ended.ended_s)
    assert abs(ended.ended_s - time.time()) < 60
    assert not ended.by_provider


def test_a_new_instance_that_cannot_be_ended_yet_is_not_forgotten(
    aws: FakeAws, provider: AwsProvider, clock: Clock
) -> None:
    launched = provider.launch(request(SPOT))
    aws.failures["TerminateInstances"] = ["InvalidInstanceID.NotFound"]
    with pytest.raises(ProviderError, match="not visible yet"):
        provider.terminate([launched.instance_id])
    provider.terminate([launched.instance_id])
    assert by_id(provider.describe(DEPLOYMENT))[launched.instance_id].state is InstanceState.TERMINATED


def test_a_dead_region_is_no_empty_region(aws: FakeAws, provider: AwsProvider) -> None:
    provider.launch(request(SPOT))
    aws.failures["DescribeInstances"] = ["UnauthorizedOperation"]
    with pytest.raises(RefusedError, match="ec2:DescribeInstances"):
        provider.describe(DEPLOYMENT)
