"""What is asked of EC2, and what is made of its delays, refusals and ends."""

from __future__ import annotations

import base64
import configparser
import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest

from deploy.billing import PriceSegment, Usage, bill
from deploy.model.instances import InstanceReport, InstanceState, LaunchRequest, Offer
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.describe import described
from deploy.providers.aws.provider import AwsProvider
from deploy.providers.base import CapacityError, PartialError, ProviderError, QuotaError, RefusedError
from deploy.providers.userdata import NodeConfig, user_data
from deploy.security.tokens import join_token
from tests.deploy.providers.aws.fake import REGION, TYPE, FakeAws, make_config, region_config
from tests.deploy.providers.contract import DEPLOYMENT, by_id, request

SPOT = f"aws/{REGION}a/{TYPE}/spot"
ON_DEMAND = f"aws/{REGION}a/{TYPE}/on_demand"


@pytest.fixture
def config(aws: FakeAws, tmp_path: Path) -> AwsConfig:
    return make_config(tmp_path, owner="ann", tags={"team": "rl"})


@pytest.fixture
def provider(aws: FakeAws, config: AwsConfig) -> AwsProvider:
    return AwsProvider(config, aws.session(), aws.clock.now)


@pytest.fixture
def launched(provider: AwsProvider) -> str:
    """The id of a spot instance."""
    return provider.launch(request(SPOT)).instance_id


def offers(provider: AwsProvider) -> dict[str, Offer]:
    return {offer.offer_id: offer for offer in provider.offers()}


