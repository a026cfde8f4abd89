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


def scheduler_named(name: str) -> BagScheduler:
    """A new scheduler. Raises BagError naming those there are."""
    if name not in SCHEDULERS:
        raise BagError(f"there is no scheduler {name!r}: expected one of {', '.join(SCHEDULERS)}")
    return SCHEDULERS[name]()
