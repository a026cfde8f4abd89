"""Table 9.5 of Teylo 2021: Burst-HADS, HADS and the search's plan on demand, without hibernation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs.simulation.bags.plan import Plan
from envs.simulation.bags.scenarios import SCENARIOS
from training.bags.simulating import execute
from training.studies.bags.chapter_9 import ENVIRONMENT, JOBS, plans_of
from training.studies.cells import table

NAMES = {"burst": "Burst-HADS", "hads": "HADS", "on_demand": "ILS on demand"}


def make() -> dict[str, Any]:
    """One execution of each, with the time until the VMs are ready."""
    jobs = {}
    for name in JOBS:
        plans = plans_of(name)
        jobs[name] = {
            "burst": _calm(plans.burst, "burst-hads"),
            "hads": _calm(plans.hads, "hads"),
            "on_demand": _calm(plans.search, "on-demand"),
        }
    return {"jobs": jobs}


def _calm(plan: Plan, scheduler: str) -> dict[str, float]:
    launch_s = ENVIRONMENT.migration_overhead_s
    [outcome] = execute(plan, ENVIRONMENT, SCENARIOS["none"], scheduler, 1, launch_s)
    return {"usd": outcome.cost_usd, "makespan_s": outcome.makespan_s}


def body(document: Mapping[str, Any]) -> str:
    """The table: what is printed, then ours."""
    header = ["job", *(cell for name in NAMES.values() for cell in (f"{name} USD", "ours", "s", "ours"))]
    rows = []
    for name, ours in document["jobs"].items():
        cells = [name]
        for key in NAMES:
            published = getattr(JOBS[name], key)
            cells += [f"*{published.usd:.3f}*", f"{ours[key]['usd']:.3f}"]
            cells += [f"*{published.makespan_s:.0f}*", f"{ours[key]['makespan_s']:.0f}"]
        rows.append(cells)
    return table(header, rows)
