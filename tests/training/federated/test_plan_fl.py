"""`spotweave plan-fl`: what it prints, its JSON, and one line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envs.federated_data.multi_fedls import load_application, load_clouds
from envs.simulation.federations.documents import clouds_document, read_application, read_clouds
from tests.training.federated.commands import EXAMPLES, mistake, printed

APPLICATION, CLOUDS = EXAMPLES / "app.json", EXAMPLES / "clouds.json"


def test_the_example_is_the_published_case() -> None:
    assert read_application(APPLICATION) == load_application("til_aws2_gcp2")
    assert read_clouds(CLOUDS) == load_clouds("aws_gcp")


def test_it_prints_the_placement_its_figures_and_the_runners_up() -> None:
    text = printed("plan-fl", APPLICATION, CLOUDS)
    assert "616.50 s    1.1269 USD" in text
    assert "6164.95 s (1:42:45)    11.27 USD" in text
    assert "proved optimal" in text
    server = next(line for line in text.splitlines() if line.startswith("server"))
    assert server.split()[1:5] == ["AWS", "us-west-2", "vm123", "t2.xlarge"]
    assert "3 vm121, 1 vm111" in text
    assert "equal" in text


def test_its_json_holds_the_same() -> None:
    arguments = (APPLICATION, CLOUDS, "--json", "--runners-up", 2, "--alpha", 0.5)
    document = json.loads(printed("plan-fl", *arguments))
    assert document["proved_optimal"] is True
    assert document["best"]["server"]["vm_type"] == "vm123"
    assert [task["task"] for task in document["best"]["clients"]] == ["c1", "c2", "c3", "c4"]
    assert document["best"]["total_s"] == pytest.approx(10 * document["best"]["round_s"])
    assert len(document["runners_up"]) == 2


def test_spot_vms_are_placed_where_they_are_offered() -> None:
    arguments = (APPLICATION, CLOUDS, "--json", "--client-market", "spot")
    document = json.loads(printed("plan-fl", *arguments))
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
def test_a_mistake_gets_one_line_and_exit_code_2(options: tuple[str, ...], message: str) -> None:
    assert mistake("plan-fl", APPLICATION, CLOUDS, *options).startswith(f"error: {message}")


def test_an_infeasible_quota_and_a_bad_file_are_named(tmp_path: Path) -> None:
    document = clouds_document(load_clouds("aws_gcp"))
    for region in document["regions"]:
        region["max_vcpus"] = 8
    path = tmp_path / "clouds.json"
    path.write_text(json.dumps(document))
    assert "allows 8 vCPUs, at least 12 are needed (4 more)" in mistake("plan-fl", APPLICATION, path)
    assert "cannot read" in mistake("plan-fl", tmp_path / "none.json", path)
