"""What a deployment saw, as market traces: rows reckoned by hand, and what the command tells of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from spotweave.deploy.config import DeploymentConfig
from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.providers.config import Place
from spotweave.deploy.recording import Happenings, record, series, write
from spotweave.deploy.service import open_store
from spotweave.deploy.store.prices import Quote
from spotweave.deploy.store.store import Store
from spotweave.envs.traces.format import load_traces
from spotweave.envs.traces.storage import TraceError
from tests.deploy.cli.commands import deployment, refusal, spotweave
from tests.deploy.store.cases import SPOT, add_job, report, request
from tests.deploy.store.conftest import NOW

START = int(NOW)
ZONE_A = "aws/us-east-1a/g5.xlarge/spot"
ZONE_B = "aws/us-east-1b/g5.xlarge/spot"
OFFER_A = replace(
    SPOT, offer_id=ZONE_A, instance_type="g5.xlarge", price_usd_hour=0.4, on_demand_usd_hour=1.006
)
OFFER_B = replace(OFFER_A, offer_id=ZONE_B, zone="us-east-1b", price_usd_hour=0.3)
PLACES = {
    one.offer_id: Place("aws", "us-east-1", one.zone, "g5.xlarge", "spot") for one in (OFFER_A, OFFER_B)
}


def quotes(*said: tuple[float, bool] | tuple[float, bool, int]) -> list[Quote]:
    return [
        Quote(ZONE_A, NOW + at_s, price[0] if price else 400_000, 1_006_000, available)
        for at_s, available, *price in said
    ]


def rows(said: list[Quote], end_s: float, **happened: list[float]) -> list[tuple[int, bool | None]]:
    """Rows of time and availability; times given and got from NOW on."""
    at = Happenings(**{kind: [NOW + time_s for time_s in times] for kind, times in happened.items()})
    return [(row.time_s, row.available) for row in series(said, at, START, NOW + end_s)]


UP = [(0, True), (900, True)]


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        ({}, UP),
        # Refused: until it is launched there, or for ever.
        ({"refused": [100.0]}, [(0, True), (100, False), (900, False)]),
        ({"refused": [100.0], "launched": [250.9]}, [(0, True), (100, False), (250, True), (900, True)]),
        (
            {"refused": [100.0, 200.0], "launched": [50.0, 150.0]},
            [(0, 1), (100, 0), (150, 1), (200, 0), (900, 0)],
        ),
        # Taken away: a moment, which a launch ends earlier.
        ({"interrupted": [100.0]}, [(0, True), (100, False), (160, True), (900, True)]),
        ({"interrupted": [100.0, 130.0]}, [(0, True), (100, False), (190, True), (900, True)]),
        ({"interrupted": [100.0], "launched": [110.0]}, [(0, True), (100, False), (110, True), (900, True)]),
        # The moment's end does not make up for a refusal, nor does a new moment cut one short.
        ({"interrupted": [100.0], "refused": [110.0]}, [(0, True), (100, False), (900, False)]),
        ({"interrupted": [110.0], "refused": [100.0]}, [(0, True), (100, False), (900, False)]),
        # One went through, and then there was no more.
        ({"launched": [100.0], "refused": [100.0]}, [(0, True), (100, False), (900, False)]),
        # Nothing that is later than the end.
        ({"refused": [901.0]}, UP),
    ],
)
def test_what_happened_where_the_record_says_available(
    happened: dict[str, list[float]], expected: list[tuple[int, bool]]
) -> None:
    assert rows(quotes((0, True)), 900.0, **happened) == expected


def test_a_record_that_says_available_ends_a_refusal_and_one_that_does_not_outlasts_a_moment() -> None:
    said = quotes((0, True), (102, False), (400, True), (700, True, 500_000))
    assert rows(said, 900.0, refused=[100.0]) == [(0, 1), (100, 0), (400, 1), (700, 1), (900, 1)]
    assert rows(said, 900.0, interrupted=[100.0]) == [(0, 1), (100, 0), (400, 1), (700, 1), (900, 1)]
    # What was launched was there, whatever was believed.
    assert rows(said, 900.0, launched=[300.0]) == [(0, 1), (102, 0), (300, 1), (700, 1), (900, 1)]
    # Refused in the pass that had seen it available.
    assert rows(said, 900.0, refused=[700.0])[-2:] == [(700, 0), (900, 0)]


def test_within_a_second_the_last_counts_and_what_was_before_the_start_holds_at_it() -> None:
    said = quotes((-500, False), (10.2, True), (10.7, False, 450_000), (20, True))
    made = series(said, Happenings(refused=[NOW + 20.1]), START, NOW + 30.9)
    prices = {row.time_s: row.price_micro_usd_hour for row in made}
    assert prices == {0: 400_000, 10: 450_000, 20: 400_000, 30: 400_000}
    assert not any(row.available for row in made)


def fill(store: Store) -> None:
    """Zone a: quoted, launched, refused for room and for quota, interrupted. Zone b: later, quoted only."""
    add_job(store)
    with store.transaction():
        store.prices.record([OFFER_A], NOW + 0.4)
    request(store, "i1", OFFER_A, now_s=NOW + 10)
    report(store, "i1", launched_s=NOW + 20, now_s=NOW + 21)
    with store.transaction():
        for at_s, why in ((50.0, "quota"), (60.0, "request"), (100.0, "capacity")):
            store.events.add("instance.refused", NOW + at_s, {"offer": ZONE_A, "why": why, "error": "no"})
        store.prices.record([OFFER_B], NOW + 300)
    request(store, "i2", OFFER_A, now_s=NOW + 390)
    report(store, "i2", launched_s=NOW + 400, now_s=NOW + 401)
    gone = InstanceState.TERMINATED
    report(store, "i1", gone, launched_s=NOW + 20, now_s=NOW + 601, ended_s=NOW + 600.0, by_provider=True)
    # We ended this one.
    report(store, "i2", gone, launched_s=NOW + 400, now_s=NOW + 801, ended_s=NOW + 800.0)
    with store.transaction():
        store.prices.record([replace(OFFER_A, price_usd_hour=0.41)], NOW + 700)
        store.events.add("service.ended", NOW + 1000.0)


HEAD = "time_s,available,price_usd_hour\n"
SERIES = {
    "aws_us-east-1_g5.xlarge_on_demand": "time_s,price_usd_hour\n0,1.006\n1000,1.006\n",
    "aws_us-east-1a_g5.xlarge_spot": HEAD
    + "0,1,0.4\n100,0,0.4\n400,1,0.4\n600,0,0.4\n660,1,0.4\n700,1,0.41\n1000,1,0.41\n",
    "aws_us-east-1b_g5.xlarge_spot": HEAD + "0,1,0.3\n700,1,0.3\n",
}


def test_a_store_becomes_the_folders_that_it_should(store: Store, tmp_path: Path) -> None:
    fill(store)
    out = tmp_path / "made" / "market"
    write(record(store, PLACES), out, "a deployment")
    assert {path.parent.name: path.read_text() for path in out.glob("*/series.csv")} == SERIES
    assert json.loads((out / "aws_us-east-1b_g5.xlarge_spot" / "trace.json").read_text()) == {
        "format": "spotweave-market-trace",
        "format_version": 1,
        "provider": "aws",
        "region": "us-east-1",
        "zone": "us-east-1b",
        "instance_type": "g5.xlarge",
        "market": "spot",
        "start_utc": "2026-03-01T00:05:00Z",
        "source": "a deployment",
        "licence": "",
        "polarity": "available",
        "tick_s": None,
        "max_gap_s": None,
        "synthetic": False,
    }
    traces = {trace.meta.offer: trace for trace in load_traces(out)}
    later = traces["aws", "us-east-1", "us-east-1b", "g5.xlarge", "spot"]
    assert later.times_s.tolist() == [300, 1000]
    assert traces["aws", "us-east-1", "", "g5.xlarge", "on_demand"].available is None
    with pytest.raises(TraceError, match="exists already"):
        write(record(store, PLACES), out, "a deployment")
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match="cannot be written"):
        write(record(store, PLACES), tmp_path / "file" / "out", "x")
    # What could not be written has left nothing.
    assert sorted(path.name for path in out.parent.iterdir()) == ["market"]
    assert not list(tmp_path.glob("*out*"))


def test_only_what_was_since_then_and_no_on_demand_price_beside_an_on_demand_offer(store: Store) -> None:
    fill(store)
    on_demand = replace(OFFER_A, offer_id="od", market="on_demand", price_usd_hour=1.006)
    with store.transaction():
        store.prices.record([on_demand], NOW + 650)
    places = {**PLACES, "od": Place("aws", "us-east-1", "us-east-1a", "g5.xlarge", "on_demand")}
    made = {one.place.offer_id.replace("/", "_"): one for one in record(store, places, NOW + 630)}
    assert [(name, one.start_s - START) for name, one in made.items()] == [
        ("aws_us-east-1a_g5.xlarge_spot", 630),
        ("aws_us-east-1b_g5.xlarge_spot", 630),
        ("aws_us-east-1a_g5.xlarge_on_demand", 650),
    ]
    first = made["aws_us-east-1a_g5.xlarge_spot"].rows
    # It was taken away 30 s before.
    assert [(row.time_s, row.available) for row in first] == [(0, False), (30, True), (70, True), (370, True)]
    assert record(store, places, NOW + 1001) == []
    assert record(store, {"other": PLACES[ZONE_A]}) == []


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of a deployment with two zones and one type of AWS."""
    there = {"image": "ami-00000000000000000", "security_group": "sg-00000000000000000"}
    subnets = {"us-east-1a": "subnet-1", "us-east-1b": "subnet-2"}
    offers = {
        "regions": {"us-east-1": {**there, "subnets": subnets}},
        "instance_types": {"g5.xlarge": {"quota": 2, "speed": 0.8, "markets": ["spot"]}},
        "node": {"scheduler_url": "http://127.0.0.1:8421"},
    }
    (tmp_path / "aws.yaml").write_text(yaml.safe_dump(offers), encoding="utf-8")
    return deployment(tmp_path, providers={"aws": "aws.yaml"})


