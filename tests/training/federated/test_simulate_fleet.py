"""`spotweave simulate-fl` for scenarios of kind "fleet": its table, its files, one line for every mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envs.federated_data.rounds_scenarios import bundled_scenarios
from tests.training.federated.commands import Scenario, mistake, printed, rows_of, table, two_clients


def fleet() -> Scenario:
    """Two of them want the same two GPUs, the second 100 s later."""
    return {
        "kind": "fleet",
        "name": "two at once",
        "applications": [
            {"name": "first", "scenario": two_clients(2), "policy": "spot", "deadline_s": 1400},
            {
                "name": "second",
                "scenario": two_clients(2),
                "policy": "spot",
                "start_s": 100,
                "deadline_s": 2000,
                "budget_usd": 0.2,
            },
        ],
        "quotas": [{"name": "gpus", "limit": 2, "amounts": {"zone spot": 1, "zone on-demand": 1}}],
    }


def test_every_application_and_all_together(file: Callable[[object], str]) -> None:
    """1400 s and two spot instances of 0.36 USD/h each; the second waits from 100 s to 1400 s."""
    text = printed("simulate-fl", file(fleet()))
    rows = table(text)
    assert rows["first"] == [
        *("spot", "0:00:00", "0:00:00", "0:23:20", "0.28", "0:23:20", "0.28", "0", "kept", "-"),
    ]
    assert rows["second"] == [
        *("spot", "0:01:40", "0:21:40", "0:23:20", "0.28", "0:23:20", "0.28", "0", "missed", "missed"),
    ]
    # Alone the second would have been over at 1500 s.
    assert rows["all"] == ["0:00:00", "0:21:40", "0:46:40", "0.56", "0:25:00", "0.56", "0"]
    assert "second: over 700 s after its deadline of 2000 s" in text
    assert "second: 0.08 USD over its budget of 0.2 USD" in text
    assert "gpus: at most 2 of 2 at once" in text


def test_files_have_the_seconds_of_the_fleets_clock(file: Callable[[object], str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    printed("simulate-fl", file(fleet()), "--out", out)
    states = [row for row in rows_of(out / "states.csv") if row["application"] == "second"]
    assert (states[0]["state"], states[0]["start_s"], states[0]["end_s"]) == ("spin_up", "1400", "1500")
    bills = [row for row in rows_of(out / "bills.csv") if row["application"] == "second"]
    assert {(row["start_s"], row["end_s"]) for row in bills} == {("1400", "2800")}
    costs = [row for row in rows_of(out / "costs.csv") if row["application"] == "second"]
    assert {row["time_s"] for row in costs} == {"2200", "2800"}
    begun = {row["application"]: row["begun_s"] for row in rows_of(out / "applications.csv")}
    assert begun == {"first": "0", "second": "1400"}
    steps = [(row["from_s"], float(row["used"]), row["limit"]) for row in rows_of(out / "quotas.csv")]
    # At 1400 s the first gives back two and the second takes two: nothing changes.
    assert steps == [("0", 2, "2"), ("2800", 0, "2")]
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary["applications"]) == {"first", "second"}
    assert (out / "states_second.png").is_file()


def test_a_fleet_of_one_is_the_application(file: Callable[[object], str]) -> None:
    content = fleet()
    content["applications"] = [{"scenario": "fed-isic2019", "policy": "fed_cost_aware"}]
    content["quotas"] = []
    rows = table(printed("simulate-fl", file(content), "--seed", 3))
    single = table(printed("simulate-fl", "fed-isic2019", "--seed", 3, "--policy", "fed_cost_aware"))
    hours, minutes, seconds = (int(part) for part in rows["fed-isic2019"][3].split(":"))
    assert f"{(3600 * hours + 60 * minutes + seconds) / 60:.1f}" == single["fed_cost_aware"][0]
    assert rows["fed-isic2019"][4] == f"{float(single['fed_cost_aware'][1]):.2f}"


def test_instances_of_an_offer_can_be_limited(file: Callable[[object], str]) -> None:
    content = fleet()
    content["quotas"] = []
    content["instances"] = {"zone spot": 3}
    rows = table(printed("simulate-fl", file(content)))
    assert rows["second"][2] == "0:21:40"
    content["instances"] = {"zone spot": 4}
    rows = table(printed("simulate-fl", file(content)))
    assert rows["second"][2] == "0:00:00"


def test_the_bundled_fleet_fits_in_order_and_waits_otherwise(file: Callable[[object], str]) -> None:
    assert bundled_scenarios("fleet") == ["three-til"]
    text = printed("simulate-fl", "three-til")
    assert table(text)["all"][1] == "0:00:00"
    assert "gpus of provider GCP: at most 4 of 4 at once" in text
    path = Path(__file__).resolve().parents[3] / "envs" / "federated_data" / "fleet_three_til.json"
    content = json.loads(path.read_text()) | {"mapping": "alone"}
    alone = table(printed("simulate-fl", file(content)))
    assert alone["til-10"][2] == "0:00:00"
    # Of four GPUs the first holds three, and is over after 23:13; the second may begin at 10:00.
    assert alone["til-10"][3] == "0:23:13"
    assert alone["til-20"][2] == "0:13:13"
    content["mapping"] = "joint"
    assert table(printed("simulate-fl", file(content)))["all"][1] == "0:00:00"


def change(**changes: Any) -> Callable[[Scenario], None]:
    def apply(content: Scenario) -> None:
        content["applications"][1] |= changes

    return apply


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            change(policy="best"),
            "the policy of 'second' is 'best': expected one of fed_cost_aware, spot, on_d",
        ),
        (change(name="first"), "two applications are called 'first'"),
        (change(name="a/b"), "name: string should match pattern"),
        (change(scenario="none"), "none: no such file, and no bundled scenario"),
        (change(scenario={"kind": "fleet"}), "application 2 has a scenario of kind 'fleet'"),
        (change(name=None), "application 2 has an inline scenario and no name"),
        (change(start_s=-1), "greater than or equal to 0"),
        (lambda content: content["quotas"][0].update(limit=1), "there are 1 gpus, at least 2 are needed"),
        (
            lambda content: content["quotas"][0].update(amounts={"zone": 1}),
            "'gpus' names offer 'zone', which no application may rent: expected some of zone spot, zone on-d",
        ),
        (
            lambda content: content.update(mapping="best"),
            "mapping: input should be 'alone', 'in_order' or 'joi",
        ),
        (lambda content: content.update(applications=[]), "applications: list should have at least 1 item"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_2(
    file: Callable[[object], str], broken: Callable[[Scenario], None], message: str
) -> None:
    content = fleet()
    broken(content)
    assert message in mistake("simulate-fl", file(content))


def test_policies_are_those_of_the_scenario(file: Callable[[object], str]) -> None:
    told = mistake("simulate-fl", file(fleet()), "--policy", "spot")
    assert told.startswith("error: --policy is not for fleets")


def test_the_application_that_does_not_fit_and_its_quota_are_named(file: Callable[[object], str]) -> None:
    path = Path(__file__).resolve().parents[3] / "envs" / "federated_data" / "fleet_three_til.json"
    content = json.loads(path.read_text())
    for item in content["applications"]:
        item["scenario"]["clients"] = ["c1", "c2", "c3", "c4"]
    assert (
        "application 3 (til-30) does not fit with those before it (til-10, til-20): of the 52 vCPUs of "
        "region 'us-east-1' 36 are taken, at least 32 are needed (16 more)"
    ) in mistake("simulate-fl", file(content))
    content["applications"][0] |= {"deadline_s": 200}
    told = mistake("simulate-fl", file(content))
    assert "the deadline of 'til-10' is 200 s, but preparing VMs and fetching results take 300 s" in told
