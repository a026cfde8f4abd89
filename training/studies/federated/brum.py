"""Brum 2023 (Multi-FedLS): optimal placements, their rounds, and spot cases, next to the print."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from spotweave.agents.federated.mapping.initial import map_initially
from spotweave.agents.federated.multi_fedls import MultiFedLS
from spotweave.envs.federated_data.multi_fedls import (
    MultiFedlsScenario,
    load_application,
    load_clouds,
    published_placements,
)
from spotweave.envs.federated_data.rounds_scenarios import bundled_scenarios
from spotweave.envs.simulation.federations.clouds import Clouds
from spotweave.envs.simulation.federations.model import Federation, Outcome
from spotweave.envs.simulation.federations.rounds.application import Application
from spotweave.envs.simulation.federations.world import OneApplication
from spotweave.training.config import UsageError
from spotweave.training.federated.multi_fedls_tables import RUNS, multi_fedls_tables, read_scenario
from spotweave.training.federated.plan_fl import counted
from spotweave.training.federated.simulate_fl import REFERENCE, multi_fedls
from spotweave.training.progress import clock
from spotweave.training.studies.evaluations import ROOT
from spotweave.training.studies.federated.playing import (
    Contestant,
    Kind,
    Study,
    described,
    ours,
    scheduler,
)

MAPPING = "table_7_8_to_7_10"
ALPHA = 0.5
ROUND_DEADLINE_S = 10_000.0
ROUND_BUDGET_USD = 30_000.0  # budget of section 7.4.1; far from binding


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
    return {"rows": multi_fedls_tables(sets, [number])}


def make_scaling(study: Study) -> dict[str, Any]:
    """What the benchmarks measure on this machine. Raises UsageError if they fail."""

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


# Spot cases (Tables 7.14 to 7.18): our policies next to the dynamic scheduler.


SPOT_CASES = "table_spot_cases"
SPOT_EPISODES = 100
SCHEDULERS = {
    "multi_fedls": "Multi-FedLS, all spot, other types after a revocation",
    "multi_fedls_same_type": "Multi-FedLS, all spot, same type allowed",
    "multi_fedls_server_on_demand": "Multi-FedLS, server on demand, other types",
    "multi_fedls_same_type_server_on_demand": "Multi-FedLS, server on demand, same type allowed",
    REFERENCE: "All on demand",
}
SHOWN = ("time_min", "cost_usd", "interruptions")
SPOT_KINDS: dict[str, Kind] = {"cost_usd": "percent", "time_min": "percent"}


def spot_cases() -> dict[str, tuple[MultiFedlsScenario, float]]:
    """By a name for people: each scenario with each printed mean of the seconds to a revocation."""
    found = {}
    for name in bundled_scenarios("multi_fedls"):
        scenario = read_scenario(name)
        rates = {row.revocation_mean_s for table in scenario.published for row in table.rows}
        for rate in sorted(rates):
            found[f"{scenario.name}, k_r = {rate:,.0f} s"] = (scenario, rate)
    return found


def contestants(scenario: MultiFedlsScenario, revocation_mean_s: float, study: Study) -> list[Contestant]:
    """The rows of one case. Each client begins a round when it is ready, for every policy."""
    conditions = dataclasses.replace(scenario.deployment.conditions, revocation_mean_s=revocation_mean_s)
    deployment = scenario.deployment.with_conditions(conditions)
    source, unchecked = (
        OneApplication(dataclasses.replace(application, start_together=False))
        for application in (deployment.application, scenario.unchecked)
    )

    def made(name: str, _: Application) -> MultiFedLS:
        return multi_fedls(scenario, deployment, name)

    # What is never revoked keeps no checkpoints, as in the thesis.
    rows = [
        scheduler(name, title, unchecked if name == REFERENCE else source, partial(made, name))
        for name, title in SCHEDULERS.items()
    ]
    return [*rows, *ours(source, study.learned, measured=True)]


def make_spot_cases(study: Study) -> dict[str, Any]:
    """Every number of the table."""
    suite = study.suite(SPOT_EPISODES)
    compared = [name for name in SCHEDULERS if name != REFERENCE]
    cases: dict[str, Any] = {}
    rows = []
    for title, (scenario, rate) in spot_cases().items():
        entrants = contestants(scenario, rate, study)
        played = study.play(SPOT_CASES, title, entrants, suite)
        rows += [(title, name, episodes) for name, episodes in played.items()]
        cases[title] = {
            "title": title,
            "policies": {
                one.name: {
                    **described(one, played, SHOWN, SPOT_KINDS, compared if one.ours else ()),
                    "rounds_lost": sum(played[one.name]["rounds_lost"]),
                }
                for one in entrants
            },
        }
    return {"suite": dataclasses.asdict(suite), "cases": cases, "episodes": rows}
