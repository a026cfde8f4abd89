"""The planners against the optimum of small workflows, and against each other on nine families."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np

from agents.workflows.annealing import plan_by_annealing
from agents.workflows.exact import plan_exactly
from agents.workflows.greedy import plan_greedily
from agents.workflows.lists import plan_by_cpop, plan_by_heft
from agents.workflows.solution import finish_s
from envs.simulation.streams import Streams, episode_sequence
from envs.simulation.workflows.draws import drawn_platform, random_workflow, scaled
from envs.simulation.workflows.families import FAMILIES, family_workflow
from envs.simulation.workflows.problem import Problem, problem_of
from training.evaluation.statistics import bootstrap_interval
from training.studies.cells import table

SEED = 0
OPTIMUM_STEPS = (6, 7, 8)
OPTIMUM_CLUSTERS = 3
OPTIMUM_DRAWS = 4
OPTIMUM_LIMIT_S = 600.0

FAMILY_STEPS = 50
FAMILY_CLUSTERS = 5
FAMILY_DRAWS = 10
RATIOS = (0.1, 1.0, 5.0)
"""Of communication to computation, over the range of Topcuoglu, Hariri and Wu 2002."""
MEAN_RUN_S = 60.0
COMPARED = ("annealing", "greedy", "cpop")


def _draws(index: int) -> np.random.Generator:
    """What test episode `index` is drawn from; the annealing's settings were chosen on other numbers."""
    return Streams(episode_sequence(SEED, "test", index)).generator("job_sizes")


def _finishes_s(problem: Problem, seed: int) -> dict[str, float]:
    return {
        "heft": finish_s(problem, plan_by_heft(problem)),
        "annealing": finish_s(problem, plan_by_annealing(problem, seed)),
        "greedy": finish_s(problem, plan_greedily(problem)),
        "cpop": finish_s(problem, plan_by_cpop(problem)),
    }


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
    """How much longer each planner's schedules are."""
    cells = []
    for name in ("annealing", "heft", "cpop", "greedy"):
        gaps = [100 * (row[name] / row["optimum_s"] - 1) for row in document["rows"]]
        found = sum(gap < 1e-4 for gap in gaps)
        cells.append([name, f"{fmean(gaps):.2f} %", f"{max(gaps):.2f} %", f"{found} of {len(gaps)}"])
    return table(["planner", "longer than the optimum, mean", "most", "optimum found"], cells)


def make_families() -> dict[str, Any]:
    """Ten workflows of each family and ratio, each on clusters of its own: finish by planner."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for place, name in enumerate(FAMILIES):
        found[name] = {}
        for ratio in RATIOS:
            found[name][str(ratio)] = []
            for number in range(FAMILY_DRAWS):
                random = _draws(1_000 * (place + 1) + number)
                platform = drawn_platform(FAMILY_CLUSTERS, random)
                drawn = family_workflow(name, FAMILY_STEPS, random, "cluster-1")
                problem = problem_of(scaled(drawn, platform, MEAN_RUN_S, ratio), platform)
                found[name][str(ratio)].append(_finishes_s(problem, number))
    return {"families": found}


def families_body(document: Mapping[str, Any]) -> str:
    """Finish against HEFT by family and ratio; below, the means of all with their intervals."""
    families, rows = document["families"], []
    for name, by_ratio in families.items():
        rows.append(
            [name, *(f"{_mean_change(by_ratio[str(ratio)], 'annealing'):+.1f} %" for ratio in RATIOS)]
        )
    rows.append(
        [
            "**all**",
            *(
                _interval([run for by in families.values() for run in by[str(ratio)]], "annealing")
                for ratio in RATIOS
            ),
        ]
    )
    header = ["annealing against HEFT", *(f"ratio {ratio:g}" for ratio in RATIOS)]
    every = [run for by in families.values() for runs in by.values() for run in runs]
    others = table(
        ["all families and ratios, against HEFT", "finish"],
        [[name, _interval(every, name)] for name in COMPARED],
    )
    return table(header, rows) + "\n\n" + others


def _changes(runs: list[dict[str, float]], name: str) -> list[float]:
    return [100 * (run[name] / run["heft"] - 1) for run in runs]


def _mean_change(runs: list[dict[str, float]], name: str) -> float:
    return fmean(_changes(runs, name))


def _interval(runs: list[dict[str, float]], name: str) -> str:
    interval = bootstrap_interval(_changes(runs, name))
    return f"{_mean_change(runs, name):+.1f} % [{interval.low:+.1f}, {interval.high:+.1f}]"
