"""Schedulers of bags by name."""

from __future__ import annotations

from collections.abc import Callable

from agents.bags.schedulers.burst_hads import BurstHads
from agents.bags.schedulers.hads import Hads
from agents.bags.schedulers.on_demand import OnDemand
from envs.simulation.bags.decisions import BagScheduler
from envs.simulation.bags.errors import BagError

SCHEDULERS: dict[str, Callable[[], BagScheduler]] = {
    "hads": Hads,
    "burst-hads": BurstHads,
    "on-demand": OnDemand,
}

POLICIES = ("bag_cost", "mtdqn")
"""Policies that carry out bags: a rule, and the released policy of the agent `mtdqn`."""

SCHEDULER_SOURCES = {
    "hads": ("HADS", "Teylo 2021, Algorithms 4 to 8"),
    "burst-hads": ("Burst-HADS", "Teylo 2021, Algorithms 11 and 12"),
    "on-demand": ("On-demand VMs only", "Teylo 2021, section 7.2"),
    "bag_cost": ("Expected cost of a bag's tasks", "Spotweave, docs/bag-plans.md"),
}
"""Title and source of each."""


def scheduler_named(name: str) -> BagScheduler:
    """A new scheduler. Raises BagError naming those there are."""
    if name not in SCHEDULERS:
        raise BagError(
            f"there is no scheduler {name!r}: expected one of {', '.join((*SCHEDULERS, *POLICIES))}"
        )
    return SCHEDULERS[name]()
