"""Multi-FedLS's spot cases (Brum 2023, Tables 7.14 to 7.18): our policies next to its dynamic scheduler."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from agents.federated.schedulers.multi_fedls import MultiFedLS
from envs.federated_data.multi_fedls import MultiFedlsScenario
from envs.federated_data.rounds_scenarios import bundled_scenarios
from envs.simulation.federations.episodes.world import OneApplication
from envs.simulation.federations.rounds.application import Application
from training.federated.multi_fedls_tables import read_scenario
from training.federated.simulate_fl import MULTI_FEDLS_POLICIES, REFERENCE
from training.studies.federated.playing import Contestant, Kind, Study, means, ours, paired, scheduler

SECTION = "table_spot_cases"
EPISODES = 100
SCHEDULERS = {
    "multi_fedls": "Multi-FedLS, all spot, other types after a revocation",
    "multi_fedls_same_type": "Multi-FedLS, all spot, same type allowed",
    "multi_fedls_server_on_demand": "Multi-FedLS, server on demand, other types",
    "multi_fedls_same_type_server_on_demand": "Multi-FedLS, server on demand, same type allowed",
    REFERENCE: "All on demand",
}
SHOWN = ("time_min", "cost_usd", "interruptions")
KINDS: dict[str, Kind] = {"cost_usd": "percent", "time_min": "percent"}


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
        return MultiFedLS(
            deployment,
            alpha=scenario.alpha,
            placement=scenario.placement,
            name=name,
            **MULTI_FEDLS_POLICIES[name],
        )

    # What is never revoked keeps no checkpoints, as in the thesis.
    rows = [
        scheduler(name, title, unchecked if name == REFERENCE else source, partial(made, name))
        for name, title in SCHEDULERS.items()
    ]
    return [*rows, *ours(source, study.learned, measured=True)]


def make(study: Study) -> dict[str, Any]:
    """Every number of the table."""
    suite = study.suite(EPISODES)
    cases: dict[str, Any] = {}
    rows = []
    for title, (scenario, rate) in spot_cases().items():
        entrants = contestants(scenario, rate, study)
        played = study.play(SECTION, title, entrants, suite)
        rows += [(title, name, episodes) for name, episodes in played.items()]
        cases[title] = {
            "title": title,
            "policies": {
                one.name: {
                    "title": one.title,
                    "ours": one.ours,
                    "means": means(played[one.name], SHOWN),
                    "rounds_lost": sum(played[one.name]["rounds_lost"]),
                    "against": {
                        other: paired(played[one.name], played[other], KINDS)
                        for other in SCHEDULERS
                        if one.ours and other != REFERENCE
                    },
                }
                for one in entrants
            },
        }
    return {"suite": dataclasses.asdict(suite), "cases": cases, "episodes": rows}
