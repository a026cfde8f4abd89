"""Imports get the on-demand offers and the prices that their files lack, and become markets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from agents.named import named_rule
from envs.market_data import build_market
from envs.simulation.market.config import MarketConfig, MarketWorldConfig, WorkloadConfig
from envs.simulation.market.world import MarketWorld
from envs.traces.bundle import load_bundle
from envs.traces.command import main
from envs.traces.format import MarketTrace
from tests.envs.traces_cases import entry, imported, importing, refusal, write
from training.evaluation.episodes import find_suite, run_suite

DAYS = 40
PROBED = "--polarity unavailable --start-utc 2022-10-01 --instance-type p3.2xlarge"


def probed(folder: Path, zone: str) -> Path:
    """A SkyPilot-style file of 40 days; a 1 means preempted there."""
    data = [0 if probe // 36 % 3 else 1 for probe in range(DAYS * 144)]
    return write(folder / f"{zone}.json", {"metadata": {"gap_seconds": 600}, "data": data})


def by_place(traces: Sequence[MarketTrace]) -> dict[str, MarketTrace]:
    """By zone, or region."""
    return {trace.meta.zone or trace.meta.region: trace for trace in traces}


def table(folder: Path, *rows: str) -> Path:
    return write(folder / "m.csv", "\n".join(rows) + "\n")


def market(folder: Path, owned: int = 0) -> MarketWorld:
    settings = MarketConfig(traces=str(folder / "market"), owned_executors=owned)
    return build_market(MarketWorldConfig(WorkloadConfig(jobs=6), settings), 2)


def refused(capsys: pytest.CaptureFixture[str], folder: Path, command: list[str]) -> str:
    """The one line of an import that leaves nothing behind."""
    before = sorted(path.name for path in folder.iterdir())
    line = refusal(capsys, *command)
    assert sorted(path.name for path in folder.iterdir()) == before
    return line


def test_on_demand_offers_have_the_prices_of_the_list(tmp_path: Path) -> None:
    zones = [probed(tmp_path, zone) for zone in ("us-west-2a", "us-west-2b", "us-east-1f")]
    found = by_place(imported("skypilot", *zones, options=f"{PROBED} --price 30%"))
    assert set(found) == {"us-west-2a", "us-west-2b", "us-east-1f", "us-west-2", "us-east-1"}
    for region in ("us-west-2", "us-east-1"):
        trace = found[region]
        assert trace.meta.offer == ("aws", region, "", "p3.2xlarge", "on_demand")
        assert trace.price_usd_hour is not None
        assert trace.available is None
        # The list price of a p3.2xlarge in the United States.
        assert trace.price_usd_hour.tolist() == [3.06]
        assert load_bundle().on_demand_usd_hour("aws", region, "p3.2xlarge") == 3.06
        assert "karpenter" in trace.meta.source
        assert trace.meta.licence == "Apache-2.0"
    spot = found["us-west-2a"].price_usd_hour
    assert spot is not None
    assert np.allclose(spot, 0.3 * 3.06)


def test_the_list_of_google_cloud_is_by_region(tmp_path: Path) -> None:
    rows = ("0,europe-west4-a,1,1.2", "0,us-central1-a,1,1.4", "9,us-central1-a,1,1.4")
    options = "--provider gcp --instance-type a2-highgpu-1g --polarity available"
    source = table(tmp_path, "time,zone,available,price", *rows)
    found = by_place(imported("csv", source, options=options))
    for region in ("europe-west4", "us-central1"):
        price = load_bundle().on_demand_usd_hour("gcp", region, "a2-highgpu-1g")
        assert found[region].price_usd_hour == pytest.approx(price)
    assert found["europe-west4"].price_usd_hour != pytest.approx(found["us-central1"].price_usd_hour)


def test_a_price_is_given_for_what_the_list_lacks(tmp_path: Path) -> None:
    """The type that the list has keeps the list's price."""
    source = table(tmp_path, "time,zone,available,price", "0,eu-north-1a,1,1.2", "0,us-east-1a,1,1.4")
    options = "--instance-type p3.2xlarge --polarity available --on-demand 3.5"
    found = by_place(imported("csv", source, options=options))
    assert found["eu-north-1"].price_usd_hour == pytest.approx(3.5)
    assert found["us-east-1"].price_usd_hour == pytest.approx(3.06)
    assert found["eu-north-1"].meta.source == "given as --on-demand"


