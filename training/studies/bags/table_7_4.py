"""Table 7.4 of Teylo 2021: spot VMs that do not hibernate against on-demand VMs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs.simulation.bags.scenarios import SCENARIOS
from training.bags.simulating import execute
from training.studies.bags.chapter_7 import ENVIRONMENT, JOBS, clock, starting_plan
from training.studies.cells import table


def make() -> dict[str, Any]:
    """Both executions of each job, with the time until the VMs are ready."""
    rows = {}
    for name in JOBS:
        plan = starting_plan(name)
        launch_s = ENVIRONMENT.migration_overhead_s
        calm = SCENARIOS["none"]
        [spot] = execute(plan, ENVIRONMENT, calm, "hads", 1, launch_s)
        [on_demand] = execute(plan, ENVIRONMENT, calm, "on-demand", 1, launch_s)
        rows[name] = {
            "makespan_s": spot.makespan_s,
            "spot_usd": spot.cost_usd,
            "on_demand_usd": on_demand.cost_usd,
        }
    return {"jobs": rows}


def body(document: Mapping[str, Any]) -> str:
    """The table: in each cell what is printed, then ours."""
    header = ["job", "makespan", "ours", "spot USD", "ours", "on demand USD", "ours", "saving", "ours"]
    rows = []
    for name, ours in document["jobs"].items():
        job = JOBS[name]
        rows.append(
            [
                name,
                f"*{job.makespan}*",
                clock(ours["makespan_s"]),
                f"*{job.spot_usd:.2f}*",
                f"{ours['spot_usd']:.3f}",
                f"*{job.on_demand_usd:.2f}*",
                f"{ours['on_demand_usd']:.3f}",
                f"*{100 * (1 - job.spot_usd / job.on_demand_usd):.1f} %*",
                f"{100 * (1 - ours['spot_usd'] / ours['on_demand_usd']):.1f} %",
            ]
        )
    return table(header, rows)
