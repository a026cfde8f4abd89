"""The policies that `spotweave simulate-fl` plays by name, and what its scenarios are asked and report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from agents.federated.rules.always_on import AlwaysOn
from agents.federated.rules.fed_cost_aware import FedCostAware
from envs.federated_data.multi_fedls_scenarios import MultiFedlsScenario
from envs.simulation.federations.rounds.application import Application, Market
from envs.simulation.federations.rounds.decisions import RoundScheduler
from envs.simulation.federations.rounds.history import Outcome

ROUND_POLICIES: dict[str, Callable[[], RoundScheduler]] = {
    "fed_cost_aware": FedCostAware,
    "spot": lambda: AlwaysOn(Market.SPOT),
    "on_demand": lambda: AlwaysOn(Market.ON_DEMAND),
}
"""What --policy may name in scenarios of kind "rounds", in the order of the table."""

MOVE_FACTOR = 1.5
"""`multi_fedls_moving` moves tasks whose VM type or link is slower than expected by more than this factor."""

MULTI_FEDLS_POLICIES: dict[str, dict[str, Any]] = {
    f"multi_fedls{successor}{markets}": {
        "server_market": Market.ON_DEMAND if markets == "_server_on_demand" else Market.SPOT,
        "client_market": Market.ON_DEMAND if markets == "_clients_on_demand" else Market.SPOT,
        "exclude_revoked": not successor,
    }
    for successor, markets in product(("", "_same_type"), ("", "_server_on_demand", "_clients_on_demand"))
} | {
    "multi_fedls_moving": {"move_factor": MOVE_FACTOR},
    "on_demand": {"server_market": Market.ON_DEMAND, "client_market": Market.ON_DEMAND},
}
"""What --policy may name in scenarios of kind "multi_fedls", with the options of `MultiFedLS`."""

REFERENCE = "on_demand"
"""Savings are against this policy."""


@dataclasses.dataclass(frozen=True)
class Request:
    """What the command was asked for.

    Attributes:
        content: the scenario, parsed.
        where: its file, for messages.
        policies: names; empty for all that the scenario allows.
        seed: of everything random.
        out: directory of the results; None to write nothing.
    """

    content: Mapping[str, Any]
    where: str
    policies: tuple[str, ...]
    seed: int
    out: Path | None


@dataclasses.dataclass(frozen=True)
class Report:
    """What is printed: a heading, column names, rows, and lines below."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: list[str]


def played_application(scenario: MultiFedlsScenario, policy: str) -> Application:
    """What a policy plays: all tasks on demand lose no VM, so they keep no checkpoints."""
    calm = policy == REFERENCE and not scenario.deployment.conditions.interruptions
    return scenario.unchecked if calm else scenario.deployment.application


def clock(seconds: int) -> str:
    """Seconds as H:MM:SS."""
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def savings_percent(outcome: Outcome, reference: Outcome) -> float:
    """How much less an outcome costs than the reference, in per cent; 0 where both are free."""
    return 100 * (1 - outcome.cost_usd / reference.cost_usd) if reference.cost_usd else 0.0
