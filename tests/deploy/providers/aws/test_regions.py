"""A region that fails neither hides nor spoils the others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import boto3
import pytest

from deploy.model.instances import InstanceState
from deploy.providers.aws.config import AwsConfig
from deploy.providers.aws.provider import AwsProvider
from deploy.providers.base import PartialError, ProviderError, RefusedError
from tests.deploy.providers.aws.fake import REGION, TYPE, FakeAws, make_config, region_config
from tests.deploy.providers.contract import DEPLOYMENT, by_id, request

WEST = "us-west-2"
HERE = f"aws/{REGION}a/{TYPE}/on_demand"
THERE = f"aws/{WEST}a/{TYPE}/on_demand"


@pytest.fixture
def config(aws: FakeAws, tmp_path: Path) -> AwsConfig:
    for zone in (f"{WEST}a", f"{WEST}b"):
        aws.prices[zone, TYPE] = [(time.time() - 7200, 0.05)]
    return make_config(tmp_path, regions={REGION: region_config(), WEST: region_config(WEST)})


@pytest.fixture
def provider(aws: FakeAws, config: AwsConfig) -> AwsProvider:
    return AwsProvider(config, aws.session())


@pytest.mark.real
def test_the_reports_of_the_others_are_there_and_the_silent_one_is_named(
    aws: FakeAws, provider: AwsProvider
) -> None:
    near, far = provider.launch(request(HERE)), provider.launch(request(THERE))
    assert by_id(provider.describe(DEPLOYMENT)).keys() == {near.instance_id, far.instance_id}
    aws.down = {WEST}
    with pytest.raises(PartialError, match=f"no answer from {WEST}: .*RegionIsDown") as partial:
        provider.describe(DEPLOYMENT)
    assert by_id(partial.value.reports).keys() == {near.instance_id}
    assert partial.value.silent.keys() == {WEST}
    # If no region answers the provider does not.
    aws.down = {REGION, WEST}
    with pytest.raises(ProviderError) as caught:
        provider.describe(DEPLOYMENT)
    assert not isinstance(caught.value, PartialError)
    aws.down = set()
    assert by_id(provider.describe(DEPLOYMENT)).keys() == {near.instance_id, far.instance_id}


@pytest.mark.real
def test_an_answer_that_cannot_be_read_silences_its_region_alone(
    aws: FakeAws, provider: AwsProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = provider.launch(request(HERE))
    provider.launch(request(THERE))
    described = aws._described

    def spoiled(parsed: dict[str, Any], **more: Any) -> None:
        described(parsed, **more)
        for reservation in parsed.get("Reservations", []):
            for one in reservation["Instances"]:
                if one["Placement"]["AvailabilityZone"].startswith(WEST):
                    one["State"]["Name"] = "evaporated"

    session = aws.session()
    session.events.register("after-call.ec2.DescribeInstances", spoiled)
    other = AwsProvider(provider.config, session)
    with pytest.raises(PartialError, match="evaporated") as caught:
        other.describe(DEPLOYMENT)
    assert by_id(caught.value.reports).keys() == {near.instance_id}


def test_nothing_is_launched_where_nothing_can_be_seen(aws: FakeAws, provider: AwsProvider) -> None:
    aws.down = {WEST}
    with pytest.raises(PartialError):
        provider.describe(DEPLOYMENT)
    aws.down = set()
    offers = {offer.offer_id: offer for offer in provider.offers()}
    assert offers[HERE].available
    assert not offers[THERE].available
    assert "its region is silent: aws us-west-2: instances: RegionIsDown" in offers[THERE].reason
    with pytest.raises(ProviderError, match="nothing is launched where nothing is seen") as caught:
        provider.launch(request(THERE))
    # It may be another time.
    assert not isinstance(caught.value, RefusedError)
    assert aws.calls["ec2:RunInstances"] == 0
    provider.describe(DEPLOYMENT)
    assert provider.launch(request(THERE)).state in (InstanceState.LAUNCHING, InstanceState.RUNNING)


@pytest.mark.real
def test_a_new_or_ended_instance_of_a_silent_region_is_not_forgotten(aws: FakeAws, config: AwsConfig) -> None:
    clock = [time.time()]
    provider = AwsProvider(config, aws.session(), lambda: clock[0])
    ended = provider.launch(request(THERE))
    provider.terminate([ended.instance_id])
    before = by_id(provider.describe(DEPLOYMENT))[ended.instance_id]
    aws.down = {WEST}
    clock[0] += 4000.0
    with pytest.raises(PartialError):
        provider.describe(DEPLOYMENT)
    aws.down = set()
    assert by_id(provider.describe(DEPLOYMENT))[ended.instance_id] == before


@pytest.mark.real
def test_what_can_be_ended_is_ended_and_the_rest_is_an_error(aws: FakeAws, config: AwsConfig) -> None:
    launching = AwsProvider(config, aws.session())
    near, far = launching.launch(request(HERE)), launching.launch(request(THERE))
    names = [far.instance_id, near.instance_id]
    aws.down = {WEST}
    # One that knows where they are, and one that must ask.
    for provider in (launching, AwsProvider(config, aws.session())):
        with pytest.raises(ProviderError, match=WEST):
            provider.terminate(names)
    for region, state in ((REGION, "terminated"), (WEST, "running")):
        (seen,) = boto3.client("ec2", region_name=region).describe_instances()["Reservations"]
        assert seen["Instances"][0]["State"]["Name"] == state
    # What is known not to be in the silent region is no reason to fail.
    AwsProvider(config, aws.session()).terminate([near.instance_id])
    aws.down = set()
    launching.terminate(names)
    assert {one.state for one in launching.describe(DEPLOYMENT)} == {InstanceState.TERMINATED}
