"""Lower bound of the makespan of a workflow."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from envs.simulation.series import Bools, Floats
from envs.simulation.workflows.problem import Problem

PRECISION = 4e-3
"""Share of the known finish to which the bound is found."""
ROUNDING = 1e-9
"""Shorter than a known schedule by less than this share is not shorter."""
LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Quantiles of starts and tails at which work is counted."""
_INFEASIBLE = 2


def lower_bound_s(problem: Problem, known_s: float) -> float:
    """Seconds that every schedule takes, at most `known_s`.

    For each cluster on which the step with most neighbours may run, the shortest finish that cannot be
    refuted (see `_refuted`), by bisection; the least of these.

    Args:
        problem: the workflow and its clusters.
        known_s: the finish of a schedule that is possible.
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
