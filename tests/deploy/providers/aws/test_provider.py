"""What is asked of EC2, and what is made of its delays, refusals and ends."""

from __future__ import annotations

import base64
import configparser
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy.billing import PriceSegment, Usage, bill
from spotweave.deploy.emulator.aws import world
from spotweave.deploy.model.instances import InstanceReport, InstanceState, Offer
from spotweave.deploy.providers.aws import launch
from spotweave.deploy.providers.aws.provider import AwsProvider
from spotweave.deploy.providers.base import (
    CapacityError,
    PartialError,
    ProviderError,
    QuotaError,
    RefusedError,
)
from spotweave.deploy.providers.userdata import user_data
from spotweave.deploy.security.tokens import join_token
from tests.deploy.emulator.aws.conftest import ON_DEMAND, POOL, SPOT, TYPE, ZONE, Cloud, region, renting
from tests.deploy.emulator.transport import START_S
from tests.deploy.providers.contract import DEPLOYMENT, by_id, request

Make = Callable[..., Cloud]
OTHER_ZONE = f"aws/us-east-1b/{TYPE}/spot"


@pytest.fixture
def provider(cloud: Cloud) -> AwsProvider:
    return cloud.provider(owner="ann", tags={"team": "rl"})


@pytest.fixture
def launched(provider: AwsProvider) -> str:
    """The id of a spot instance."""
    return provider.launch(request(SPOT)).instance_id


def offers(provider: AwsProvider) -> dict[str, Offer]:
    return {offer.offer_id: offer for offer in provider.offers()}


def reports(provider: AwsProvider) -> dict[str, InstanceReport]:
    return by_id(provider.describe(DEPLOYMENT))


def test_a_launch_is_tagged_capped_and_holds_no_secret(cloud: Cloud, provider: AwsProvider) -> None:
    asked = request(SPOT)
    provider.launch(asked)
    sent = cloud.asked["RunInstances"][-1]
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


