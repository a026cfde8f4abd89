"""Rules for federated tasks: what one task does, read off an observation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agents.federated.rules.always_on import AlwaysOn
from agents.federated.rules.fed_cost_aware import FedCostAware
from agents.federated.rules.round_cost import RoundCost
from agents.policy import Policy
from envs.simulation.federations.rounds.application import Market

ROUND_ENVIRONMENTS = ("federated",)
"""Environments in which these rules are compared by default."""

ROUND_RULES: Mapping[str, Callable[[], Policy]] = {
    "round_cost": RoundCost,
    "fed_cost_aware": FedCostAware,
    "always_spot": lambda: AlwaysOn(Market.SPOT),
    "always_on_demand": lambda: AlwaysOn(Market.ON_DEMAND),
}
"""Rules that only environments of federated applications know, in the order of tables."""

ROUND_RULE_SOURCES: Mapping[str, tuple[str, str]] = {
    "round_cost": ("Expected cost of rounds", "Spotweave: late starts, two epochs on one instance"),
    "fed_cost_aware": ("FedCostAware", "Sinha 2025, Listing 1"),
    "always_spot": ("Always on, spot", "Sinha 2025, Table I"),
    "always_on_demand": ("Always on, on demand", "Sinha 2025, Table I"),
}
"""Title and source of each."""
