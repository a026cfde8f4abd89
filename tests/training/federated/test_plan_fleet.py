"""`spotweave plan-fl --with`: several applications on the same quotas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envs.federated_data.multi_fedls import load_clouds
from envs.simulation.federations.documents import clouds_document
from tests.training.federated.commands import EXAMPLES, mistake, printed

APPLICATION, CLOUDS = str(EXAMPLES / "app.json"), EXAMPLES / "clouds.json"


def test_the_second_takes_what_the_first_leaves() -> None:
    """The first has the published optimum; us-west-2 (36 vCPUs) has no room for four more clients there."""
    text = printed("plan-fl", APPLICATION, CLOUDS, "--with", APPLICATION)
    lines = [line.split() for line in text.splitlines() if line.startswith("TIL")]
    assert [line[-5:-1] for line in lines] == [
        ["616.50", "1.1269", "1:42:45", "11.27"],
        ["623.27", "1.1330", "1:43:53", "11.33"],
    ]
    assert "jointly" not in text


def test_the_joint_optimum_is_shown_beside() -> None:
    arguments = ("plan-fl", APPLICATION, CLOUDS, "--with", f"{APPLICATION} alpha=0.9", "--joint")
    text = printed(*arguments)
    assert "jointly, proved optimal" in text
    assert "the joint mapping's sum of objectives is" in text
    document = json.loads(printed(*arguments, "--json"))
    assert [item["alpha"] for item in document["joint"]] == [0.5, 0.9]
    total = sum(item["objective"] for item in document["in_order"])
    assert document["joint_objective"] <= total + 1e-9
    assert document["joint_objective"] == pytest.approx(sum(item["objective"] for item in document["joint"]))


def test_each_has_its_own_deadline_and_budget() -> None:
    """The first keeps 6200 s; the second asks for more speed than any placement has."""
    other = f"{APPLICATION} deadline=4000"
    told = mistake("plan-fl", APPLICATION, CLOUDS, "--deadline", 6200, "--with", other)
    assert told.startswith("error: application 2 (TIL, AWS(2)-GCP(2)) cannot be placed even alone: ")
    assert "the deadline of 4000 s is too short" in told


def test_the_quota_in_the_way_is_named_in_one_line(tmp_path: Path) -> None:
    document = clouds_document(load_clouds("aws_gcp"))
    for provider in document["providers"]:
        provider["max_gpus"] = 3
    path = tmp_path / "clouds.json"
    path.write_text(json.dumps(document))
    told = mistake("plan-fl", APPLICATION, path, "--with", APPLICATION)
    # AWS and GCP have six GPUs in all: the first takes four of them.
    assert "does not fit with those before it" in told
    assert "GPUs of provider" in told
    told = mistake("plan-fl", APPLICATION, path, "--with", APPLICATION, "--joint")
    assert told.startswith("error: the quotas have no room for all applications together")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--joint",), "--joint is for several applications: name the others by --with"),
        (("--with", ""), "--with is empty: expected a file"),
        (("--with", "b.json budget=much"), "--with has 'budget=much': expected a file and then alpha=NUMBER"),
        (("--with", "'b.json"), "--with has a quote without its end: 'b.json"),
        (("--with", "b.json cost=1"), "--with has 'cost=1'"),
        (("--with", "missing.json"), "cannot read missing.json"),
        (("--with", f"'{APPLICATION}' alpha=2"), "alpha is 2.0"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_2(options: tuple[str, ...], message: str) -> None:
    assert mistake("plan-fl", APPLICATION, CLOUDS, *options).startswith(f"error: {message}")
