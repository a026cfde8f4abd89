"""Spot prices, all pages and then only what is new; and the dated price list with its refresh."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from deploy.providers.aws.catalogue import load_catalogue, main, refreshed
from deploy.providers.aws.clients import Clients
from deploy.providers.aws.prices import PriceBook
from deploy.providers.base import ProviderError
from deploy.providers.cloud import Calls
from deploy.providers.offers import CatalogueError
from tests.deploy.providers.aws.fake import OTHER, REGION, START_S, TYPE, FakeAws, make_config

ZONES = [f"{REGION}a", f"{REGION}b"]


def book(aws: FakeAws) -> PriceBook:
    return PriceBook(Clients(session=aws.session()), Calls("aws"), {REGION: ZONES}, [TYPE, OTHER], 60.0)


def test_all_pages_are_read_and_then_only_what_is_new(aws: FakeAws) -> None:
    aws.set_price(0.07, START_S - 100)
    made = book(aws)
    made.refresh(START_S)
    # Two zones, two types, two prices each; pages of two.
    assert aws.calls["ec2:DescribeSpotPriceHistory"] == 4
    assert [made.latest(zone, kind) for zone in ZONES for kind in (TYPE, OTHER)] == [0.07] * 4
    aws.set_price(0.09, START_S + 30, zones="a")
    made.refresh(START_S + 59)
    assert aws.calls["ec2:DescribeSpotPriceHistory"] == 4
    made.refresh(START_S + 60)
    assert aws.asked["DescribeSpotPriceHistory"][-1]["StartTime"].timestamp() == START_S - 100
    assert (made.latest(ZONES[0], TYPE), made.latest(ZONES[1], TYPE)) == (0.09, 0.07)


def test_changes_are_dated_by_ec2_and_a_price_named_again_is_none(aws: FakeAws) -> None:
    key = (ZONES[0], TYPE)
    aws.prices = {key: [(START_S - 90_000, 1.0), (START_S - 500, 1.0), (START_S - 300, 2.0)]}
    made = book(aws)
    made.refresh(START_S)
    assert made.steps(*key) == ((START_S - 90_000, 1.0), (START_S - 300, 2.0))
    aws.prices[key].append((START_S + 30, 1.0))
    made.refresh(START_S + 60)
    assert made.steps(*key) == ((START_S - 90_000, 1.0), (START_S - 300, 2.0), (START_S + 30, 1.0))
    assert made.steps(ZONES[1], TYPE) == ()


def test_the_mean_is_over_time_and_over_a_day_at_most(aws: FakeAws) -> None:
    aws.prices = {(ZONES[0], TYPE): [(START_S - 200_000, 5.0), (START_S - 43_200, 1.0), (START_S, 2.0)]}
    made = book(aws)
    made.refresh(START_S)
    assert made.mean(ZONES[0], TYPE, START_S) == pytest.approx(3.0)
    made.refresh(START_S + 43_200)
    # The day then holds half a day of 1 and half a day of 2.
    assert made.mean(ZONES[0], TYPE, START_S + 43_200) == pytest.approx(1.5)
    assert made.mean(ZONES[1], TYPE, START_S) is None


def test_old_prices_are_believed_for_a_while_when_a_region_is_silent(aws: FakeAws) -> None:
    clients = Clients(session=aws.session())
    regions = {REGION: ZONES, "us-west-2": ["us-west-2a"]}
    made = PriceBook(clients, Calls("aws"), regions, [TYPE], 60.0)
    made.refresh(START_S)
    aws.down = {REGION}
    made.refresh(START_S + 60)
    assert made.trouble(REGION, START_S + 60) == ""
    made.refresh(START_S + 1860)
    assert "RegionIsDown" in made.trouble(REGION, START_S + 1860)
    assert made.trouble("us-west-2", START_S + 1860) == ""
    aws.down = set(regions)
    with pytest.raises(ProviderError, match="RegionIsDown"):
        made.refresh(START_S + 1960)
    aws.down = set()
    made.refresh(START_S + 2060)
    assert made.trouble(REGION, START_S + 2060) == ""


def test_many_regions_take_turns_so_that_no_refresh_makes_many_calls(aws: FakeAws) -> None:
    regions = {name: [f"{name}a"] for name in (REGION, "us-east-2", "us-west-1", "us-west-2", "eu-west-1")}
    made = PriceBook(Clients(session=aws.session()), Calls("aws"), regions, [TYPE], 60.0)
    made.refresh(START_S)
    counts = [aws.calls["ec2:DescribeSpotPriceHistory"]]
    for passed_s in (2, 60, 62, 64, 66, 120, 122):
        made.refresh(START_S + passed_s)
        counts.append(aws.calls["ec2:DescribeSpotPriceHistory"])
    # All at first; then two of five, two, the last one, and none until the first of them are due again.
    assert counts == [5, 5, 7, 9, 10, 10, 12, 14]


def test_throttling_is_tried_again_by_the_sdk(aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.failures["DescribeSpotPriceHistory"] = ["UnauthorizedOperation"]
    with pytest.raises(ProviderError):
        book(aws).refresh(START_S)
    clients = Clients(session=aws.session())
    for service, attempts, read_s in (("ec2", 3, 8.0), ("sqs", 3, 8.0), ("s3", 5, 30.0)):
        config = clients.get(service, REGION).meta.config
        assert config.retries == {"mode": "standard", "total_max_attempts": attempts}
        assert (config.connect_timeout, config.read_timeout) == (3.0, read_s)


def product(price: str, unit: str) -> str:
    dimension = {"unit": unit, "pricePerUnit": {"USD": price}}
    return json.dumps({"terms": {"OnDemand": {"X": {"priceDimensions": {"Y": dimension}}}}})


def clients(answers: list[tuple[str, dict[str, str], list[str]]]) -> tuple[Any, Any, list[Stubber]]:
    """Stubs check parameters and answers against the SDK's model of the services."""
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    pricing, ec2 = boto3.client("pricing", **keys), boto3.client("ec2", **keys)
    stubs = [Stubber(pricing), Stubber(ec2)]
    gpu = {"Name": "T4", "Manufacturer": "NVIDIA", "Count": 1, "MemoryInfo": {"SizeInMiB": 15360}}
    other = {**gpu, "Name": "Radeon Pro V520", "Manufacturer": "AMD"}
    stubs[1].add_response(
        "describe_instance_types",
        {
            "InstanceTypes": [
                {
                    "InstanceType": "g4dn.xlarge",
                    "VCpuInfo": {"DefaultVCpus": 4},
                    "MemoryInfo": {"SizeInMiB": 16384},
                    "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
                    "GpuInfo": {"Gpus": [other, gpu]},
                }
            ]
        },
        {"InstanceTypes": ["g4dn.xlarge"]},
    )
    for unit, wanted, prices in answers:
        filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()]
        stubs[0].add_response(
            "get_products",
            {"PriceList": [product(price, unit) for price in prices]},
            {
                "ServiceCode": "AWSDataTransfer" if unit == "GB" else "AmazonEC2",
                "Filters": filters or ANY,
                "FormatVersion": "aws_v1",
            },
        )
    for stub in stubs:
        stub.activate()
    return pricing, ec2, stubs