def reports(provider: AwsProvider) -> dict[str, InstanceReport]:
    return by_id(provider.describe(DEPLOYMENT))


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
    text = sent["UserData"] if "cloud" in sent["UserData"] else base64.b64decode(sent["UserData"]).decode()
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
    closed = {"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1}
    assert data["MetadataOptions"] == closed
    assert data["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert "UserData" not in data


def test_a_template_is_used_again_and_one_that_is_gone_made_again(
    aws: FakeAws, provider: AwsProvider
) -> None:
    provider.launch(request(SPOT))
    AwsProvider(provider.config, aws.session()).launch(request(SPOT))
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
    for limit, sent in ((None, "0.060000"), (0.055, "0.055000")):
        provider.launch(replace(request(SPOT), max_price_usd_hour=limit))
        assert aws.asked["RunInstances"][-1]["InstanceMarketOptions"]["SpotOptions"]["MaxPrice"] == sent


def test_a_refusal_closes_its_zone_for_a_while_only(aws: FakeAws, provider: AwsProvider) -> None:
    aws.failures["RunInstances"] = ["InsufficientInstanceCapacity"]
    with pytest.raises(CapacityError):
        provider.launch(request(SPOT))
    closed = offers(provider)
    assert not closed[SPOT].available
    assert closed[SPOT].reason.startswith("left alone until ")
    assert "InsufficientInstanceCapacity" in closed[SPOT].reason
    assert closed[f"aws/{REGION}b/{TYPE}/spot"].available
    assert closed[ON_DEMAND].available
    aws.clock.sleep(121)
    again = offers(provider)[SPOT]
    assert again.available
    assert again.up_ratio < 1.0
    assert (again.notice_s, again.free_first_s, again.billing_minimum_s) == (120.0, 3600.0, 60.0)
    assert (again.vcpus, again.memory_gib, again.on_demand_usd_hour) == (2, 8.0, 0.096)
    # 50 GiB at 0.08 USD.
    assert again.disk_usd_month == 4.0


def test_a_full_quota_holds_the_offer_until_something_ends(aws: FakeAws, provider: AwsProvider) -> None:
    first = provider.launch(request(ON_DEMAND))
    aws.failures["RunInstances"] = ["MaxSpotInstanceCountExceeded"]
    with pytest.raises(QuotaError, match="Service Quotas"):
        provider.launch(request(SPOT))
    held = offers(provider)[SPOT]
    assert (held.available, held.up_ratio) == (False, 1.0)
    provider.terminate([first.instance_id])
    assert offers(provider)[SPOT].available


def test_what_has_no_price_is_not_available(aws: FakeAws, provider: AwsProvider) -> None:
    aws.prices.pop((f"{REGION}b", TYPE))
    offer = offers(provider)[f"aws/{REGION}b/{TYPE}/spot"]
    assert (offer.available, offer.reason) == (False, f"EC2 names no spot price for {TYPE} in {REGION}b")


def test_a_price_limit_of_one_request_says_nothing_of_the_offer(aws: FakeAws, provider: AwsProvider) -> None:
    aws.failures["RunInstances"] = ["SpotMaxPriceTooLow"]
    with pytest.raises(CapacityError):
        provider.launch(replace(request(SPOT), max_price_usd_hour=0.01))
    assert all(offer.available for offer in provider.offers())


def test_a_launch_that_failed_costs_nothing_on_demand_either(provider: AwsProvider) -> None:
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
    one = described(entry, REGION, provider.config).report
    assert (one.state, one.by_provider) == (InstanceState.TERMINATED, True)
    assert one.launched_s == one.ended_s == launched.timestamp()
    offer = offers(provider)[ON_DEMAND]
    usage = Usage(
        launched_s=one.launched_s,
        ended_s=one.ended_s,
        by_provider=one.by_provider,
        segments=(PriceSegment(one.launched_s, 96_000),),
        on_demand_micro_usd_hour=96_000,
        minimum_s=offer.billing_minimum_s,
        free_first_s=offer.free_first_s,
    )
    assert bill(usage, time.time()).cost == 0
    # What ran for a second before the provider ended it is charged.
    assert bill(replace(usage, ended_s=one.launched_s + 1), time.time()).cost == 60 * 96_000


def test_an_instance_that_is_not_shown_is_there(aws: FakeAws, provider: AwsProvider, launched: str) -> None:
    aws.hidden.add(launched)
    assert reports(provider)[launched].state is not InstanceState.TERMINATED
    aws.clock.sleep(121)
    # It was never seen: after a while it is not believed in any more.
    assert provider.describe(DEPLOYMENT) == []
    aws.hidden.clear()
    assert launched in reports(provider)
    # One that was seen and is gone is not made up.
    aws.hidden.add(launched)
    assert provider.describe(DEPLOYMENT) == []


def test_an_ended_instance_is_reported_for_an_hour(
    aws: FakeAws, provider: AwsProvider, launched: str
) -> None:
    provider.terminate([launched])
    ended = reports(provider)[launched]
    # Its end is when EC2 says.
    (told,) = boto3.client("ec2", region_name=REGION).describe_instances()["Reservations"][0]["Instances"]
    assert told["StateTransitionReason"].startswith("User initiated (")
    assert ended.ended_s is not None
    assert ended.ended_s == int(ended.ended_s)
    assert abs(ended.ended_s - time.time()) < 60
    assert not ended.by_provider
    aws.hidden.add(launched)
    aws.clock.sleep(3500)
    assert reports(provider)[launched] == ended
    aws.clock.sleep(200)
    assert provider.describe(DEPLOYMENT) == []


def test_an_interruption_ended_when_ec2_says(aws: FakeAws, provider: AwsProvider, launched: str) -> None:
    provider.describe(DEPLOYMENT)
    ended_s = float(int(aws.clock.now()) + 100)
    aws.interrupt(launched, ended_s)
    aws.clock.sleep(150)
    for _ in range(2):
        ended = reports(provider)[launched]
        assert (ended.by_provider, ended.ended_s) == (True, ended_s)
        assert aws.calls["ec2:DescribeSpotInstanceRequests"] == 1
    assert "interrupted" in offers(provider)[SPOT].reason


def test_what_cannot_be_ended_yet_is_remembered(aws: FakeAws, provider: AwsProvider, launched: str) -> None:
    aws.failures["TerminateInstances"] = ["InvalidInstanceID.NotFound"]
    with pytest.raises(ProviderError, match="not visible yet"):
        provider.terminate([launched])
    provider.terminate([launched])
    assert reports(provider)[launched].state is InstanceState.TERMINATED


def test_a_dead_region_is_no_empty_region(aws: FakeAws, provider: AwsProvider, launched: str) -> None:
    aws.failures["DescribeInstances"] = ["UnauthorizedOperation"]
    with pytest.raises(RefusedError, match="ec2:DescribeInstances"):
        provider.describe(DEPLOYMENT)


NODE = NodeConfig(scheduler_url="https://scheduler.example:8443", address="public")


def test_a_job_that_forks_or_eats_memory_does_not_end_the_agent() -> None:
    request = LaunchRequest("token-1", "aws/us-east-1a/m5.large/spot", "test", "job", "main", "n" * 43)
    content = json.loads(user_data(request, NODE, None, "ec2", 16384).partition("\n")[2])
    (unit,) = [one["content"] for one in content["write_files"] if one["path"].endswith(".service")]
    read = configparser.ConfigParser(interpolation=None)
    read.read_string(unit)
    service = read["Service"]
    # By default systemd ends a service of which the kernel has killed one process for its memory.
    assert service["OOMPolicy"] == "continue"
    assert 1000 <= int(service["TasksMax"]) <= 30_000
    assert (service["KillMode"], service["Restart"], service["User"]) == (
        "process",
        "on-failure",
        "spotweave",
    )


# A region that fails neither hides nor spoils the others.


WEST = "us-west-2"
HERE = f"aws/{REGION}a/{TYPE}/on_demand"
THERE = f"aws/{WEST}a/{TYPE}/on_demand"


@pytest.fixture
def two_regions(aws: FakeAws, tmp_path: Path) -> AwsConfig:
    for zone in (f"{WEST}a", f"{WEST}b"):
        aws.prices[zone, TYPE] = [(time.time() - 7200, 0.05)]
    return make_config(tmp_path, regions={REGION: region_config(), WEST: region_config(WEST)})


@pytest.fixture
def both(aws: FakeAws, two_regions: AwsConfig) -> AwsProvider:
    return AwsProvider(two_regions, aws.session())


@pytest.mark.real
def test_the_reports_of_the_others_are_there_and_the_silent_one_is_named(
    aws: FakeAws, both: AwsProvider
) -> None:
    near, far = both.launch(request(HERE)), both.launch(request(THERE))
    assert by_id(both.describe(DEPLOYMENT)).keys() == {near.instance_id, far.instance_id}
    aws.down = {WEST}
    with pytest.raises(PartialError, match=f"no answer from {WEST}: .*RegionIsDown") as partial:
        both.describe(DEPLOYMENT)
    assert by_id(partial.value.reports).keys() == {near.instance_id}
    assert partial.value.silent.keys() == {WEST}
    # If no region answers the provider does not.
    aws.down = {REGION, WEST}
    with pytest.raises(ProviderError) as caught:
        both.describe(DEPLOYMENT)
    assert not isinstance(caught.value, PartialError)
    aws.down = set()
    assert by_id(both.describe(DEPLOYMENT)).keys() == {near.instance_id, far.instance_id}


@pytest.mark.real
def test_an_answer_that_cannot_be_read_silences_its_region_alone(
    aws: FakeAws, both: AwsProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = both.launch(request(HERE))
    both.launch(request(THERE))
    described = aws._described

    def spoiled(parsed: dict[str, Any], **more: Any) -> None:
        described(parsed, **more)
        for reservation in parsed.get("Reservations", []):
            for one in reservation["Instances"]:
                if one["Placement"]["AvailabilityZone"].startswith(WEST):
                    one["State"]["Name"] = "evaporated"

    session = aws.session()
    session.events.register("after-call.ec2.DescribeInstances", spoiled)
    other = AwsProvider(both.config, session)
    with pytest.raises(PartialError, match="evaporated") as caught:
        other.describe(DEPLOYMENT)
    assert by_id(caught.value.reports).keys() == {near.instance_id}


def test_nothing_is_launched_where_nothing_can_be_seen(aws: FakeAws, both: AwsProvider) -> None:
    aws.down = {WEST}
    with pytest.raises(PartialError):
        both.describe(DEPLOYMENT)
    aws.down = set()
    offers = {offer.offer_id: offer for offer in both.offers()}
    assert offers[HERE].available
    assert not offers[THERE].available
    assert "its region is silent: aws us-west-2: instances: RegionIsDown" in offers[THERE].reason
    with pytest.raises(ProviderError, match="nothing is launched where nothing is seen") as caught:
        both.launch(request(THERE))
    # It may be another time.
    assert not isinstance(caught.value, RefusedError)
    assert aws.calls["ec2:RunInstances"] == 0
    both.describe(DEPLOYMENT)
    assert both.launch(request(THERE)).state in (InstanceState.LAUNCHING, InstanceState.RUNNING)


@pytest.mark.real
def test_a_new_or_ended_instance_of_a_silent_region_is_not_forgotten(
    aws: FakeAws, two_regions: AwsConfig
) -> None:
    clock = [time.time()]
    both = AwsProvider(two_regions, aws.session(), lambda: clock[0])
    ended = both.launch(request(THERE))
    both.terminate([ended.instance_id])
    before = by_id(both.describe(DEPLOYMENT))[ended.instance_id]
    aws.down = {WEST}
    clock[0] += 4000.0
    with pytest.raises(PartialError):
        both.describe(DEPLOYMENT)
    aws.down = set()
    assert by_id(both.describe(DEPLOYMENT))[ended.instance_id] == before


@pytest.mark.real
def test_what_can_be_ended_is_ended_and_the_rest_is_an_error(aws: FakeAws, two_regions: AwsConfig) -> None:
    launching = AwsProvider(two_regions, aws.session())
    near, far = launching.launch(request(HERE)), launching.launch(request(THERE))
    names = [far.instance_id, near.instance_id]
    aws.down = {WEST}
    # One that knows where they are, and one that must ask.
    for both in (launching, AwsProvider(two_regions, aws.session())):
        with pytest.raises(ProviderError, match=WEST):
            both.terminate(names)
    for region, state in ((REGION, "terminated"), (WEST, "running")):
        (seen,) = boto3.client("ec2", region_name=region).describe_instances()["Reservations"]
        assert seen["Instances"][0]["State"]["Name"] == state
    # What is known not to be in the silent region is no reason to fail.
    AwsProvider(two_regions, aws.session()).terminate([near.instance_id])
    aws.down = set()
    launching.terminate(names)
    assert {one.state for one in launching.describe(DEPLOYMENT)} == {InstanceState.TERMINATED}
