"""How good the local search plans: Tables 9.3 and 9.4 of Teylo 2021. Planning only; nothing is executed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from spotweave.agents.bags.exact import objective, plan_exactly
from spotweave.agents.bags.heuristics import plan_greedily, plan_max_min, plan_min_min
from spotweave.agents.bags.ils import plan_by_search
from spotweave.envs.simulation.bags.cases import uniform_job
from spotweave.envs.simulation.bags.model import TABLE_9_1, Bag, BagError, Environment
from spotweave.envs.simulation.bags.plan import Plan
from spotweave.training.studies.bags import PRINTED
from spotweave.training.studies.cells import table

Published = Mapping[int, Mapping[str, Sequence[float]]]
DEADLINE_S = 900.0
SEARCH_SEEDS = (0, 1, 2)
EXACT_LIMIT_S = 300.0
EXACT_TASKS = 20  # the exact model is not tried with more: it took hours in the print
SPOT_TYPES = tuple(vm_type for vm_type in TABLE_9_1 if not vm_type.burstable)

PUBLISHED_9_3: Published = {int(tasks): row for tasks, row in PRINTED["table_9_3"].items()}
"""Makespan in s, USD, solver time in s, by the number of tasks."""
PUBLISHED_9_4: Published = {int(tasks): row for tasks, row in PRINTED["table_9_4"].items()}
"""Makespan in s and USD, by the number of tasks."""
TITLES = {"ils": "ILS", "exact": "exact", "minmin": "MinMin", "maxmin": "MaxMin", "greedy": "Greedy"}


def in_whole_seconds(bag: Bag, environment: Environment) -> Bag:
    """The bag with run times at which tasks with checkpoints take whole seconds, as the model counts."""
    longer = 1 + environment.checkpoint_overhead
    return replace(
        bag,
        tasks=tuple(
            replace(
                task,
                runtime_s={
                    name: math.ceil(runtime_s * longer - 1e-9) / longer
                    for name, runtime_s in task.runtime_s.items()
                },
            )
            for task in bag.tasks
        ),
    )


def make_table_9_3() -> dict[str, Any]:
    """ILS (mean of three seeds) and the exact model, 5 to 30 tasks of 5 to 15 s."""
    environment = Environment(SPOT_TYPES)
    rows = {}
    for tasks in PUBLISHED_9_3:
        bag = in_whole_seconds(uniform_job(tasks, 5, 15, SPOT_TYPES), environment)
        rows[str(tasks)] = {
            "ils": _searched(bag, environment),
            "exact": _solved(bag, environment) if tasks <= EXACT_TASKS else None,
        }
    return {"rows": rows, "exact_limit_s": EXACT_LIMIT_S, "exact_tasks": EXACT_TASKS}


def make_table_9_4() -> dict[str, Any]:
    """ILS (mean of three seeds), MinMin, MaxMin and Greedy, 50 to 300 tasks of 15 to 35 s."""
    environment = Environment(SPOT_TYPES)
    rows = {}
    for tasks in PUBLISHED_9_4:
        bag = uniform_job(tasks, 15, 35, SPOT_TYPES)
        # Their published makespans are near D = 900 s, which is after any D_spot.
        plans = {
            "minmin": plan_min_min(bag, environment, DEADLINE_S, DEADLINE_S),
            "maxmin": plan_max_min(bag, environment, DEADLINE_S, DEADLINE_S),
            "greedy": plan_greedily(bag, environment, DEADLINE_S, DEADLINE_S),
        }
        rows[str(tasks)] = {
            "ils": _searched(bag, environment),
            **{name: _figures(plan) for name, plan in plans.items()},
        }
    return {"rows": rows}


def table_9_3_body(document: Mapping[str, Any]) -> str:
    """Ours beside the print, and how far the search is from the optimum."""
    header = ["tasks"]
    for name in ("ILS", "exact"):
        header += [f"{name}: s", "*printed*", "USD", "*printed*", "solved in s", "*printed*"]
    rows = []
    for tasks, published in PUBLISHED_9_3.items():
        found = document["rows"][str(tasks)]
        cells = [str(tasks)]
        for name in ("ils", "exact"):
            cells += _cells(found[name], published[name][:2])
            seconds = found[name] and f"{found[name]['solved_s']:.2f}"
            late = "not tried" if tasks > document["exact_tasks"] else f"not in {document['exact_limit_s']:g}"
            cells += [seconds or late, f"*{published[name][2]:g}*"]
        ils, exact = found["ils"], found["exact"]
        gap = "" if exact is None else f"{100 * (ils['objective'] / exact['objective'] - 1):.1f} %"
        rows.append([*cells, gap])
    return table([*header, "ILS above the optimum of Eq. 8.1"], rows)


def table_9_4_body(document: Mapping[str, Any]) -> str:
    """Ours beside the print, and the means that the text tells."""
    header = ["tasks"]
    for name in ("ils", "minmin", "maxmin", "greedy"):
        header += [f"{TITLES[name]}: s", "*printed*", "USD", "*printed*"]
    rows = []
    for tasks, published in PUBLISHED_9_4.items():
        found = document["rows"][str(tasks)]
        cells = [str(tasks)]
        for name, figures in published.items():
            cells += _cells(found[name], figures)
        rows.append(cells)
    return "\n\n".join([table(header, rows), _against(document)])


def _against(document: Mapping[str, Any]) -> str:
    rows = []
    for name in ("minmin", "maxmin", "greedy"):
        cells = [f"ILS against {TITLES[name]}"]
        for k, key in enumerate(("makespan_s", "cost_usd")):
            ours = fmean(row["ils"][key] / row[name][key] - 1 for row in document["rows"].values())
            printed = fmean(row["ils"][k] / row[name][k] - 1 for row in PUBLISHED_9_4.values())
            cells += [f"{100 * ours:+.1f} %", f"*{100 * printed:+.1f} %*"]
        rows.append(cells)
    return table(["mean of the sizes", "makespan", "*printed*", "cost", "*printed*"], rows)


def _cells(found: Mapping[str, float] | None, published: Sequence[float]) -> list[str]:
    ours = ["", ""] if found is None else [f"{found['makespan_s']:.0f}", f"{found['cost_usd']:.4f}"]
    return [ours[0], f"*{published[0]}*", ours[1], f"*{published[1]:.4f}*"]


def _figures(plan: Plan) -> dict[str, float]:
    return {"makespan_s": plan.makespan_s, "cost_usd": plan.cost_usd}


def _searched(bag: Bag, environment: Environment) -> dict[str, float]:
    plan_by_search(bag, environment, DEADLINE_S)  # compiles, and is not timed
    began = time.perf_counter()
    plans = [plan_by_search(bag, environment, DEADLINE_S, seed) for seed in SEARCH_SEEDS]
    solved_s = (time.perf_counter() - began) / len(SEARCH_SEEDS)
    return {
        "makespan_s": fmean(plan.makespan_s for plan in plans),
        "cost_usd": fmean(plan.cost_usd for plan in plans),
        "objective": fmean(objective(plan, environment) for plan in plans),
        "solved_s": solved_s,
    }


def _solved(bag: Bag, environment: Environment) -> dict[str, float] | None:
    """The optimum; None where it is not proved in time."""
    began = time.perf_counter()
    try:
        plan = plan_exactly(bag, environment, DEADLINE_S, time_limit_s=EXACT_LIMIT_S)
    except BagError:
        return None
    solved_s = time.perf_counter() - began
    return {**_figures(plan), "objective": objective(plan, environment), "solved_s": solved_s}
