"""The planners against the optimum of small workflows, and against each other on nine families."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np
from scipy.optimize import linprog

from spotweave.agents.workflows.annealing import plan_by_annealing, plan_greedily
from spotweave.agents.workflows.exact import plan_exactly
from spotweave.agents.workflows.lists import plan_by_cpop, plan_by_heft
from spotweave.agents.workflows.solution import finish_s
from spotweave.envs.simulation.series import Bools, Floats
from spotweave.envs.simulation.streams import Streams, episode_sequence
from spotweave.envs.simulation.workflows.families import (
    FAMILIES,
    drawn_platform,
    family_workflow,
    random_workflow,
    scaled,
)
from spotweave.envs.simulation.workflows.problem import Problem, problem_of
from spotweave.training.evaluation.statistics import estimate
from spotweave.training.studies.cells import interval_cell, table

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
    return interval_cell(estimate(_changes(runs, name)))


# Lower bound of the makespan of a workflow.


PRECISION = 4e-3  # share of the known finish to which the bound is found
ROUNDING = 1e-9  # shorter than a known schedule by less than this share is not shorter
LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)  # quantiles of starts and tails at which work is counted
_INFEASIBLE = 2


def lower_bound_s(problem: Problem, known_s: float) -> float:
    """Seconds that every schedule takes, at most `known_s`.

    For each cluster on which the step with most neighbours may run, the shortest finish that cannot be
    refuted (see `_refuted`), by bisection; the least of these. A schedule of `known_s` is possible.
    """
    may = problem.executors > 0
    neighbours = np.diff(problem.first) + np.bincount(problem.source, minlength=len(may))
    hub = int(np.argmax(neighbours))
    moving_s = problem.latency_s + problem.gb[:, None, None] * problem.s_gb
    bound_s = known_s
    for there in np.flatnonzero(may[hub]):
        fixed = may.copy()
        fixed[hub] = np.arange(may.shape[1]) == there
        low_s, high_s = 0.0, bound_s * (1 - ROUNDING)
        if _refuted(problem, moving_s, fixed, high_s):
            continue  # No shorter schedule has it there.
        while high_s - low_s > PRECISION * known_s:
            middle_s = (low_s + high_s) / 2
            if _refuted(problem, moving_s, fixed, middle_s):
                low_s = middle_s
            else:
                high_s = middle_s
        bound_s = low_s
    return bound_s


def _refuted(problem: Problem, moving_s: Floats, may: Bools, finish_s: float) -> bool:
    """Whether no schedule ends by then, with each step where it may run.

    A step runs only where its earliest start, its run and its least tail fit; earliest starts and tails
    follow from the best choice of each neighbour for itself. Then a linear program asks whether clusters
    could do the work, divided at will, of all steps that start and end within each of several spans.
    """
    while True:
        head_s, tail_s = _spans(problem, moving_s, may)
        left = may & (head_s + problem.run_s + tail_s <= finish_s)
        if not left.any(axis=1).all():
            return True
        if np.array_equal(left, may):
            return _overloaded(problem, head_s[may], tail_s[may], may, finish_s)
        may = left


def _spans(problem: Problem, moving_s: Floats, may: Bools) -> tuple[Floats, Floats]:
    """[N, C] seconds before which a step cannot start there, and that pass at least after its end there."""
    head_s, tail_s = problem.input_s.copy(), np.zeros(may.shape)
    run_s = np.where(may, problem.run_s, np.inf)
    for step in problem.topological:
        for pair in range(problem.first[step], problem.first[step + 1]):
            ends_s = head_s[problem.source[pair]] + run_s[problem.source[pair]]
            head_s[step] = np.maximum(head_s[step], (ends_s[:, None] + moving_s[pair]).min(axis=0))
    for step in problem.topological[::-1]:
        rest_s = run_s[step] + tail_s[step]
        for pair in range(problem.first[step], problem.first[step + 1]):
            writer = problem.source[pair]
            tail_s[writer] = np.maximum(tail_s[writer], (moving_s[pair] + rest_s).min(axis=1))
    return head_s, tail_s


def _overloaded(problem: Problem, head_s: Floats, tail_s: Floats, may: Bools, finish_s: float) -> bool:
    """Whether the linear program has no solution. Columns: the share of a step that a cluster does."""
    step, cluster = np.nonzero(may)
    work = problem.run_s[may] * problem.executors[may]
    rows, limits = [], []
    for there, executors in enumerate(problem.capacity):
        here = cluster == there
        for after_s in np.unique(np.quantile(head_s[here], LEVELS, method="lower")) if here.any() else ():
            for before_s in np.unique(np.quantile(tail_s[here], LEVELS, method="lower")):
                within = here & (head_s >= after_s) & (tail_s >= before_s)
                limit = executors * (finish_s - after_s - before_s)
                if within.any() and work[within].sum() > limit:
                    rows.append(np.where(within, work, 0.0))
                    limits.append(limit)
    if not rows:
        return False
    once = np.zeros((len(may), len(step)))
    once[step, np.arange(len(step))] = 1.0
    found = linprog(
        np.zeros(len(step)), A_ub=np.array(rows), b_ub=np.array(limits), A_eq=once, b_eq=np.ones(len(may))
    )
    return bool(found.status == _INFEASIBLE)