def gp3(region: str, *prices: str) -> tuple[str, dict[str, str], list[str]]:
    return ("GB-Mo", {"regionCode": region, "productFamily": "Storage", "volumeApiName": "gp3"}, list(prices))


def way(start: str, end: str, *prices: str) -> tuple[str, dict[str, str], list[str]]:
    wanted = {"fromRegionCode": start, "toRegionCode": end, "transferType": "InterRegion Outbound"}
    return "GB", wanted, list(prices)


def test_a_refresh_reads_prices_and_hardware() -> None:
    pricing, ec2, stubs = clients(
        [
            ("Hrs", {}, ["0.5260000000", "0.5260000000"]),
            way("us-east-1", "eu-west-1", "0.0200000000"),
            gp3("us-east-1", "0.0800000000"),
            ("Hrs", {}, ["0.5870000000"]),
            way("eu-west-1", "us-east-1", "0.0300000000"),
            gp3("eu-west-1", "0.0880000000"),
        ]
    )
    made = refreshed(pricing, ec2, ["us-east-1", "eu-west-1"], ["g4dn.xlarge"], date(2026, 1, 2))
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
    for stub in stubs:
        stub.assert_no_pending_responses()


@pytest.mark.parametrize("prices", [[], ["0.5", "0.6"]])
def test_no_price_and_two_prices_are_refused(prices: list[str]) -> None:
    pricing, ec2, _ = clients([("Hrs", {}, prices)])
    with pytest.raises(CatalogueError, match=f"lists {len(prices)} on-demand prices for g4dn.xlarge"):
        refreshed(pricing, ec2, ["us-east-1"], ["g4dn.xlarge"], date(2026, 1, 2))
    pricing, ec2, _ = clients([("Hrs", {}, ["0.5"]), gp3("us-east-1", *prices)])
    with pytest.raises(CatalogueError, match=f"lists {len(prices)} prices for gp3 in us-east-1"):
        refreshed(pricing, ec2, ["us-east-1"], ["g4dn.xlarge"], date(2026, 1, 2))


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


def test_ways_lead_from_all_listed_regions_to_those_that_are_rented_in(aws: FakeAws, tmp_path: Path) -> None:
    config = make_config(tmp_path)
    (region,) = config.regions
    known = config.transfers()
    others = load_catalogue().regions.keys() - {region}
    assert known.regions == (region,)
    assert known.usd_gb == {
        (other, region): load_catalogue().egress_usd_gb(other, region) for other in others
    }
    assert known.moves([("us-west-2", 100.0)])[region] == (0, 2.0)
    assert known.moves([(region, 100.0)])[region] == (0, 0.0)
