"""Tables 9.5 and 9.6 of Teylo 2021: Burst-HADS against HADS, without and with hibernation."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any, NamedTuple

from spotweave.agents.bags.heuristics import plan_primarily
from spotweave.agents.bags.ils import plan_by_search, plan_with_bursts
from spotweave.envs.simulation.bags.cases import SCENARIOS, published_job
from spotweave.envs.simulation.bags.model import TABLE_9_1, Environment
from spotweave.envs.simulation.bags.plan import Plan
from spotweave.training.bags import execute
from spotweave.training.studies.bags import PRINTED
from spotweave.training.studies.cells import Columns, columns_table, interval_cell, table
from spotweave.training.studies.federated.playing import paired

ENVIRONMENT = Environment(TABLE_9_1)
DEADLINE_S = 2700.0
SEEDS = 30
JOBS: Mapping[str, Mapping[str, tuple[float, float]]] = PRINTED["table_9_5"]
"""USD and makespan without hibernation, by job and by what NAMES has."""
NAMES = {"burst": "Burst-HADS", "hads": "HADS", "on_demand": "ILS on demand"}

COLUMNS_9_6: Columns = (
    ("job, scenario", "{name}"),
    ("Burst-HADS USD", "*{print[0]:.3f}*"),
    ("ours", "{burst[cost_usd]:.3f}"),
    ("HADS USD", "*{print[2]:.3f}*"),
    ("ours", "{hads[cost_usd]:.3f}"),
    ("Burst-HADS s", "*{print[1]:.0f}*"),
    ("ours", "{burst[makespan_s]:.0f}"),
    ("HADS s", "*{print[3]:.0f}*"),
    ("ours", "{hads[makespan_s]:.0f}"),
    ("shorter", "*{printed_shorter:.1f} %*"),
    ("ours", "{shorter}"),
    ("missed", "{missed}"),
)


class Plans(NamedTuple):
    """The primary scheduling maps of a job."""

    burst: Plan
    hads: Plan
    search: Plan


def plans_of(name: str) -> Plans:
    """Plans of Burst-HADS, of HADS, and of the search alone, which on-demand VMs then carry out."""
    bag = published_job(name, TABLE_9_1)
    return Plans(
        plan_with_bursts(bag, ENVIRONMENT, DEADLINE_S),
        plan_primarily(bag, ENVIRONMENT, DEADLINE_S),
        plan_by_search(bag, ENVIRONMENT, DEADLINE_S),
    )


def make_table_9_5() -> dict[str, Any]:
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


def table_9_5_body(document: Mapping[str, Any]) -> str:
    """The table: what is printed, then ours."""
    header = ["job", *(cell for name in NAMES.values() for cell in (f"{name} USD", "ours", "s", "ours"))]
    rows = []
    for name, ours in document["jobs"].items():
        cells = [name]
        for key in NAMES:
            usd, makespan_s = JOBS[name][key]
            cells += [f"*{usd:.3f}*", f"{ours[key]['usd']:.3f}"]
            cells += [f"*{makespan_s:.0f}*", f"{ours[key]['makespan_s']:.0f}"]
        rows.append(cells)
    return table(header, rows)


def make_table_9_6() -> dict[str, Any]:
    """All jobs and scenarios; both schedulers meet the same worlds."""
    launch_s = ENVIRONMENT.migration_overhead_s
    jobs = {}
    for name in JOBS:
        plans, cells = plans_of(name), {}
        for number in range(1, 6):
            scenario = SCENARIOS[f"s_{number}"]
            burst = execute(plans.burst, ENVIRONMENT, scenario, "burst-hads", SEEDS, launch_s)
            hads = execute(plans.hads, ENVIRONMENT, scenario, "hads", SEEDS, launch_s)
            ours, theirs = (
                {metric: [getattr(one, metric) for one in outcomes] for metric in ("cost_usd", "makespan_s")}
                for outcomes in (burst, hads)
            )
            cells[scenario.name] = {
                "burst": {metric: fmean(values) for metric, values in ours.items()},
                "hads": {metric: fmean(values) for metric, values in theirs.items()},
                "less": paired(ours, theirs, {"cost_usd": "percent", "makespan_s": "percent"}),
                "missed": sum(outcome.missed for outcome in (*burst, *hads)),
            }
        jobs[name] = cells
    return {"seeds": SEEDS, "jobs": jobs}


def table_9_6_body(document: Mapping[str, Any]) -> str:
    """The table, and below it the mean over all rows that section 9.4 speaks of."""
    rows: list[dict[str, Any]] = []
    for job, cells in document["jobs"].items():
        for (scenario, cell), printed in zip(cells.items(), PRINTED["table_9_6"][job], strict=True):
            low, high = cell["less"]["makespan_s"]["interval"]
            less = {"mean": -cell["less"]["makespan_s"]["mean"], "interval": [-high, -low]}
            rows.append(
                {
                    **cell,
                    "name": f"{job} {scenario}",
                    "print": printed,
                    "printed_shorter": 100 * (1 - printed[1] / printed[3]),
                    "shorter": interval_cell(less, ".1f"),
                    "mean": less["mean"],
                }
            )
    published, ours = (fmean(row[key] for row in rows) for key in ("printed_shorter", "mean"))
    return (
        columns_table(COLUMNS_9_6, rows)
        + f"\n\nMean over all rows: Burst-HADS is *{published:.2f} %* shorter in the print, "
        + f"{ours:.2f} % here."
    )
