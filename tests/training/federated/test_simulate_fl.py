"""`spotweave simulate fl` and `plan fl`: what they print and write, and one line for every mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from envs.documents.federations import read_application, read_clouds
from envs.federated_data.multi_fedls import DIRECTORY, load_application, load_clouds
from tests.training.federated.commands import (
    EXAMPLES,
    Scenario,
    mistake,
    printed,
    rows_of,
    table,
    two_clients,
)


def test_time_cost_and_savings_of_every_policy(file: Callable[[object], str]) -> None:
    rows = table(printed("simulate", "fl", file(two_clients(3))))
    # 2000 s; 0.35, 0.40 and 1.20 USD by hand.
    assert rows["fed_cost_aware"] == ["33.3", "0.3500", "70.83", "0", "0"]
    assert rows["spot"] == ["33.3", "0.4000", "66.67", "0", "0"]
    assert rows["on_demand"] == ["33.3", "1.2000", "0.00", "0", "0"]


def test_one_policy_is_still_measured_against_on_demand(file: Callable[[object], str]) -> None:
    rows = table(printed("simulate", "fl", file(two_clients(3)), "--policy", "spot"))
    assert rows["spot"][2] == "66.67"
    assert not {"fed_cost_aware", "on_demand"} & set(rows)


def test_without_on_demand_offers_there_are_no_savings(file: Callable[[object], str]) -> None:
    content = changed(lambda s: s["zones"][0].pop("on_demand_usd_hour"))
    rows = table(printed("simulate", "fl", file(content)))
    assert rows["spot"][2] == "-"
    assert "on_demand" not in rows


def test_a_bundled_scenario_shows_the_published_numbers_beside_ours() -> None:
    assert table(printed("simulate", "fl", "mnist"))["fed_cost_aware"][-3:] == ["95", "2.29013", "67.04"]


def test_a_client_that_leaves_is_told(file: Callable[[object], str]) -> None:
    content = changed(lambda s: s["clients"][1].update(budget_usd=0.085))
    text = printed("simulate", "fl", file(content), "--policy", "spot")
    assert "spot: fast left in round 2 of 3 after 14.2 min and lost that round's work" in text


@pytest.mark.real
def test_tables_and_pictures_are_written(file: Callable[[object], str], tmp_path: Path) -> None:
    path, out = file(two_clients(3)), tmp_path / "out"
    printed("simulate", "fl", path, "--out", out)
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
    printed("simulate", "fl", path, "--out", again)
    assert all((again / entry.name).read_bytes() == entry.read_bytes() for entry in out.iterdir())


def test_the_seed_decides() -> None:
    outputs = [printed("simulate", "fl", "mnist", "--seed", seed).splitlines()[2:] for seed in (1, 1, 2)]
    assert outputs[0] == outputs[1] != outputs[2]


AT_ONE_TIME = {"times_s": [0, 0], "usd_hour": [1.0, 2.0]}


def changed(change: Callable[[Scenario], object]) -> Scenario:
    content = two_clients(3)
    change(content)
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed(lambda s: s["clients"][0].pop("epoch_warm_s")), "clients.slow.epoch_warm_s: field required"),
        (changed(lambda s: s["clients"][0].update(images=0)), "clients.slow.images"),
        (changed(lambda s: s["clients"][1].update(epoch_warm_s=-5)), "clients.fast.epoch_warm_s"),
        (changed(lambda s: s["clients"][1].update(spin_up_s=-1)), "clients.fast.spin_up_s"),
        (changed(lambda s: s["clients"][1].update(epoch_cold_s=5)), "'fast' has epoch_cold_s 5.0 below"),
        (changed(lambda s: s["clients"][1].update(zones=["mars"])), "'fast' names zone 'mars': expected one"),
        (changed(lambda s: s["clients"][1].update(budget_usd=0.01)), "budget of client 'fast' is 0.01 USD"),
        (changed(lambda s: s["clients"][1].update(name="slow")), "two clients are called 'slow'"),
        (changed(lambda s: s.update(clients=[])), "clients"),
        (changed(lambda s: s.update(rouns=4)), "rouns: unknown key"),
        (changed(lambda s: s.update(rounds="many")), "rounds"),
        (changed(lambda s: s.update(rounds=0)), "rounds"),
        (changed(lambda s: s.update(kind="round")), "kind is 'round': expected one of rounds, multi_fedls"),
        (changed(lambda s: s.pop("kind")), "kind is None"),
        (changed(lambda s: s["zones"][0].update(spot_usd_hour=-1)), "zones.zone.spot_usd_hour"),
        (changed(lambda s: s.update(zones=[{"name": "z"}])), "zone 'z' has neither"),
        (changed(lambda s: s.update(interruptions=[{"client": "x", "time_s": 3}])), "names client 'x'"),
        (changed(lambda s: s["zones"][0].update(spot_usd_hour=AT_ONE_TIME)), "must increase"),
        ("not json", "holds a str"),
        ("[1]", "holds a list"),
    ],
)
def test_a_wrong_scenario_is_one_line(content: object, message: str, file: Callable[[object], str]) -> None:
    assert message in mistake("simulate", "fl", file(content))


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
    assert message in mistake("simulate", "fl", *words)


def test_a_policy_without_offers_is_refused(file: Callable[[object], str]) -> None:
    content = changed(lambda s: s["zones"][0].pop("spot_usd_hour"))
    assert "client slow may rent no spot offer" in mistake(
        "simulate", "fl", file(content), "--policy", "spot"
    )


# plan fl

APPLICATION, CLOUDS = EXAMPLES / "app.json", EXAMPLES / "clouds.json"


def test_the_example_is_the_published_case() -> None:
    assert read_application(APPLICATION) == load_application("til_aws2_gcp2")
    assert read_clouds(CLOUDS) == load_clouds("aws_gcp")


def test_it_prints_the_placement_its_figures_and_the_runners_up() -> None:
    text = printed("plan", "fl", APPLICATION, CLOUDS)
    assert "616.50 s    1.1269 USD" in text
    assert "6164.95 s (1:42:45)    11.27 USD" in text
    assert "proved optimal" in text
    server = next(line for line in text.splitlines() if line.startswith("server"))
    assert server.split()[1:5] == ["AWS", "us-west-2", "vm123", "t2.xlarge"]
    assert "3 vm121, 1 vm111" in text
    assert "equal" in text


def test_its_json_holds_the_same() -> None:
    options = ("--json", "--runners-up", 2, "--alpha", 0.5)
    document = json.loads(printed("plan", "fl", APPLICATION, CLOUDS, *options))
    assert document["proved_optimal"] is True
    assert document["best"]["server"]["vm_type"] == "vm123"
    assert [task["task"] for task in document["best"]["clients"]] == ["c1", "c2", "c3", "c4"]
    assert document["best"]["total_s"] == pytest.approx(10 * document["best"]["round_s"])
    assert len(document["runners_up"]) == 2


def test_spot_vms_are_placed_where_they_are_offered() -> None:
    document = json.loads(printed("plan", "fl", APPLICATION, CLOUDS, "--json", "--client-market", "spot"))
    assert {task["market"] for task in document["best"]["clients"]} == {"spot"}
    assert document["best"]["server"]["market"] == "on_demand"
    assert all(task["usd_hour"] is not None for task in document["best"]["clients"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--deadline", "5000"), "the deadline of 5000 s is too short by 1164.95 s"),
        (("--budget", "5"), "the budget of 5 USD is too small by 6.2695 USD"),
        (("--alpha", "2"), "alpha is 2.0"),
        (("--client-market", "sport"), "there is no market 'sport': use on_demand or spot"),
    ],
)
def test_a_plan_that_cannot_be_made_is_one_line(options: tuple[str, ...], message: str) -> None:
    assert mistake("plan", "fl", APPLICATION, CLOUDS, *options).startswith(f"error: {message}")


def test_an_infeasible_quota_and_a_bad_file_are_named(file: Callable[[object], str]) -> None:
    document = json.loads((DIRECTORY / "clouds_aws_gcp.json").read_text(encoding="utf-8"))
    for region in document["regions"]:
        region["max_vcpus"] = 8
    narrow = mistake("plan", "fl", APPLICATION, file(document))
    assert "allows 8 vCPUs, at least 12 are needed (4 more)" in narrow
    assert "cannot read" in mistake("plan", "fl", "none.json", CLOUDS)
