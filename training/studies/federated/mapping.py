"""Brum 2023, Tables 7.8 to 7.10: optimal placements and what a round takes and costs, next to the print."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from agents.federated.mapping.initial import map_initially
from envs.federated_data.multi_fedls import load_application, load_clouds, published_placements
from envs.simulation.federations.clouds import Clouds
from envs.simulation.federations.model import Federation, Outcome
from training.config import UsageError
from training.federated.multi_fedls_tables import RUNS, clock, multi_fedls_tables
from training.federated.plan_fl import counted
from training.studies.evaluations import ROOT
from training.studies.federated.playing import Study

SECTION = "table_7_8_to_7_10"
ALPHA = 0.5
ROUND_DEADLINE_S = 10_000.0
ROUND_BUDGET_USD = 30_000.0
"""Budget of section 7.4.1; far from binding."""


def make(study: Study) -> dict[str, Any]:
    """Every row: the printed setup, what it gives here, what is printed, and the optimum found again."""
    rows: list[dict[str, Any]] = []
    best: dict[str, Outcome] = {}
    for setup in published_placements()["tables_7_8_to_7_10"]:
        federation = Federation(load_application(setup["application"]), _clouds(setup))
        outcome = federation.outcome(federation.placement(setup["server"], setup["clients"]), ALPHA)
        row = {
            "table": setup["table"],
            "application": setup["application"],
            "setup": setup["setup"],
            "server": setup["server"],
            "clients": counted(setup["clients"]),
            "round_time": clock(outcome.round_s),
            "round_usd": f"{outcome.round_usd:.2f}",
            "published_time": setup["round_time"],
            "published_usd": f"{setup['round_usd']:.2f}",
        }
        if setup["setup"] == "optimal":
            rounds = federation.application.rounds
            found = map_initially(federation, ALPHA, ROUND_DEADLINE_S * rounds, ROUND_BUDGET_USD * rounds)
            names = federation.describe(found.best.placement)
            best[setup["application"]] = found.best.outcome
            row["found"] = {
                "server": names[0],
                "clients": counted(names[1:]),
                "round_time": clock(found.best.outcome.round_s),
                "round_usd": f"{found.best.outcome.round_usd:.2f}",
                "objective_difference": found.best.outcome.objective - outcome.objective,
                "proved": found.proved,
            }
        else:
            optimum = best[setup["application"]]
            row["saved_time_percent"] = f"{100 * (1 - optimum.round_s / outcome.round_s):.2f}"
            row["saved_usd_percent"] = f"{100 * (1 - optimum.round_usd / outcome.round_usd):.2f}"
            row["published_saved_time_percent"] = f"{setup['saved_time_percent']:.2f}"
            row["published_saved_usd_percent"] = f"{setup['saved_usd_percent']:.2f}"
        rows.append(row)
    return {"rows": rows}


def _clouds(setup: dict[str, Any]) -> Clouds:
    clouds = load_clouds("aws_gcp")
    if "slowdown_of_vm213" in setup:  # Table 7.8 was computed with another one than Table 7.4 prints
        clouds = clouds.with_compute_slowdown("us-central1", "vm213", setup["slowdown_of_vm213"])
    return clouds.without_quotas() if setup["table"] == "7.8" else clouds


# Brum 2023, Tables 7.14 to 7.18 in simulation, and how long mapping and simulation take.

REVOCATIONS = "table_7_14_to_7_18"
SETS = 100
TABLES = ("7.14", "7.15", "7.16", "7.17", "7.18")
SCALING = "table_scaling"
BENCHMARKS = ("initial_mapping", "federated_rounds")


def make_revocations(study: Study) -> dict[str, Any]:
    """Every row, by `multi_fedls_tables`; each of the five tables is kept by itself."""
    sets = study.count(SETS)
    rows: list[dict[str, Any]] = []
    for number in TABLES:
        identity = {"section": REVOCATIONS, "table": number, "sets": sets}
        held = study.keeper.keep(identity, partial(_table, number, sets))
        study.progress(f"{REVOCATIONS}, Table {number}: sets of {RUNS} runs", sets, sets)
        rows += held["rows"]
    return {"seeds": sets, "runs": RUNS, "rows": rows}


def _table(number: str, sets: int) -> dict[str, Any]:
    return {"rows": [row.document() for row in multi_fedls_tables(sets, [number])]}


def make_scaling(study: Study) -> dict[str, Any]:
    """What the benchmarks measure on this machine.

    Raises:
        UsageError: if they fail.
    """

    def measure() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "measured.json"
            command = [sys.executable, "-m", "benchmarks", *_words(), "--out", str(target)]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
            if done.returncode:
                raise UsageError(f"{' '.join(command[1:])} ended with exit code {done.returncode}")
            measured: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
        return measured

    measured = study.keeper.keep({"section": SCALING}, measure)
    study.progress(f"{SCALING}: benchmarks", len(BENCHMARKS), len(BENCHMARKS))
    return {
        "benchmark": f"python -m benchmarks {' '.join(_words())}",
        "measured_at": measured["measured_at"],
        "measured_commit": measured["commit"],
        "machine": measured["machine"],
        "rows": [row for name in BENCHMARKS for row in measured["benchmarks"][name]],
    }


def _words() -> list[str]:
    return [word for name in BENCHMARKS for word in ("--only", name)]
