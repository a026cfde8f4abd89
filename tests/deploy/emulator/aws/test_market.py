"""Prices, capacity, quotas and everything that describes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.deploy.emulator.aws.conftest import Cloud
from tests.deploy.emulator.traces import START_S

Recorded = Callable[..., Cloud]


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as error:
        call()
    return str(error.value.response["Error"]["Code"])


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START_S + seconds, UTC)


def test_price_history_follows_the_recording(recorded: Recorded) -> None:
    cloud = recorded([(0, 1, 0.20), (600, 1, 0.25), (1200, 1, 0.22), (7200, 1, 0.22)])
    cloud.after(1500)
    history = cloud.ec2.describe_spot_price_history(StartTime=at(0), ProductDescriptions=["Linux/UNIX"])
    assert [(one["SpotPrice"], one["Timestamp"]) for one in history["SpotPriceHistory"]] == [
        ("0.220000", at(1200)),
        ("0.250000", at(600)),
        ("0.200000", at(0)),
    ]
    # What is in force at the start is part of the answer, what comes after the end is not.
    part = cloud.ec2.describe_spot_price_history(StartTime=at(700), EndTime=at(1000))["SpotPriceHistory"]
    assert [(one["SpotPrice"], one["Timestamp"]) for one in part] == [("0.250000", at(600))]
    # Nobody sees the future.
    ahead = cloud.ec2.describe_spot_price_history(EndTime=at(90_000))["SpotPriceHistory"]
    assert [one["SpotPrice"] for one in ahead] == ["0.220000"]
    assert not cloud.ec2.describe_spot_price_history(ProductDescriptions=["Windows"])["SpotPriceHistory"]
    assert not cloud.ec2.describe_spot_price_history(InstanceTypes=["p3.2xlarge"])["SpotPriceHistory"]


def test_price_history_has_pages(recorded: Recorded) -> None:
    cloud = recorded([(60 * k, 1, 0.2 + 0.001 * (k % 7)) for k in range(30)])
    cloud.after(1700)
    pages = cloud.ec2.get_paginator("describe_spot_price_history").paginate(
        StartTime=at(0), PaginationConfig={"PageSize": 10}
    )
    sizes = [len(page["SpotPriceHistory"]) for page in pages]
    assert sizes == [10, 10, 9]


def test_the_recording_before_the_start_is_history(recorded: Recorded) -> None:
    rows = [(0, 1, 0.20), (600, 1, 0.25), (9000, 1, 0.25)]
    cloud = recorded(rows, trace_start_s=1000.0, time_factor=2.0)
    history = cloud.ec2.describe_spot_price_history(StartTime=at(-500))["SpotPriceHistory"]
    # 1000 recorded seconds ago at twice the speed is 500 s ago.
    assert [(one["SpotPrice"], one["Timestamp"]) for one in history] == [
        ("0.250000", at(-200)),
        ("0.200000", at(-500)),
    ]


def test_capacity_runs_out_and_comes_back(make: Callable[..., Cloud]) -> None:
    pool: dict[str, Any] = {
        "zone": "us-east-1a",
        "instance_type": "g4dn.xlarge",
        "spot_usd_hour": 0.2,
        "on_demand_usd_hour": 0.526,
        "spot_capacity": 2,
        "on_demand_capacity": 1,
    }
    cloud = make(pools=[pool])
    first, _ = cloud.spot(), cloud.spot()
    assert refusal(cloud.spot) == "InsufficientInstanceCapacity"
    cloud.run()
    assert refusal(cloud.run) == "InsufficientInstanceCapacity"
    cloud.ec2.terminate_instances(InstanceIds=[first])
    cloud.spot()


def test_no_capacity_while_the_recording_has_none(recorded: Recorded) -> None:
    cloud = recorded([(0, 0, 0.2), (600, 1, 0.2), (9000, 1, 0.2)])
    assert refusal(cloud.spot) == "InsufficientInstanceCapacity"
    cloud.after(600)
    cloud.spot()


def test_a_bid_below_the_price_is_refused(cloud: Cloud) -> None:
    assert refusal(lambda: cloud.spot(MaxPrice="0.1999")) == "SpotMaxPriceTooLow"
    cloud.spot(MaxPrice="0.2")
    assert refusal(lambda: cloud.spot(MaxPrice="0.0001")) == "InvalidParameterValue"


def test_without_a_bid_the_on_demand_price_is_the_limit(recorded: Recorded) -> None:
    cloud = recorded([(0, 1, 0.6), (9000, 1, 0.6)])
    assert refusal(cloud.spot) == "SpotMaxPriceTooLow"


def test_quotas_count_vcpus_and_markets_apart(make: Callable[..., Cloud]) -> None:
    # 4 vCPUs each: two spot instances fit into 11, and one on demand into 4.
    cloud = make(spot_quota={"g": 11}, on_demand_quota={"g": 4})
    cloud.spot()
    cloud.spot(zone="us-east-1b")
    assert refusal(cloud.spot) == "MaxSpotInstanceCountExceeded"
    cloud.run()
    assert refusal(cloud.run) == "VcpuLimitExceeded"
    quotas = cloud.session.client("service-quotas")
    spot = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-3819A6DF")["Quota"]["Value"]
    on_demand = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-DB2E81BA")["Quota"]["Value"]
    assert (spot, on_demand) == (11.0, 4.0)
    assert (
        refusal(lambda: quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000"))
        == "NoSuchResourceException"
    )


def test_placement_scores_say_where_there_is_room(recorded: Recorded) -> None:
    # After 1000 s, of which 750 s had capacity: 10 x 0.75 = 7.5, rounded to even 8.
    cloud = recorded([(0, 0, 0.2), (250, 1, 0.2), (9000, 1, 0.2)])
    asked: dict[str, Any] = {
        "InstanceTypes": ["g4dn.xlarge"],
        "TargetCapacity": 2,
        "SingleAvailabilityZone": True,
        "RegionNames": ["us-east-1"],
    }
    scores = cloud.ec2.get_spot_placement_scores(**asked)["SpotPlacementScores"]
    assert [one["Score"] for one in scores] == [1]
    cloud.after(1000)
    scores = cloud.ec2.get_spot_placement_scores(**asked)["SpotPlacementScores"]
    zones = cloud.ec2.describe_availability_zones(ZoneNames=["us-east-1a"])["AvailabilityZones"]
    assert scores == [{"Region": "us-east-1", "AvailabilityZoneId": zones[0]["ZoneId"], "Score": 8}]
    big = cloud.ec2.get_spot_placement_scores(**{**asked, "TargetCapacity": 11})["SpotPlacementScores"]
    assert [one["Score"] for one in big] == [1]


def test_on_demand_prices_are_for_sale(cloud: Cloud) -> None:
    wanted = {"instanceType": "g4dn.xlarge", "regionCode": "us-east-1", "operatingSystem": "Linux"}
    answer = cloud.session.client("pricing").get_products(
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()],
    )
    (product,) = [json.loads(text) for text in answer["PriceList"]]
    (term,) = product["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert (dimension["unit"], float(dimension["pricePerUnit"]["USD"])) == ("Hrs", 0.526)


def test_offerings_are_the_pools(cloud: Cloud) -> None:
    answer = cloud.ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["g4dn.xlarge"]}]
    )
    assert [one["Location"] for one in answer["InstanceTypeOfferings"]] == ["us-east-1a", "us-east-1b"]
