"""Sinha 2025, Figures 4 and 5: what each client does when, and what it has cost after each round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from agents.federated.rules.always_on import AlwaysOn
from agents.federated.rules.fed_cost_aware import FedCostAware
from agents.federated.schedulers.observing import Observing
from agents.named import named_rule
from envs.simulation.federations.episodes.world import OneApplication
from envs.simulation.federations.rounds.application import Market
from envs.simulation.federations.rounds.history import Outcome
from envs.simulation.federations.rounds.world import play
from envs.simulation.streams import episode_sequence
from training.federated.rounds_results import costs_figure, states_figure
from training.studies.federated.playing import LEARNED, ROUND_COST, Study
from training.studies.federated.table_one import data_sets, when_ready
from training.studies.figures.canvas import png

DATA_SET = "fed-isic2019"
STATES, COSTS = "figure_4", "figure_5"
DPI = 80
TITLES = {
    "spot": "Sync FL on spot instances",
    "fed_cost_aware": "FedCostAware",
    "ours": "Spotweave",
}


def outcomes(study: Study) -> dict[str, Outcome]:
    """The first test episode of the data set under the two published policies and ours."""
    application, _ = data_sets()[DATA_SET]
    suite = study.suite(1)
    key = suite.episode_keys()[0]
    root = episode_sequence(key.seed, key.split, key.index)
    ready = when_ready(application)
    ours = named_rule(ROUND_COST) if study.learned is None else study.learned.load(OneApplication(ready))
    found = {
        "spot": play(application, AlwaysOn(Market.SPOT), root),
        "fed_cost_aware": play(application, FedCostAware(), root),
        "ours": play(ready, Observing(ours), root),
    }
    for name, outcome in found.items():
        outcome.policy = TITLES[name]
    return found


def make_states(study: Study) -> dict[str, Any]:
    """Figure 4: pictures by file, and seconds in each state."""
    return _document(study, STATES, states_figure)


def make_costs(study: Study) -> dict[str, Any]:
    """Figure 5, all on one scale."""
    return _document(study, COSTS, costs_figure)


def _document(study: Study, name: str, draw: Callable[[Outcome], Figure]) -> dict[str, Any]:
    played = outcomes(study)
    figures = {policy: draw(outcome) for policy, outcome in played.items()}
    if name == COSTS:
        top = max(figure.axes[0].get_ylim()[1] for figure in figures.values())
        for figure in figures.values():
            figure.axes[0].set_ylim(0, top)
    else:
        last = max(outcome.time_s for outcome in played.values()) / 60
        for figure in figures.values():
            figure.axes[0].set_xlim(0, last)
    rule = ROUND_COST if study.learned is None else LEARNED
    return {
        "ours": rule,
        "policies": {
            policy: {
                "title": TITLES[policy],
                "file": f"{name}_{policy}.png",
                "cost_usd": outcome.cost_usd,
                "time_min": outcome.time_s / 60,
                "instances": len(outcome.bills),
            }
            for policy, outcome in played.items()
        },
        "pictures": {f"{name}_{policy}.png": png(figure, DPI) for policy, figure in figures.items()},
    }