def test_an_on_demand_offer_of_the_files_own_is_kept(tmp_path: Path) -> None:
    source = table(tmp_path, "time,zone,price", "0,us-east-1,2.9")
    (trace,) = imported("csv", source, options="--instance-type p3.2xlarge --market on_demand")
    assert trace.price_usd_hour == pytest.approx(2.9)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (
            "--instance-type x9.large",
            "the price list has no on-demand price of aws x9.large in us-west-2: give it in USD an hour, "
            "e.g. --on-demand 3.06, or --on-demand none",
        ),
        ("", "no instance type is named in us-west-2a, so its on-demand price is unknown: give --inst"),
        ("--instance-type x9.large --on-demand none --price 30%", "has no on-demand price of"),
        (
            "--instance-type p3.2xlarge --on-demand 2.5",
            "--on-demand 2.5 is for instance types that the price list does not have, and it has all",
        ),
    ],
)
def test_prices_that_nobody_knows_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, line: str
) -> None:
    options = f"--polarity unavailable --start-utc 2022-10-01 {more}"
    command = importing("skypilot", probed(tmp_path, "us-west-2a"), options=options)
    assert line in refused(capsys, tmp_path, command)


def test_other_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = importing("csv", table(tmp_path, "time,zone,price", "0,us-east-1a,1.4"))
    assert "the file holds prices: leave --price out" in refused(capsys, tmp_path, [*command, "--price", "1"])
    for words in ("--on-demand cheap", "--on-demand -3", "--price 0", "--price nan%"):
        option, value = words.split()
        with pytest.raises(SystemExit) as stopped:
            main([*command, option, value])
        assert stopped.value.code == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert f"argument {option}: {value!r}: expected" in error


def test_what_lacks_spot_prices_says_how_to_give_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported("skypilot", probed(tmp_path, "us-west-2a"), options=PROBED)
    assert "import it again with --price" in capsys.readouterr().out


@pytest.mark.parametrize("owned", [0, 4])
def test_a_rule_uses_the_on_demand_offers_of_an_imported_market(tmp_path: Path, owned: int) -> None:
    imported("skypilot", probed(tmp_path, "us-west-2a"), options=f"{PROBED} --price 0.92")
    world = market(tmp_path, owned)
    clouds = {"aws/us-west-2a/p3.2xlarge/spot", "aws/us-west-2/p3.2xlarge/on_demand"}
    assert set(world.spec.cluster_names) == clouds | ({"owned/us-east-1"} if owned else set())
    for rule in ("on_demand", "expected_cost"):
        results = run_suite(world, named_rule(rule), find_suite("test", 2))
        assert all(result.metrics["unfinished"] == 0 for result in results)
        if rule == "on_demand":
            assert all(result.metrics["on_demand_usd"] > 0 for result in results)


def test_prices_of_several_zones_without_availability_are_a_market(tmp_path: Path) -> None:
    rows = [
        f"{day * 86_400 + 60 * k},us-east-1{z},{1 + day / 100}"
        for k, z in enumerate("ab")
        for day in range(DAYS)
    ]
    imported("csv", table(tmp_path, "time,zone,price", *rows), options="--instance-type p3.2xlarge")
    world = market(tmp_path)
    assert "aws/us-east-1/p3.2xlarge/on_demand" in world.spec.cluster_names
    results = run_suite(world, named_rule("expected_cost"), find_suite("test", 2))
    assert all(result.metrics["unfinished"] == 0 for result in results)


def history(path: Path, *rows: tuple[str, str, str]) -> Path:
    entries = [
        entry(zone, f"2026-03-{moment}:00:00+00:00", price, InstanceType="g4dn.xlarge")
        for zone, moment, price in rows
    ]
    return write(path, {"SpotPriceHistory": entries})


def test_pages_of_one_price_history_are_one_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ("us-east-1a", "01T12", "0.1560")
    first = history(
        tmp_path / "page1.json", both, ("us-east-1a", "01T10", "0.1550"), ("us-east-1b", "01T11", "0.1590")
    )
    second = history(
        tmp_path / "page2.json", both, ("us-east-1a", "01T15", "0.1578"), ("us-east-1b", "01T16", "0.1601")
    )
    found = by_place(imported("ec2-price-history", first, second, options="--on-demand none"))
    assert "availability of spot capacity from spells" in capsys.readouterr().out
    assert found["us-east-1a"].times_s.tolist() == [0, 7200, 18_000]
    assert found["us-east-1a"].price_usd_hour is not None
    assert found["us-east-1a"].price_usd_hour.tolist() == [0.1550, 0.1560, 0.1578]
    assert found["us-east-1b"].times_s.tolist() == [3600, 21_600]
    other = history(tmp_path / "page3.json", ("us-east-1a", "01T12", "0.2"))
    command = importing("ec2-price-history", first, other)
    command[command.index("--out") + 1] = str(tmp_path / "n")
    assert "page1.json and" in refused(capsys, tmp_path, command)
