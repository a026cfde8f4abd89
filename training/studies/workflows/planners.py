"""The planners against the optimum of small workflows, and against each other on nine families."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np

from agents.workflows.annealing import plan_by_annealing, plan_greedily
from agents.workflows.exact import plan_exactly
from agents.workflows.lists import plan_by_cpop, plan_by_heft
from agents.workflows.solution import finish_s
from envs.simulation.streams import Streams, episode_sequence
from envs.simulation.workflows.families import (
    FAMILIES,
    drawn_platform,
    family_workflow,
    random_workflow,
    scaled,
)
from envs.simulation.workflows.problem import Problem, problem_of
from training.evaluation.statistics import bootstrap_interval
from training.studies.cells import interval_cell, table
from training.studies.workflows.bound import lower_bound_s

SEED = 0
OPTIMUM_STEPS = (6, 7, 8)
OPTIMUM_CLUSTERS = 3
OPTIMUM_DRAWS = 4
OPTIMUM_LIMIT_S = 600.0

FAMILY_STEPS = 50
FAMILY_CLUSTERS = 5
FAMILY_DRAWS = 4
RATIOS = (0.1, 1.0, 5.0)
"""Ratios of communication to computation, over the range of Topcuoglu, Hariri and Wu 2002."""
MEAN_RUN_S = 60.0
COMPARED = ("annealing", "greedy", "cpop")
INPUTS = {"every": "inputs at every cluster", "one": "inputs at one cluster"}


def _draws(index: int) -> np.random.Generator:
    """What test episode `index` is drawn from; the annealing's settings were chosen on other numbers."""
    return Streams(episode_sequence(SEED, "test", index)).generator("job_sizes")


def _finishes_s(problem: Problem, seed: int) -> dict[str, float]:
    plans = {
        "heft": plan_by_heft(problem),
        "annealing": plan_by_annealing(problem, seed),
        "greedy": plan_greedily(problem),
        "cpop": plan_by_cpop(problem),
    }
    return {name: finish_s(problem, plan) for name, plan in plans.items()}


def make_optimum() -> dict[str, Any]:
    """Random graphs of 6 to 8 steps on three clusters: every planner and the optimum."""
    rows = []
    for number in range(OPTIMUM_DRAWS * len(OPTIMUM_STEPS)):
        steps = OPTIMUM_STEPS[number % len(OPTIMUM_STEPS)]
        random = _draws(number)
        platform = drawn_platform(OPTIMUM_CLUSTERS, random)
        problem = problem_of(random_workflow(steps, random, "cluster-1"), platform)
        optimum_s = finish_s(problem, plan_exactly(problem, OPTIMUM_LIMIT_S))
        rows.append({"steps": steps, "optimum_s": optimum_s, **_finishes_s(problem, number)})
    return {"rows": rows}


def optimum_body(document: Mapping[str, Any]) -> str:
    """Table of the excess length of each planner's schedules."""
    cells = []
    for name in ("annealing", "heft", "cpop", "greedy"):
        gaps = [100 * (row[name] / row["optimum_s"] - 1) for row in document["rows"]]
        found = sum(gap < 1e-4 for gap in gaps)
        cells.append([name, f"{fmean(gaps):.2f} %", f"{max(gaps):.2f} %", f"{found} of {len(gaps)}"])
    return table(["planner", "longer than the optimum, mean", "most", "optimum found"], cells)


def make_families() -> dict[str, Any]:
    """Four workflows of each family and ratio, each on clusters of its own: finish by planner, and bound."""
    found: dict[str, dict[str, dict[str, list[dict[str, float]]]]] = {}
    for inputs in INPUTS:
        for place, name in enumerate(FAMILIES):
            for ratio in RATIOS:
                runs = found.setdefault(inputs, {}).setdefault(name, {}).setdefault(str(ratio), [])
                for number in range(FAMILY_DRAWS):
                    problem = family_problem(name, inputs, ratio, _draws(1_000 * (place + 1) + number))
                    finishes_s = _finishes_s(problem, number)
                    bound_s = lower_bound_s(problem, min(finishes_s.values()))
                    runs.append({**finishes_s, "bound": bound_s})
    return {"families": found}


def family_problem(name: str, inputs: str, ratio: float, random: np.random.Generator) -> Problem:
    """A workflow of a family on random clusters, its inputs at every cluster or at one."""
    platform = drawn_platform(FAMILY_CLUSTERS, random)
    names = tuple(cluster.name for cluster in platform.clusters)
    drawn = family_workflow(name, FAMILY_STEPS, random, names if inputs == "every" else names[:1])
    return problem_of(scaled(drawn, platform, MEAN_RUN_S, ratio), platform)


def families_body(document: Mapping[str, Any]) -> str:
    """Finish against HEFT by family and ratio; then the means of all with their intervals."""
    blocks = []
    for inputs, families in document["families"].items():
        rows = []
        for name, by_ratio in families.items():
            cells = [name]
            for ratio in RATIOS:
                runs = by_ratio[str(ratio)]
                cells += [f"{_mean_change(runs, who):+.1f} %" for who in ("annealing", "bound")]
            rows.append(cells)
        last = ["**all**"]
        for ratio in RATIOS:
            runs = [run for by_ratio in families.values() for run in by_ratio[str(ratio)]]
            last += [_interval(runs, "annealing"), f"{_mean_change(runs, 'bound'):+.1f} %"]
        header = [f"{INPUTS[inputs]}, against HEFT"]
        for ratio in RATIOS:
            header += [f"ratio {ratio:g}: annealing", "bound"]
        every = [run for by_ratio in families.values() for runs in by_ratio.values() for run in runs]
        others = [[name, _interval(every, name)] for name in COMPARED]
        blocks += [table(header, [*rows, last]), table(["all of them, against HEFT", "finish"], others)]
    return "\n\n".join(blocks)


def _changes(runs: list[dict[str, float]], name: str) -> list[float]:
    return [100 * (run[name] / run["heft"] - 1) for run in runs]


def _mean_change(runs: list[dict[str, float]], name: str) -> float:
    return fmean(_changes(runs, name))


def _interval(runs: list[dict[str, float]], name: str) -> str:
    interval = bootstrap_interval(_changes(runs, name))
    return interval_cell({"mean": _mean_change(runs, name), "interval": (interval.low, interval.high)})
