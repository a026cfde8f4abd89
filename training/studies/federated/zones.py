"""Applications on recorded zones: prices and availability of AWS on the test days."""

from __future__ import annotations

import dataclasses
from typing import Any

from agents.federated.rules.fed_cost_aware import FedCostAware
from agents.federated.schedulers.multi_fedls import ZoneScheduler
from envs.federated_episodes import FederatedConfig, federated_source
from envs.simulation.federations.episodes.world import ApplicationSource
from training.studies.federated import playing

SECTION = "table_zones"
EPISODES = 100
CASE = "zones"
REFERENCES = ("fed_cost_aware", "multi_fedls", "fed_cost_aware_rule")
KINDS: dict[str, playing.Kind] = {"cost_percent": "difference", "delay_percent": "difference"}


def source() -> ApplicationSource:
    """Drawn applications on the recorded market, as `+env=federated env.market=zones` plays them."""
    return federated_source(FederatedConfig(market="zones"))


def contestants(study: playing.Study) -> list[playing.Contestant]:
    """The rows."""
    drawn = source()
    return [
        playing.rule("always_on_demand", "Always on, on demand", drawn),
        playing.rule("always_spot", "Always on, spot (on demand where there is none)", drawn),
        playing.scheduler("multi_fedls", "Multi-FedLS on zones", drawn, lambda _: ZoneScheduler()),
        playing.scheduler(
            "fed_cost_aware", "FedCostAware", drawn, lambda _: FedCostAware(whole_round_budget=True)
        ),
        dataclasses.replace(
            # The environment's rule has the scheduler's name.
            playing.rule("fed_cost_aware", "FedCostAware at the environment's moments", drawn),
            name="fed_cost_aware_rule",
        ),
        *playing.ours(drawn, study.learned),
    ]


def make(study: playing.Study) -> dict[str, Any]:
    """Every number of the table; `totals` are sums over the episodes."""
    suite = study.suite(EPISODES)
    entrants = contestants(study)
    played = study.play(SECTION, CASE, entrants, suite)
    policies: dict[str, Any] = {}
    for one in entrants:
        policies[one.name] = {
            "title": one.title,
            "ours": one.ours,
            "means": playing.means(played[one.name], playing.METRICS),
            "totals": {
                metric: sum(played[one.name][metric])
                for metric in ("budgets_exceeded", "rounds_lost", "work_lost", "left")
            },
            "against": {
                other: playing.paired(played[one.name], played[other], KINDS)
                for other in REFERENCES
                if one.ours
            },
        }
    return {
        "suite": dataclasses.asdict(suite),
        "policies": policies,
        "episodes": [(CASE, name, episodes) for name, episodes in played.items()],
    }
