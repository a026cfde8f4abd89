"""`spotweave simulate fl` and `plan fl`: what they print and write, and one line for every mistake."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spotweave.agents.federated.multi_fedls import MultiFedLS
from spotweave.envs.documents.federations import read_application, read_clouds
from spotweave.envs.federated_data.multi_fedls import (
    DIRECTORY,
    load_application,
    load_clouds,
    parse_multi_fedls,
)
from spotweave.envs.federated_data.rounds_scenarios import bundled_scenarios, read_json, scenario_path
from spotweave.envs.simulation.federations.rounds.application import SERVER, Market
from spotweave.envs.simulation.federations.rounds.world import play
from spotweave.training.federated.multi_fedls_tables import multi_fedls_tables, read_scenario
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
        (changed(lambda s: s["clients"][1].update(epoch_cold_s=5)), "cold one not below the warm one"),
        (changed(lambda s: s["clients"][1].update(zones=["mars"])), "'fast' names zone 'mars': expected one"),
        (changed(lambda s: s["clients"][1].update(budget_usd=0.01)), "budget of client 'fast' is 0.01 USD"),
        (changed(lambda s: s["clients"][1].update(name="slow")), "two clients are called 'slow'"),
        (changed(lambda s: s.update(clients=[])), "clients"),
        (changed(lambda s: s.update(rouns=4)), "rouns: unknown key"),
        (changed(lambda s: s.update(rounds=0)), "rounds"),
        (changed(lambda s: s.update(kind="round")), "kind is 'round': expected one of rounds, multi_fedls"),
        (changed(lambda s: s.pop("kind")), "kind is None"),
        (changed(lambda s: s["zones"][0].update(spot_usd_hour=-1)), "zones.zone.spot_usd_hour"),
        (changed(lambda s: s.update(zones=[{"name": "z"}])), "zone 'z' has neither"),
        (changed(lambda s: s.update(interruptions=[{"client": "x", "time_s": 3}])), "names client 'x'"),
        (changed(lambda s: s["zones"][0].update(spot_usd_hour=AT_ONE_TIME)), "must strictly increase"),
        ("not json", "holds a str"),
        ("[1]", "holds a list"),
    ],
)
def test_a_wrong_scenario_is_one_line(content: object, message: str, file: Callable[[object], str]) -> None:
    assert message in mistake("simulate", "fl", file(content))


@pytest.mark.parametrize(
    ("words", "message"),
    [
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


def test_an_infeasible_quota_is_named(file: Callable[[object], str]) -> None:
    document = json.loads((DIRECTORY / "clouds_aws_gcp.json").read_text(encoding="utf-8"))
    for region in document["regions"]:
        region["max_vcpus"] = 8
    narrow = mistake("plan", "fl", APPLICATION, file(document))
    assert "allows 8 vCPUs, at least 12 are needed (4 more)" in narrow


# Tables 7.14 to 7.18: what is exact, that revocations are as counted, and how the tables are shown.


def test_every_table_is_bundled() -> None:
    numbers = [t.number for name in bundled_scenarios("multi_fedls") for t in read_scenario(name).published]
    assert sorted(numbers) == ["7.14", "7.15", "7.16", "7.17", "7.18"]


@pytest.mark.real
@pytest.mark.parametrize("name", bundled_scenarios("multi_fedls"))
def test_all_on_demand_takes_what_was_printed(name: str) -> None:
    """The time by calibration; the cost follows from prices, setup and what is billed."""
    rows = multi_fedls_tables(2, [published.number for published in read_scenario(name).published])
    for figures in (row["figures"] for row in rows if row["reading"] == "on demand"):
        time_s, cost_usd = figures["time_s"], figures["cost_usd"]
        assert time_s["mean"] == pytest.approx(time_s["published"], abs=2)
        assert cost_usd["mean"] == pytest.approx(cost_usd["published"], rel=0.013)
        assert figures["revocations"]["mean"] == 0


def test_til_without_revocations_by_hand() -> None:
    """Table 7.14's application on spot VMs, with checkpoints and without noise."""
    scenario = read_scenario("til")
    deployment = scenario.deployment.with_conditions(
        dataclasses.replace(scenario.deployment.conditions, run_cv=0.0, revocation_mean_s=None)
    )
    outcome = play(deployment.application, MultiFedLS(deployment, placement=scenario.placement), 0)
    # 1,900 s of preparation, 1,432 s to fetch results; rounds of computation (2765.4 s scaled, on vm326),
    # messages within Wisconsin, aggregation for four clients; 12.66 s more for the cold round.
    epoch_s = 2765.4 * 1.10453 * 0.04473109456478423 + 8.66 * 1.0224010774891648
    server_s, client_s, save_s = 4 * 0.8 + 8.43, 3.23, 28.14
    training_s = 50 * (epoch_s + server_s + client_s) + 12.66 + save_s
    assert outcome.time_s == pytest.approx(1900 + training_s + 1432, abs=2)
    billed_s = outcome.time_s - 1900
    assert outcome.cost_usd == pytest.approx(billed_s * (4 * 1.408 + 0.501) / 3600)
    # Section 7.5, of a round without checkpoints (148.9 s): 7.55 % every 10 rounds, 6.29 % every 30; 2.17 %.
    round_s = (7447 - 12.66) / 50
    for every, share in ((10, 0.0755), (30, 0.0629)):
        assert (8.43 + save_s / every) / round_s == pytest.approx(share, abs=0.0003)
    assert client_s / round_s == pytest.approx(0.0217, abs=0.0001)


