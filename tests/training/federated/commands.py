"""Runs the federated commands as a user would, in this process, and reads what they print and write."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from spotweave import cli

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "federated"
RUNNER = CliRunner()
Scenario = dict[str, Any]
SYN_AND_ASYN = """
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
"""


def run(*words: object) -> Result:
    """`spotweave WORDS`."""
    return RUNNER.invoke(cli.app, [str(word) for word in words])


def printed(*words: object) -> str:
    """What a command prints that succeeds."""
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def mistake(*words: object) -> str:
    """The one line of a user's mistake."""
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def table(output: str) -> dict[str, list[str]]:
    """The words of each printed line, by its first."""
    return {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.strip()}


def two_clients(rounds: int) -> Scenario:
    """The two clients of tests/envs/federated_cases.py."""
    return {
        "kind": "rounds",
        "name": "two clients",
        "rounds": rounds,
        "zones": [{"name": "zone", "spot_usd_hour": 0.36, "on_demand_usd_hour": 1.08}],
        "clients": [
            {"name": "slow", "epoch_warm_s": 600, "epoch_cold_s": 700, "spin_up_s": 100},
            {"name": "fast", "epoch_warm_s": 100, "epoch_cold_s": 150, "spin_up_s": 100},
        ],
    }
