"""`spotweave simulate-fl`: its table, its files, and one line with exit code 2 for every mistake."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spotweave import cli

RUNNER = CliRunner()
Scenario = dict[str, Any]


def scenario() -> Scenario:
    """The two clients of tests/envs/rounds_cases.py."""
    return {
        "kind": "rounds",
        "name": "two clients",
        "rounds": 3,
        "zones": [{"name": "zone", "spot_usd_hour": 0.36, "on_demand_usd_hour": 1.08}],
        "clients": [
            {"name": "slow", "epoch_warm_s": 600, "epoch_cold_s": 700, "spin_up_s": 100},
            {"name": "fast", "epoch_warm_s": 100, "epoch_cold_s": 150, "spin_up_s": 100},
        ],
    }


@pytest.fixture
def file(tmp_path: Path) -> Callable[[object], str]:
    def write(content: object) -> str:
        path = tmp_path / "scenario.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def table(output: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.strip()}


def test_time_cost_and_savings_of_every_policy(file: Callable[[object], str]) -> None:
    result = RUNNER.invoke(cli.app, ["simulate-fl", file(scenario())])
    assert result.exit_code == 0, result.output
    rows = table(result.stdout)
    # 2000 s; 0.35, 0.40 and 1.20 USD by hand.
    assert rows["fed_cost_aware"] == ["33.3", "0.3500", "70.83", "0", "0"]
    assert rows["spot"] == ["33.3", "0.4000", "66.67", "0", "0"]
    assert rows["on_demand"] == ["33.3", "1.2000", "0.00", "0", "0"]


def test_one_policy_is_still_measured_against_on_demand(file: Callable[[object], str]) -> None:
    result = RUNNER.invoke(cli.app, ["simulate-fl", file(scenario()), "--policy", "spot"])
    rows = table(result.stdout)
    assert rows["spot"][2] == "66.67"
    assert not {"fed_cost_aware", "on_demand"} & set(rows)


def test_without_on_demand_offers_there_are_no_savings(file: Callable[[object], str]) -> None:
    content = scenario()
    del content["zones"][0]["on_demand_usd_hour"]
    result = RUNNER.invoke(cli.app, ["simulate-fl", file(content)])
    rows = table(result.stdout)
    assert rows["spot"][2] == "-"
    assert "on_demand" not in rows


def test_a_bundled_scenario_shows_the_published_numbers_beside_ours() -> None:
    result = RUNNER.invoke(cli.app, ["simulate-fl", "mnist"])
    assert result.exit_code == 0, result.output
    assert table(result.stdout)["fed_cost_aware"][-3:] == ["95", "2.29013", "67.04"]


def test_a_client_that_leaves_is_told(file: Callable[[object], str]) -> None:
    content = scenario()
    content["clients"][1]["budget_usd"] = 0.085
    result = RUNNER.invoke(cli.app, ["simulate-fl", file(content), "--policy", "spot"])
    assert "spot: fast left in round 2 of 3 after 14.2 min and lost that round's work" in result.stdout


def test_tables_and_pictures_are_written(file: Callable[[object], str], tmp_path: Path) -> None:
    path, out = file(scenario()), tmp_path / "out"
    result = RUNNER.invoke(cli.app, ["simulate-fl", path, "--out", str(out)])
    assert result.exit_code == 0, result.output
    states = rows_of(out / "states.csv")
    fast = [row for row in states if row["policy"] == "fed_cost_aware" and row["client"] == "fast"]
    assert [(row["state"], row["start_s"], row["end_s"]) for row in fast[-2:]] == [
        ("training", "1400", "1500"),
        ("off", "1500", "2000"),
    ]
    bills = rows_of(out / "bills.csv")
    assert sum(float(row["usd"]) for row in bills if row["policy"] == "spot") == pytest.approx(0.40)
    costs = rows_of(out / "costs.csv")
    assert [row["accumulated_usd"] for row in costs if row["policy"] == "on_demand"][:2] == ["0.24", "0.24"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["policies"]["fed_cost_aware"]["clients"]["fast"]["off_s"] == 500
    for policy in ("fed_cost_aware", "spot", "on_demand"):
        for kind in ("states", "costs"):
            assert (out / f"{kind}_{policy}.png").read_bytes().startswith(b"\x89PNG")
    again = tmp_path / "again"
    RUNNER.invoke(cli.app, ["simulate-fl", path, "--out", str(again)])
    assert all((again / entry.name).read_bytes() == entry.read_bytes() for entry in out.iterdir())


def test_the_seed_decides(tmp_path: Path) -> None:
    outputs = [
        RUNNER.invoke(cli.app, ["simulate-fl", "mnist", "--seed", seed]).stdout.splitlines()[2:]
        for seed in ("1", "1", "2")
    ]
    assert outputs[0] == outputs[1] != outputs[2]


def changed(change: Callable[[Scenario], object]) -> Scenario:
    content = scenario()
    change(content)
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed(lambda s: s["clients"][0].pop("epoch_warm_s")), "client 'slow': epoch_warm_s: missing"),
        (changed(lambda s: s["clients"][0].update(images=0)), "client 'slow': images"),
        (changed(lambda s: s["clients"][1].update(epoch_warm_s=-5)), "client 'fast': epoch_warm_s"),
        (changed(lambda s: s["clients"][1].update(spin_up_s=-1)), "client 'fast': spin_up_s"),
        (changed(lambda s: s["clients"][1].update(epoch_cold_s=5)), "'fast' has epoch_cold_s 5.0 below"),
        (changed(lambda s: s["clients"][1].update(zones=["mars"])), "'fast' names zone 'mars': expected one"),
        (
            changed(lambda s: s["clients"][1].update(budget_usd=0.01)),
            "the budget of client 'fast' is 0.01 USD",
        ),
        (changed(lambda s: s["clients"][1].update(name="slow")), "two clients are called 'slow'"),
        (changed(lambda s: s.update(clients=[])), "clients"),
        (changed(lambda s: s.update(rouns=4)), "rouns: unknown key"),
        (changed(lambda s: s.update(rounds="many")), "rounds"),
        (changed(lambda s: s.update(rounds=0)), "rounds"),
        (changed(lambda s: s.update(kind="round")), "kind is 'round': expected one of rounds, multi_fedls"),
        (changed(lambda s: s.pop("kind")), "kind is None"),
        (changed(lambda s: s["zones"][0].update(spot_usd_hour=-1)), "zone 'zone': spot_usd_hour"),
        (changed(lambda s: s.update(zones=[{"name": "z"}])), "zone 'z' has neither"),
        (changed(lambda s: s.update(interruptions=[{"client": "x", "time_s": 3}])), "names client 'x'"),
        (
            changed(
                lambda s: s["zones"][0].update(spot_usd_hour={"times_s": [0, 0], "usd_hour": [1.0, 2.0]})
            ),
            "must increase",
        ),
        ("not json", "is not JSON"),
        ("[1]", "holds a list"),
    ],
)
def test_a_wrong_scenario_is_one_line(content: object, message: str, file: Callable[[object], str]) -> None:
    result = RUNNER.invoke(cli.app, ["simulate-fl", file(content)])
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.json"], "nowhere.json: no such file, and no bundled scenario"),
        (["mnist", "--policy", "fedcost"], "--policy is 'fedcost': expected one of fed_cost_aware, spot"),
        (["mnist", "--seed", "-1"], "--seed is -1"),
        (["mnist", "--out", "/proc/nothing"], "cannot write into /proc/nothing"),
    ],
)
def test_a_wrong_word_is_one_line(words: list[str], message: str) -> None:
    result = RUNNER.invoke(cli.app, ["simulate-fl", *words])
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert message in result.stderr


def test_a_policy_without_offers_is_refused(file: Callable[[object], str]) -> None:
    content = scenario()
    del content["zones"][0]["spot_usd_hour"]
    result = RUNNER.invoke(cli.app, ["simulate-fl", file(content), "--policy", "spot"])
    assert result.exit_code == 2
    assert "client slow may rent no spot offer" in result.stderr
