"""The command `spotweave simulate-async`: what it writes, and mistakes in one line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from spotweave.cli import app

SCENARIO = """
title: Small
partition: random_groups
bands:
  - {participants: 10, from_slices: 1, to_slices: 2}
round_updates: 5
updates: 50
local_steps: 1
milestones: [0.05]
reference: syn
methods:
  syn: {algorithm: fed_avg}
  asyn: {algorithm: asyn_da}
  fed_suda: {algorithm: fed_suda, staleness_bound: 3}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate-async", *arguments])


@pytest.fixture
def scenario(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "scenario.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def test_tables_and_a_picture_are_written(scenario: Callable[[str], str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(scenario(SCENARIO), "--methods", "syn, asyn", "--seeds", "2", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "Small; 2,000 digits of the package" in result.output
    assert "fed_suda" not in result.output
    assert (out / "experiment.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))["methods"]
    assert set(summary) == {"syn", "asyn"}
    with (out / "points.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    # Two methods, two seeds, 50 updates of 5 per round.
    assert len(rows) == 2 * 2 * 10
    ends = [float(row["time_slices"]) for row in rows if row["method"] == "asyn" and row["round"] == "10"]
    assert ends == summary["asyn"]["training_slices"]


def test_one_seed_has_no_interval(scenario: Callable[[str], str]) -> None:
    result = run(scenario(SCENARIO), "--seeds", "1")
    assert result.exit_code == 0, result.output
    assert "[" not in result.output


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (SCENARIO, ["--methods", "hp_asgd"], "method 'hp_asgd': expected some of syn, asyn, fed_suda"),
        (SCENARIO, ["--seeds", "0"], "seeds is 0: expected at least 1"),
        (SCENARIO, ["--data", "/nowhere"], "/nowhere has neither"),
        (SCENARIO.replace("updates: 50", "updates: 0"), [], "updates is 0: input should be greater"),
        (SCENARIO.replace("staleness_bound: 3", "staleness_bound: -1"), [], "staleness_bound is -1"),
        (
            SCENARIO.replace(", staleness_bound: 3", ""),
            [],
            "methods.fed_suda: fed_suda needs staleness_bound, T",
        ),
        (
            SCENARIO.replace("asyn_da}", "asyn_da, mixing: 0.5}"),
            [],
            "methods.asyn: asyn_da has no mixing: expected some of uploads, rate, round_updates",
        ),
        (SCENARIO.replace("local_steps", "local_stepz"), [], "unknown key .local_stepz: did you mean"),
        (SCENARIO.replace("fed_avg", "fedavg"), [], "algorithm is 'fedavg'"),
        (SCENARIO.replace("reference: syn", "reference: sync"), [], "reference is 'sync'"),
        (SCENARIO + "slow: [10]", [], "slow names participant 10: there are 0 to 9"),
        (SCENARIO.replace("round_updates: 5", "round_updates: 11"), [], "expected at most 10"),
        (SCENARIO.replace("participants: 10", "participants: 7"), [], "needs a multiple of 5"),
        ("title: [", [], "is not YAML"),
        ("- a", [], "holds no keys"),
    ],
)
def test_mistakes_are_one_line(
    scenario: Callable[[str], str], text: str, arguments: list[str], message: str
) -> None:
    result = run(scenario(text), *arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


def test_a_missing_scenario_is_told() -> None:
    result = run("nowhere.yaml")
    assert result.exit_code == 2
    assert "no scenario at nowhere.yaml" in result.stderr
