"""Sinha 2025, Table I: time, cost and savings on the four data sets, and how much could be saved at most."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from agents.federated.rules.always_on import AlwaysOn
from agents.federated.rules.fed_cost_aware import FedCostAware
from envs.federated_data.rounds_scenarios import (
    bundled_scenarios,
    parse_rounds,
    published_table,
    read_json,
    scenario_path,
)
from envs.simulation.federations.episodes.world import OneApplication, reference_of
from envs.simulation.federations.rounds.application import Application, Market
from envs.simulation.streams import episode_sequence
from training.evaluation.episodes import Progress, Suite
from training.studies.federated.cheapest import cheapest_schedule, least_cost_usd
from training.studies.federated.playing import (
    METRICS,
    Contestant,
    Episodes,
    Kind,
    Study,
    means,
    ours,
    paired,
    savings,
    scheduler,
)

SECTION, SENSITIVITY = "table_1", "table_sensitivity"
EPISODES = 20
REFERENCES = ("fed_cost_aware", "fed_cost_aware_ready")
SHOWN = ("time_min", "cost_usd", "saving_percent")
BOUND = "bound"
LEAST = "least"
VARIED = ("epoch_cv", "spin_up_cv")
LEVELS = (0.05, 0.2, 0.5)
KINDS: dict[str, Kind] = {"saving_percent": "difference", "time_min": "percent"}


def data_sets() -> dict[str, tuple[Application, dict[str, dict[str, float]]]]:
    """By name: the application of a data set, and what Table I prints for it."""
    found = {}
    for name in bundled_scenarios("rounds"):
        path = scenario_path(name)
        content = read_json(path)
        found[name] = parse_rounds(content, str(path)), published_table(content)
    return found


def when_ready(application: Application) -> Application:
    """The same where each client begins a round as soon as it is ready, not together with the last one."""
    return dataclasses.replace(application, start_together=False)


def contestants(application: Application, study: Study) -> list[Contestant]:
    """The rows of one data set."""
    together, ready = OneApplication(application), OneApplication(when_ready(application))
    return [
        scheduler("on_demand", "Sync FL, on demand", together, lambda _: AlwaysOn(Market.ON_DEMAND)),
        scheduler("spot", "Sync FL, spot", together, lambda _: AlwaysOn(Market.SPOT)),
        scheduler("fed_cost_aware", "FedCostAware", together, lambda _: FedCostAware()),
        scheduler(
            "fed_cost_aware_ready", "FedCostAware (clients begin when ready)", ready, lambda _: FedCostAware()
        ),
        *ours(ready, study.learned),
        Contestant(
            BOUND,
            "Cheapest schedule that never waits (bound)",
            "cheapest schedule",
            partial(_schedules, when_ready(application), least=False),
        ),
        Contestant(
            LEAST,
            "No schedule is cheaper, however slow (bound)",
            "least cost",
            partial(_schedules, when_ready(application), least=True),
        ),
    ]


def make(study: Study) -> dict[str, Any]:
    """Every number of the table: `cases` by data set, and the suite."""
    suite = study.suite(EPISODES)
    cases, rows = {}, []
    for name, (application, published) in data_sets().items():
        entrants = contestants(application, study)
        played = study.play(SECTION, name, entrants, suite)
        cases[name] = case(application.name, entrants, played, published)
        rows += [(name, policy, episodes) for policy, episodes in played.items()]
    return {"suite": dataclasses.asdict(suite), "cases": cases, "episodes": rows}


def case(
    title: str,
    entrants: list[Contestant],
    played: dict[str, Episodes],
    published: dict[str, dict[str, float]],
) -> dict[str, Any]:
    """One data set: means, differences to FedCostAware, and the points of saving left to the bound."""
    full = {
        name: {**episodes, "saving_percent": savings(episodes, played["on_demand"])}
        for name, episodes in played.items()
    }
    policies: dict[str, Any] = {}
    for one in entrants:
        left = paired(full[BOUND], full[one.name], {"saving_percent": "difference"})
        policies[one.name] = {
            "title": one.title,
            "ours": one.ours,
            "means": means(full[one.name], SHOWN),
            "published": published.get(one.name),
            "against": {
                other: paired(full[one.name], full[other], KINDS)
                for other in REFERENCES
                if other != one.name and one.name not in ("on_demand", "spot")
            },
            "left_points": None if one.name in (BOUND, LEAST) else left["saving_percent"],
        }
    return {"title": title, "policies": policies}


def _schedules(application: Application, suite: Suite, told: Progress | None, *, least: bool) -> Episodes:
    """The cheapest schedules as if they had been played; with `least`, the least cost in the same time."""
    usd, seconds = [], []
    for key in suite.episode_keys():
        root = episode_sequence(key.seed, key.split, key.index)
        schedule = cheapest_schedule(application, root)
        usd.append(least_cost_usd(application, root) if least else schedule.cost_usd)
        seconds.append(schedule.time_s)
    if told is not None:
        told(suite.episodes, suite.episodes)
    reference = reference_of(application)
    return dict.fromkeys(METRICS, [0.0] * len(usd)) | {
        "cost_usd": usd,
        "time_min": [time_s / 60 for time_s in seconds],
        "cost_percent": [100 * one / reference.cost_usd for one in usd],
        "delay_percent": [100 * (time_s / reference.time_s - 1) for time_s in seconds],
    }


# Table I where epochs or spin-ups vary more than its calibrated scenarios say. The paper prints no variation
# of times. The scenarios have chosen coefficients of variation, 0.01 of epochs and 0.1 of spin-ups, and what
# our policies gain depends on how well a round can be foreseen. Here one of the two is raised at a time.


def varied_application(application: Application, varied: str, level: float) -> Application:
    """The application with one of its coefficients of variation (`VARIED`) at another level."""
    changes: dict[str, Any] = {varied: level}
    return dataclasses.replace(application, **changes)


def varied_contestants(application: Application, study: Study) -> list[Contestant]:
    """On demand, FedCostAware as in the paper, and our policies, whose clients begin when they are ready."""
    together = OneApplication(application)
    return [
        scheduler("on_demand", "Sync FL, on demand", together, lambda _: AlwaysOn(Market.ON_DEMAND)),
        scheduler(REFERENCES[0], "FedCostAware", together, lambda _: FedCostAware()),
        *ours(OneApplication(when_ready(application)), study.learned),
    ]


def make_sensitivity(study: Study) -> dict[str, Any]:
    """Every number of the table: `cases` in order, a data set and a variation each, and the suite."""
    suite = study.suite(EPISODES)
    cases, rows = [], []
    for name, (application, _) in data_sets().items():
        for varied in VARIED:
            for level in LEVELS:
                entrants = varied_contestants(varied_application(application, varied, level), study)
                key = f"{name} {varied} {level}"
                played = study.play(SENSITIVITY, key, entrants, suite)
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
                        "saving": means(full[REFERENCES[0]], ("saving_percent",))["saving_percent"],
                        "ours": {
                            one.name: {
                                "title": one.title,
                                **paired(full[one.name], full[REFERENCES[0]], KINDS),
                            }
                            for one in entrants
                            if one.ours
                        },
                    }
                )
    return {"suite": dataclasses.asdict(suite), "cases": cases, "episodes": rows}
