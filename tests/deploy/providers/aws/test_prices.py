"""Spot prices, all pages and then only what is new; and the dated price list with its refresh."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spotweave.deploy.providers.aws.catalogue import Catalogue, load_catalogue, main, refreshed
from spotweave.deploy.providers.aws.clients import Clients
from spotweave.deploy.providers.aws.prices import PriceBook
from spotweave.deploy.providers.base import ProviderError
from spotweave.deploy.providers.cloud import Calls
from spotweave.deploy.providers.offers import CatalogueError
from tests.deploy.emulator.aws.conftest import TYPE, ZONE, Cloud, renting
from tests.deploy.emulator.transport import START_S

Recorded = Callable[[list[tuple[int, int, float]]], Cloud]
OTHER_ZONE = "us-east-1b"


def book(cloud: Cloud) -> PriceBook:
    clients = Clients(session=cloud.session)
    return PriceBook(clients, Calls("aws"), {"us-east-1": [ZONE, OTHER_ZONE]}, [TYPE], 60.0)


def history(*changes: tuple[float, float]) -> dict[str, Any]:
    """What EC2 tells of (seconds after the start, USD per hour)."""
    rows = [
        {"SpotPrice": f"{usd}", "Timestamp": datetime.fromtimestamp(START_S + at_s, UTC)}
        for at_s, usd in changes
    ]
    about = {"AvailabilityZone": ZONE, "InstanceType": TYPE}
    return {"SpotPriceHistory": [{**about, **row} for row in rows], "NextToken": ""}


def test_all_pages_are_read_and_then_only_what_is_new(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotweave.deploy.providers.aws.prices._PAGE", 2)
    cloud = recorded([(50 * k, 1, 0.2 + 0.01 * k) for k in range(8)])
    calls = cloud.emulator.calls
    cloud.after(240)
    made = book(cloud)
    made.refresh(START_S + 240)
    # Five prices until now, in pages of two.
    assert calls["ec2:DescribeSpotPriceHistory"] == 3
    assert made.latest(ZONE, TYPE) == 0.24
    cloud.after(60)
    made.refresh(START_S + 299)
    assert calls["ec2:DescribeSpotPriceHistory"] == 3
    made.refresh(START_S + 300)
    assert cloud.asked["DescribeSpotPriceHistory"][-1]["StartTime"].timestamp() == START_S + 200
    assert made.latest(ZONE, TYPE) == 0.26


def test_changes_are_dated_by_ec2_and_a_price_named_again_is_none(cloud: Cloud) -> None:
    made = book(cloud)
    cloud.answers["DescribeSpotPriceHistory"] = history((-90_000, 1.0), (-500, 1.0), (-300, 2.0))
    made.refresh(START_S)
    assert made.steps(ZONE, TYPE) == ((START_S - 90_000, 1.0), (START_S - 300, 2.0))
    cloud.answers["DescribeSpotPriceHistory"] = history((-300, 2.0), (30, 1.0))
    made.refresh(START_S + 60)
    assert made.steps(ZONE, TYPE) == ((START_S - 90_000, 1.0), (START_S - 300, 2.0), (START_S + 30, 1.0))
    assert made.steps(OTHER_ZONE, TYPE) == ()


def test_the_mean_is_over_time_and_over_a_day_at_most(cloud: Cloud) -> None:
    made = book(cloud)
    cloud.answers["DescribeSpotPriceHistory"] = history((-200_000, 5.0), (-43_200, 1.0), (0, 2.0))
    made.refresh(START_S)
    assert made.mean(ZONE, TYPE, START_S) == pytest.approx(3.0)
    made.refresh(START_S + 43_200)
    # The day then holds half a day of 1 and half a day of 2.
    assert made.mean(ZONE, TYPE, START_S + 43_200) == pytest.approx(1.5)
    assert made.mean(OTHER_ZONE, TYPE, START_S) is None


def test_old_prices_are_believed_for_a_while_when_a_region_is_silent(cloud: Cloud) -> None:
    regions = {"us-east-1": [ZONE], "us-west-2": ["us-west-2a"]}
    made = PriceBook(Clients(session=cloud.session), Calls("aws"), regions, [TYPE], 60.0)
    made.refresh(START_S)
    cloud.go_wrong(regions=["us-east-1"], answer="RegionIsDown")
    made.refresh(START_S + 60)
    assert made.trouble("us-east-1", START_S + 60) == ""
    made.refresh(START_S + 1860)
    assert "RegionIsDown" in made.trouble("us-east-1", START_S + 1860)
    assert made.trouble("us-west-2", START_S + 1860) == ""
    cloud.go_wrong(answer="RegionIsDown")
    with pytest.raises(ProviderError, match="RegionIsDown"):
        made.refresh(START_S + 1960)
    cloud.go_wrong()
    made.refresh(START_S + 2060)
    assert made.trouble("us-east-1", START_S + 2060) == ""


def test_regions_take_turns_so_that_no_refresh_makes_many_calls(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotweave.deploy.providers.aws.prices.AT_ONCE", 1)
    regions = {name: [f"{name}a"] for name in ("us-east-1", "us-east-2", "us-west-2")}
    made = PriceBook(Clients(session=cloud.session), Calls("aws"), regions, [TYPE], 60.0)
    counts = []
    for passed_s in (0, 2, 60, 62, 64, 66, 120, 122):
        made.refresh(START_S + passed_s)
        counts.append(cloud.emulator.calls["ec2:DescribeSpotPriceHistory"])
    # All at first; then one after the other, and none until the first of them is due again.
    assert counts == [3, 3, 4, 5, 6, 6, 7, 8]


def test_the_sdk_tries_so_often_and_waits_so_long(cloud: Cloud) -> None:
    clients = Clients(session=cloud.session)
    for service, attempts, read_s in (("ec2", 3, 8.0), ("sqs", 3, 8.0), ("s3", 5, 30.0)):
        config = clients.get(service, "us-east-1").meta.config
        assert config.retries == {"mode": "standard", "total_max_attempts": attempts}
        assert (config.connect_timeout, config.read_timeout) == (3.0, read_s)


PUBLISHED = {
    "us-east-1": ["0.5260000000", "0.5260000000"],
    "eu-west-1": ["0.5870000000"],
    "gp3 in us-east-1": ["0.0800000000"],
    "gp3 in eu-west-1": ["0.0880000000"],
    "us-east-1 to eu-west-1": ["0.0200000000"],
    "eu-west-1 to us-east-1": ["0.0300000000"],
}
"""An hour of g4dn.xlarge, a month of a GiB, and a GB that moves."""
GPU = {"Name": "T4", "Manufacturer": "NVIDIA", "Count": 1, "MemoryInfo": {"SizeInMiB": 15360}}
HARDWARE = {
    "InstanceType": "g4dn.xlarge",
    "VCpuInfo": {"DefaultVCpus": 4},
    "MemoryInfo": {"SizeInMiB": 16384},
    "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
    "GpuInfo": {"Gpus": [{**GPU, "Name": "Radeon Pro V520", "Manufacturer": "AMD"}, GPU]},
}


def published(prices: dict[str, list[str]], asked: dict[str, Any]) -> dict[str, Any]:
    """What the price list answers."""
    wanted = {one["Field"]: one["Value"] for one in asked["Filters"]}
    if asked["ServiceCode"] == "AWSDataTransfer":
        assert wanted["transferType"] == "InterRegion Outbound"
        unit, name = "GB", f"{wanted['fromRegionCode']} to {wanted['toRegionCode']}"
    elif wanted.get("productFamily") == "Storage":
        unit, name = "GB-Mo", f"{wanted['volumeApiName']} in {wanted['regionCode']}"
    else:
        assert wanted["instanceType"] == "g4dn.xlarge"
        unit, name = "Hrs", wanted["regionCode"]
    dimensions = ({"unit": unit, "pricePerUnit": {"USD": price}} for price in prices[name])
    terms = ({"OnDemand": {"X": {"priceDimensions": {"Y": one}}}} for one in dimensions)
    return {"PriceList": [json.dumps({"terms": one}) for one in terms]}


def refresh(cloud: Cloud, regions: list[str], prices: dict[str, list[str]]) -> Catalogue:
    cloud.answers["DescribeInstanceTypes"] = {"InstanceTypes": [HARDWARE]}
    cloud.answers["GetProducts"] = partial(published, prices)
    pricing, ec2 = (cloud.session.client(service) for service in ("pricing", "ec2"))
    return refreshed(pricing, ec2, regions, ["g4dn.xlarge"], date(2026, 1, 2))


def test_a_refresh_reads_prices_and_hardware(cloud: Cloud) -> None:
    made = refresh(cloud, ["us-east-1", "eu-west-1"], PUBLISHED)
    assert made.usd_hour("us-east-1", "g4dn.xlarge") == 0.526
    assert made.usd_hour("eu-west-1", "g4dn.xlarge") == 0.587
    assert (made.disk_usd_gib_month("us-east-1"), made.disk_usd_gib_month("eu-west-1")) == (0.08, 0.088)
    assert made.egress_usd_gb("us-east-1", "eu-west-1") == 0.02
    assert made.egress_usd_gb("eu-west-1", "us-east-1") == 0.03
    hardware = made.hardware("g4dn.xlarge")
    assert (hardware.vcpus, hardware.memory_gib) == (4, 16.0)
    assert (hardware.gpus, hardware.gpu, hardware.gpu_memory_gib) == (1, "T4", 15.0)
    parts = made.regions["eu-west-1"]
    assert {parts.date, parts.disk.date, parts.egress.date} == {date(2026, 1, 2)}


@pytest.mark.parametrize("prices", [[], ["0.5", "0.6"]])
@pytest.mark.parametrize(
    ("what", "words"),
    [("us-east-1", "on-demand prices for g4dn.xlarge"), ("gp3 in us-east-1", "prices for gp3 in us-east-1")],
)
def test_no_price_and_two_prices_are_refused(cloud: Cloud, prices: list[str], what: str, words: str) -> None:
    with pytest.raises(CatalogueError, match=f"lists {len(prices)} {words}"):
        refresh(cloud, ["us-east-1"], {**PUBLISHED, what: prices})


def test_what_ships_is_dated_sourced_and_complete() -> None:
    shipped = load_catalogue()
    assert set(shipped.regions) == {"us-east-1", "us-east-2", "us-west-2"}
    for prices in shipped.regions.values():
        assert prices.source
        assert set(prices.usd_hour) <= set(shipped.types)
    assert shipped.usd_hour("us-west-2", "p3.2xlarge") == 3.06
    assert {shipped.hardware(name).gpu for name in ("g4dn.xlarge", "g5.xlarge", "p3.2xlarge")} == {
        "T4",
        "A10G",
        "V100",
    }
    assert shipped.disk_usd_gib_month("us-west-2") == 0.08
    for start in shipped.regions:
        for end in shipped.regions.keys() - {start}:
            assert shipped.egress_usd_gb(start, end) in (0.01, 0.02)
    # A list price grows with the size within a family.
    assert shipped.usd_hour("us-east-1", "m5.4xlarge") == pytest.approx(
        8 * shipped.usd_hour("us-east-1", "m5.large")
    )


def test_what_is_not_there_is_told_with_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = load_catalogue()
    with pytest.raises(CatalogueError, match="refresh --out"):
        shipped.usd_hour("mars-north-1", "m5.large")
    with pytest.raises(CatalogueError, match="has no z1d"):
        shipped.usd_hour("us-east-1", "z1d.large")
    with pytest.raises(CatalogueError, match="no way from us-east-1 to mars-north-1"):
        shipped.egress_usd_gb("us-east-1", "mars-north-1")
    (tmp_path / "bad.json").write_text('{"format": 2}')
    assert main(["show", "--catalogue", str(tmp_path / "bad.json")]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert main(["show"]) == 0
    assert "us-east-1\tg4dn.xlarge\t0.526\t2026-07-20" in capsys.readouterr().out


def test_ways_lead_from_all_listed_regions_to_those_that_are_rented_in() -> None:
    known = renting().transfers()
    listed = load_catalogue()
    others = listed.regions.keys() - {"us-east-1"}
    assert known.regions == ("us-east-1",)
    assert known.usd_gb == {(one, "us-east-1"): listed.egress_usd_gb(one, "us-east-1") for one in others}
    assert known.moves([("us-west-2", 100.0)])["us-east-1"] == (0, 2.0)
    assert known.moves([("us-east-1", 100.0)])["us-east-1"] == (0, 0.0)