def test_what_was_seen_is_recorded(config: Path, tmp_path: Path) -> None:
    with open_store(DeploymentConfig.load(config), NOW) as opened:
        fill(opened)
        deployment_id = opened.deployment_id
    out = tmp_path / "market"
    done = spotweave("record", "--config", config, "--out", out)
    assert done.exit_code == 0, done.output
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [
        # Down for 300 s and 60 s of 1,000.
        ["us-east-1a", "g5.xlarge", "spot", "0.3", "7", "64.0%"],
        ["us-east-1b", "g5.xlarge", "spot", "0.2", "2", "100.0%"],
        ["us-east-1", "g5.xlarge", "on_demand", "0.3", "2", "-"],
    ]
    meta = json.loads((out / "aws_us-east-1a_g5.xlarge_spot" / "trace.json").read_text())
    assert meta["source"] == f"Spotweave deployment {deployment_id}: what it saw"


def test_what_cannot_be_recorded_is_one_line(config: Path, tmp_path: Path) -> None:
    def refused(*options: str) -> str:
        line = refusal(spotweave("record", "--config", config, "--out", tmp_path / "out", *options))
        assert not (tmp_path / "out").exists()
        return line

    assert "nothing was served with" in refused()
    with open_store(DeploymentConfig.load(config), NOW) as opened:
        assert "nothing was seen of its cloud offers yet" in refused()
        fill(opened)
    assert "nothing was seen of its cloud offers since 2026-03-02" in refused("--since", "2026-03-02")
    assert "'yesterday' is not a time: expected ISO 8601" in refused("--since", "yesterday")
