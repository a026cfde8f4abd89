"""Sinha 2025, Table I, where epochs or spin-ups vary more than its calibrated scenarios say.

The paper prints no variation of times. The scenarios of Table I have chosen coefficients of variation, 0.01
of epochs and 0.1 of spin-ups, and what our policies gain depends on how well a round can be foreseen. Here
one of the two is raised at a time.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from agents.federated.rules.always_on import AlwaysOn
from agents.federated.rules.fed_cost_aware import FedCostAware
from envs.simulation.federations.episodes.world import OneApplication
from envs.simulation.federations.rounds.application import Application, Market
from training.studies.federated.playing import (
    Contestant,
    Kind,
    Study,
    means,
    ours,
    paired,
    savings,
    scheduler,
)
from training.studies.federated.table_one import data_sets, when_ready

SECTION = "table_sensitivity"
EPISODES = 20
VARIED = ("epoch_cv", "spin_up_cv")
LEVELS = (0.05, 0.2, 0.5)
REFERENCE = "fed_cost_aware"
KINDS: dict[str, Kind] = {"saving_percent": "difference", "time_min": "percent"}


def varied_application(application: Application, varied: str, level: float) -> Application:
    """The application with one of its coefficients of variation (`VARIED`) at another level."""
    changes: dict[str, Any] = {varied: level}
    return dataclasses.replace(application, **changes)


def contestants(application: Application, study: Study) -> list[Contestant]:
    """On demand, FedCostAware as in the paper, and our policies, whose clients begin when they are ready."""
    together = OneApplication(application)
    return [
        scheduler("on_demand", "Sync FL, on demand", together, lambda _: AlwaysOn(Market.ON_DEMAND)),
        scheduler(REFERENCE, "FedCostAware", together, lambda _: FedCostAware()),
        *ours(OneApplication(when_ready(application)), study.learned),
    ]


def make(study: Study) -> dict[str, Any]:
    """Every number of the table: `cases` in order, a data set and a variation each, and the suite."""
    suite = study.suite(EPISODES)
    cases, rows = [], []
    for name, (application, _) in data_sets().items():
        for varied in VARIED:
            for level in LEVELS:
                entrants = contestants(varied_application(application, varied, level), study)
                key = f"{name} {varied} {level}"
                played = study.play(SECTION, key, entrants, suite)
                rows += [(key, policy, episodes) for policy, episodes in played.items()]
                full = {
                    policy: {**episodes, "saving_percent": savings(episodes, played["on_demand"])}
                    for policy, episodes in played.items()
                }
                cases.append(
                    {
                        "data_set": application.name,
                        "varied": varied,
                        "level": level,
                        "saving": means(full[REFERENCE], ("saving_percent",))["saving_percent"],
                        "ours": {
                            one.name: {
                                "title": one.title,
                                **paired(full[one.name], full[REFERENCE], KINDS),
                            }
                            for one in entrants
                            if one.ours
                        },
                    }
                )
    return {"suite": dataclasses.asdict(suite), "cases": cases, "episodes": rows}