def test_a_template_closes_what_it_can_is_used_again_and_if_it_is_gone_made_again(
    cloud: Cloud, provider: AwsProvider
) -> None:
    provider.launch(request(SPOT))
    provider.launch(request(ON_DEMAND))
    assert cloud.emulator.calls["ec2:CreateLaunchTemplate"] == 1
    data = cloud.asked["CreateLaunchTemplate"][0]["LaunchTemplateData"]
    closed = {"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1}
    assert data["MetadataOptions"] == closed
    assert data["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert "UserData" not in data
    cloud.provider(owner="ann", tags={"team": "rl"}).launch(request(SPOT))
    (template,) = cloud.ec2.describe_launch_templates()["LaunchTemplates"]
    cloud.ec2.delete_launch_template(LaunchTemplateName=template["LaunchTemplateName"])
    provider.launch(request(ON_DEMAND))
    assert len(cloud.ec2.describe_launch_templates()["LaunchTemplates"]) == 1


def test_a_price_limit_is_sent_and_a_price_above_it_says_nothing_of_capacity(cloud: Cloud) -> None:
    provider = cloud.provider(instance_types={TYPE: {"quota": 2, "max_price_usd_hour": 0.35}})
    provider.launch(request(SPOT))
    sent = cloud.asked["RunInstances"][-1]["InstanceMarketOptions"]["SpotOptions"]
    assert sent["MaxPrice"] == "0.350000"
    cloud.answers["RunInstances"] = "SpotMaxPriceTooLow"
    with pytest.raises(CapacityError):
        provider.launch(request(SPOT))
    assert all(offer.available for offer in provider.offers())


def test_a_refusal_closes_its_zone_for_a_while_only(cloud: Cloud, provider: AwsProvider) -> None:
    cloud.answers["RunInstances"] = "InsufficientInstanceCapacity"
    with pytest.raises(CapacityError):
        provider.launch(request(SPOT))
    closed = offers(provider)
    assert not closed[SPOT].available
    assert closed[SPOT].reason.startswith("left alone until ")
    assert "InsufficientInstanceCapacity" in closed[SPOT].reason
    assert closed[OTHER_ZONE].available
    assert closed[ON_DEMAND].available
    cloud.after(121)
    again = offers(provider)[SPOT]
    assert again.available
    assert again.up_ratio < 1.0
    assert (again.notice_s, again.free_first_s, again.billing_minimum_s) == (120.0, 3600.0, 60.0)
    assert (again.vcpus, again.memory_gib, again.on_demand_usd_hour) == (4, 16.0, 0.526)
    # 50 GiB at 0.08 USD.
    assert again.disk_usd_month == 4.0


def test_a_full_quota_holds_the_offer_until_something_ends(cloud: Cloud, provider: AwsProvider) -> None:
    first = provider.launch(request(ON_DEMAND))
    cloud.answers["RunInstances"] = "MaxSpotInstanceCountExceeded"
    with pytest.raises(QuotaError, match="Service Quotas"):
        provider.launch(request(SPOT))
    held = offers(provider)[SPOT]
    assert (held.available, held.up_ratio) == (False, 1.0)
    provider.terminate([first.instance_id])
    assert offers(provider)[SPOT].available


def test_what_has_no_price_is_not_available(make: Make) -> None:
    offer = offers(make(pools=[POOL]).provider())[OTHER_ZONE]
    assert (offer.available, offer.reason) == (False, f"EC2 names no spot price for {TYPE} in us-east-1b")


def test_a_launch_that_failed_costs_nothing_on_demand_either(make: Make) -> None:
    cloud = make(faults={"launch_death": 1.0})
    provider = cloud.provider()
    name = provider.launch(request(ON_DEMAND)).instance_id
    cloud.after(30)
    one = reports(provider)[name]
    assert (one.state, one.by_provider) == (InstanceState.TERMINATED, True)
    assert one.launched_s == one.ended_s == START_S
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
    assert bill(usage, cloud.now_s()).cost == 0
    # What ran for a second before the provider ended it is charged.
    assert bill(replace(usage, ended_s=one.launched_s + 1), cloud.now_s()).cost == 60 * 96_000


HIDDEN = {"actions": ["ec2:DescribeInstances"], "answer": "empty"}


def test_an_instance_that_is_not_shown_is_there(cloud: Cloud, provider: AwsProvider, launched: str) -> None:
    cloud.go_wrong(**HIDDEN)
    assert reports(provider)[launched].state is not InstanceState.TERMINATED
    cloud.after(121)
    # It was never seen: after a while it is not believed in any more.
    assert provider.describe(DEPLOYMENT) == []
    cloud.go_wrong()
    assert launched in reports(provider)
    # One that was seen and is gone is not made up.
    cloud.go_wrong(**HIDDEN)
    assert provider.describe(DEPLOYMENT) == []


def test_an_ended_instance_is_reported_for_an_hour(
    cloud: Cloud, provider: AwsProvider, launched: str
) -> None:
    cloud.after(100)
    provider.terminate([launched])
    cloud.after(50)
    ended = reports(provider)[launched]
    # Its end is when EC2 says.
    assert (ended.ended_s, ended.by_provider) == (START_S + 100, False)
    cloud.go_wrong(**HIDDEN)
    cloud.after(3500)
    assert reports(provider)[launched] == ended
    cloud.after(200)
    assert provider.describe(DEPLOYMENT) == []


def test_an_interruption_ended_when_ec2_says(cloud: Cloud, provider: AwsProvider, launched: str) -> None:
    provider.describe(DEPLOYMENT)
    cloud.after(100)
    cloud.take(launched)
    cloud.after(50)
    for _ in range(2):
        ended = reports(provider)[launched]
        assert (ended.by_provider, ended.ended_s) == (True, START_S + 100)
        assert cloud.emulator.calls["ec2:DescribeSpotInstanceRequests"] == 1
    assert "interrupted" in offers(provider)[SPOT].reason


def test_what_cannot_be_ended_yet_is_remembered(cloud: Cloud, provider: AwsProvider, launched: str) -> None:
    cloud.answers["TerminateInstances"] = "InvalidInstanceID.NotFound"
    with pytest.raises(ProviderError, match="not visible yet"):
        provider.terminate([launched])
    provider.terminate([launched])
    cloud.after(5)
    assert reports(provider)[launched].state is InstanceState.TERMINATED


def test_a_dead_region_is_no_empty_region(cloud: Cloud, provider: AwsProvider) -> None:
    cloud.answers["DescribeInstances"] = "UnauthorizedOperation"
    with pytest.raises(RefusedError, match="ec2:DescribeInstances"):
        provider.describe(DEPLOYMENT)


def test_a_job_that_forks_or_eats_memory_does_not_end_the_agent() -> None:
    content = json.loads(user_data(request(SPOT), renting().node, None, "ec2", 16384).partition("\n")[2])
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
HERE, THERE = ON_DEMAND, f"aws/{WEST}a/{TYPE}/on_demand"


class TwoRegions(Cloud):
    """One of which may be silent."""

    def silence(self, *regions: str) -> None:
        if regions:
            self.go_wrong(regions=regions, answer="RegionIsDown")
        else:
            self.go_wrong()

    def provider(self, **changes: Any) -> AwsProvider:
        regions = {"us-east-1": region("us-east-1", [ZONE]), WEST: region(WEST, [f"{WEST}a"])}
        return super().provider(regions=regions, **changes)


@pytest.fixture
def regions(tmp_path: Path) -> TwoRegions:
    return TwoRegions(tmp_path, pools=[POOL, {**POOL, "zone": f"{WEST}a"}])


@pytest.fixture
def both(regions: TwoRegions) -> AwsProvider:
    return regions.provider()


def test_the_reports_of_the_others_are_there_and_the_silent_one_is_named(
    regions: TwoRegions, both: AwsProvider
) -> None:
    near, far = both.launch(request(HERE)), both.launch(request(THERE))
    assert reports(both).keys() == {near.instance_id, far.instance_id}
    regions.silence(WEST)
    with pytest.raises(PartialError, match=f"no answer from {WEST}: .*RegionIsDown") as partial:
        both.describe(DEPLOYMENT)
    assert by_id(partial.value.reports).keys() == {near.instance_id}
    assert partial.value.silent.keys() == {WEST}
    # If no region answers the provider does not.
    regions.silence("us-east-1", WEST)
    with pytest.raises(ProviderError) as caught:
        both.describe(DEPLOYMENT)
    assert not isinstance(caught.value, PartialError)
    regions.silence()
    assert reports(both).keys() == {near.instance_id, far.instance_id}


def test_an_answer_that_cannot_be_read_silences_its_region_alone(
    regions: TwoRegions, both: AwsProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = both.launch(request(HERE))
    regions.after(30)
    both.launch(request(THERE))
    # The instance in the far region is still pending, a state that is unknown from here on.
    monkeypatch.delitem(launch._STATES, "pending")
    with pytest.raises(PartialError, match=f"no answer from {WEST}: .*pending") as caught:
        both.describe(DEPLOYMENT)
    assert by_id(caught.value.reports).keys() == {near.instance_id}


def test_the_end_of_an_instance_of_a_silent_region_is_not_forgotten(
    regions: TwoRegions, both: AwsProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "KEPT_S", 7200.0)
    ended = both.launch(request(THERE)).instance_id
    both.terminate([ended])
    # EC2 does not date it, so it ended when that was first seen.
    regions.emulator.world.instances[ended].transition = ""
    regions.after(5)
    before = reports(both)[ended]
    assert before.ended_s == START_S + 5
    regions.silence(WEST)
    regions.after(4000)
    with pytest.raises(PartialError):
        both.describe(DEPLOYMENT)
    regions.silence()
    assert reports(both)[ended] == before


def test_what_can_be_ended_is_ended_and_the_rest_is_an_error(regions: TwoRegions, both: AwsProvider) -> None:
    near, far = (both.launch(request(one)).instance_id for one in (HERE, THERE))
    regions.silence(WEST)
    # One that knows where they are, and one that must ask.
    for provider in (both, regions.provider()):
        with pytest.raises(ProviderError, match=WEST):
            provider.terminate([far, near])
    assert [one.instance_id for one in regions.emulator.world.living() if one.occupies] == [far]
    # What is known not to be in the silent region is no reason to fail.
    regions.provider().terminate([near])
    regions.silence()
    both.terminate([near, far])
    regions.after(5)
    assert {one.state for one in both.describe(DEPLOYMENT)} == {InstanceState.TERMINATED}
