"""Table 9.6 of Teylo 2021: Burst-HADS against HADS in five scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from envs.simulation.bags.scenarios import SCENARIOS
from training.bags.simulating import execute
from training.studies.bags.chapter_9 import ENVIRONMENT, JOBS, SEEDS, plans_of
from training.studies.cells import table
from training.studies.federated.playing import paired

Cell = Mapping[str, Any]


def make() -> dict[str, Any]:
    """All jobs and scenarios; both schedulers meet the same worlds."""
    launch_s = ENVIRONMENT.migration_overhead_s
    jobs = {}
    for name in JOBS:
        plans, cells = plans_of(name), {}
        for number in range(1, 6):
            scenario = SCENARIOS[f"s_{number}"]
            burst = execute(plans.burst, ENVIRONMENT, scenario, "burst-hads", SEEDS, launch_s)
            hads = execute(plans.hads, ENVIRONMENT, scenario, "hads", SEEDS, launch_s)
            columns = [
                {
                    "cost_usd": [outcome.cost_usd for outcome in outcomes],
                    "makespan_s": [outcome.makespan_s for outcome in outcomes],
                }
                for outcomes in (hads, burst)
            ]
            less = paired(columns[1], columns[0], {"cost_usd": "percent", "makespan_s": "percent"})
            cells[scenario.name] = {
                "burst": {metric: fmean(values) for metric, values in columns[1].items()},
                "hads": {metric: fmean(values) for metric, values in columns[0].items()},
                "less": less,
                "missed": sum(outcome.missed for outcome in (*burst, *hads)),
            }
        jobs[name] = cells
    return {"seeds": SEEDS, "jobs": jobs}


def body(document: Mapping[str, Any]) -> str:
    """The table, and below it the mean over all rows that section 9.4 speaks of."""
    header = [
        "job, scenario",
        "Burst-HADS USD",
        "ours",
        "HADS USD",
        "ours",
        "Burst-HADS s",
        "ours",
        "HADS s",
        "ours",
        "shorter",
        "ours",
        "missed",
    ]
    rows, shorter = [], []
    for name, cells in document["jobs"].items():
        for (scenario, cell), (burst, hads) in zip(cells.items(), JOBS[name].scenarios, strict=True):
            saved = cell["less"]["makespan_s"]
            shorter.append((100 * (1 - burst.makespan_s / hads.makespan_s), -saved["mean"]))
            rows.append(
                [
                    f"{name} {scenario}",
                    f"*{burst.usd:.3f}*",
                    f"{cell['burst']['cost_usd']:.3f}",
                    f"*{hads.usd:.3f}*",
                    f"{cell['hads']['cost_usd']:.3f}",
                    f"*{burst.makespan_s:.0f}*",
                    f"{cell['burst']['makespan_s']:.0f}",
                    f"*{hads.makespan_s:.0f}*",
                    f"{cell['hads']['makespan_s']:.0f}",
                    f"*{shorter[-1][0]:.1f} %*",
                    _shorter(saved),
                    str(cell["missed"]),
                ]
            )
    published, ours = (fmean(values) for values in zip(*shorter, strict=True))
    return (
        table(header, rows)
        + f"\n\nMean over all rows: Burst-HADS is *{published:.2f} %* shorter in the print, "
        + f"{ours:.2f} % here."
    )


def _shorter(change: Cell) -> str:
    low, high = change["interval"]
    return f"{-change['mean']:.1f} % [{-high:.1f}, {-low:.1f}]"
