"""Spot prices: every page, then only what is new; means by hand."""

from __future__ import annotations

import pytest

from deploy.providers.aws.clients import Clients
from deploy.providers.aws.prices import PriceBook
from deploy.providers.base import ProviderError
from deploy.providers.calls import Calls
from tests.deploy.providers.aws.fake import OTHER, REGION, START_S, TYPE, FakeAws

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