@pytest.mark.real
def test_as_many_are_revoked_as_the_thesis_counted() -> None:
    rows = multi_fedls_tables(3, ["7.15", "7.18"])
    counted = [row["figures"] for row in rows if row["reading"] == "counted"]
    assert len(counted) == 8
    for figures in counted:
        revocations, time_s = figures["revocations"], figures["time_s"]
        assert revocations["low"] == revocations["high"]
        assert revocations["low"] == pytest.approx(revocations["published"], abs=0.005)
        assert time_s["low"] <= time_s["mean"] <= time_s["high"]
    assert multi_fedls_tables(3, ["7.18"]) == [row for row in rows if row["table"] == "7.18"]


def test_no_task_is_revoked_twice_and_the_successors_are_the_printed_ones() -> None:
    scenario = read_scenario("til")
    application = scenario.deployment.application
    seen: set[tuple[int, str]] = set()
    for seed in range(4):
        outcome = play(application, MultiFedLS(scenario.deployment, placement=scenario.placement), seed)
        tasks = [task for task, _ in outcome.interruptions]
        assert len(tasks) == len(set(tasks))
        seen |= {(min(bill.client, 0), application.offers[bill.offer].name) for bill in outcome.bills}
    clients = {name for task, name in seen if task == 0}
    servers = {name for task, name in seen if task == SERVER}
    assert clients == {"vm326 spot", "vm338 spot"}
    # The printed vm412, but where clients have already moved to Clemson.
    assert {"vm321 spot", "vm412 spot"} <= servers <= {"vm321 spot", "vm412 spot", "vm324 spot"}


def test_runs_differ_by_their_own_factor() -> None:
    scenario = read_scenario("til")
    calm = scenario.deployment.with_conditions(
        dataclasses.replace(scenario.deployment.conditions, revocation_mean_s=None)
    )
    policy = MultiFedLS(calm, placement=scenario.placement)
    times = np.array([play(calm.application, policy, seed).time_s for seed in range(60)])
    # 4.4 % of preparation and epochs; the printed rows vary by 236 s as means of three.
    assert times.std() == pytest.approx(0.044 * (1900 + 50 * 136.6), rel=0.25)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no table '7\.1'"):
        multi_fedls_tables(2, ["7.1"])
    with pytest.raises(ValueError, match="seeds is 1"):
        multi_fedls_tables(1, ["7.14"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(application="mars"), "no published data are named 'mars'"),
        (lambda s: s.update(clouds="mars"), "no published data are named 'mars'"),
        (lambda s: s.update(clients=["c9"]), "clients names 'c9': expected some of c1, c2, c3, c4"),
        (lambda s: s.update(vm_types=["vm999"]), "VM type 'vm999' is not there"),
        (lambda s: s.update(spin_up_s={"Mars": 3}), "spin_up_s names provider 'Mars': expected AWS, GCP"),
        (lambda s: s.update(cold_s={"vm999": 3}), "names VM type 'vm999'"),
        (lambda s: s.update(setup={"server": "vm1", "clients": "vm111"}), "VM type 'vm1', which is not"),
        (lambda s: s.update(degradations=[{"slowdown": 2}]), "exactly one of both"),
        (lambda s: s.update(epoch_scale=0), "epoch_scale"),
        (lambda s: s.update(degradations=[{"slowdown": 2, "link": ["mars", "us-west1"]}]), "region 'mars'"),
    ],
)
def test_a_wrong_scenario_of_multi_fedls_is_one_line(
    change: Callable[[Scenario], object], message: str, file: Callable[[object], str]
) -> None:
    content = read_json(scenario_path("proof-of-concept"))
    change(content)
    assert message in mistake("simulate", "fl", file(content))


@pytest.mark.real
def test_simulate_fl_plays_them(tmp_path: Path) -> None:
    ours = ("multi_fedls", "multi_fedls_moving", "multi_fedls_server_on_demand")
    policies = [word for name in (*ours, "fed_cost_aware", "on_demand") for word in ("--policy", name)]
    rows = table(printed("simulate", "fl", "proof-of-concept", *policies, "--out", tmp_path))
    assert rows["on_demand"][2:] == ["0.00", "0", "0", "0"]
    assert float(rows["multi_fedls"][2]) > 0
    assert rows["multi_fedls_server_on_demand"][4] == "0"
    states = (tmp_path / "states.csv").read_text().splitlines()
    assert any(line.startswith("multi_fedls,server,idle,") for line in states)
    summary = json.loads((tmp_path / "summary.json").read_text())["policies"]["multi_fedls"]
    clients = sum(client["cost_usd"] for client in summary["clients"].values())
    total = clients + summary["server"]["cost_usd"] + summary["messages_usd"]
    assert total == pytest.approx(summary["cost_usd"])
    assert (tmp_path / "states_multi_fedls.png").read_bytes().startswith(b"\x89PNG")
    wrong = mistake("simulate", "fl", "til", "--policy", "spot")
    assert "--policy is 'spot': expected one of fed_cost_aware, multi_fedls," in wrong


def test_files_of_ones_own_may_stand_beside_the_scenario(tmp_path: Path) -> None:
    for name in ("app.json", "clouds.json"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    content = {
        "kind": "multi_fedls",
        "name": "mine",
        "application": "app.json",
        "clouds": "clouds.json",
        "revocation_mean_s": 3600,
        "checkpoints": {"every_rounds": 5},
    }
    mine = parse_multi_fedls(content, str(tmp_path / "mine.json"))
    assert mine.placement is None
    outcome = play(mine.deployment.application, MultiFedLS(mine.deployment, client_market=Market.SPOT), 0)
    assert len(outcome.rounds) == mine.deployment.application.rounds
    assert outcome.messages_usd > 0
