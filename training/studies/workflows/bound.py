"""What no schedule of a workflow is shorter than."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from envs.simulation.workflows.problem import Problem

ROUNDING = 1e-9
"""Share by which the bound is lowered, as the linear program is solved in floating point."""


def lower_bound_s(problem: Problem, known_s: float) -> float:
    """Seconds that every schedule takes, at most `known_s`.

    A schedule shorter than `known_s` runs a step only where its input, its run, and the fastest runs before
    and after it end by then. The longest path of such fastest runs is a bound, and so is the time in which
    clusters could do the work if it could be divided at will: a linear program.

    Args:
        problem: the workflow and its clusters.
        known_s: the finish of a schedule that is possible.
    """
    fastest_s = problem.run_s.min(axis=1)
    head_s, tail_s = _heads_s(problem, fastest_s), _tails_s(problem, fastest_s)
    ends_s = np.maximum(head_s[:, None], problem.input_s) + problem.run_s + tail_s[:, None]
    may = ends_s < known_s
    if not may.any(axis=1).all():
        return known_s
    path_s = float(np.where(may, ends_s, np.inf).min(axis=1).max())
    step, cluster = np.nonzero(may)
    count, clusters = len(step), len(problem.capacity)
    # Columns: the share of a step that a cluster does, then the time. Each step is done once.
    once = np.zeros((len(fastest_s), count + 1))
    once[step, np.arange(count)] = 1.0
    work = np.zeros((clusters, count + 1))
    work[cluster, np.arange(count)] = (problem.run_s * problem.executors)[may]
    work[:, -1] = -problem.capacity
    found = linprog(
        np.eye(count + 1)[-1], A_ub=work, b_ub=np.zeros(clusters), A_eq=once, b_eq=np.ones(len(fastest_s))
    )
    return min(known_s, max(path_s, float(found.fun)) * (1 - ROUNDING))


def _heads_s(problem: Problem, fastest_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """[N] seconds before which each step cannot start, files moving in no time."""
    head_s = np.zeros(len(fastest_s))
    for step in problem.topological:
        for writer in problem.source[problem.first[step] : problem.first[step + 1]]:
            head_s[step] = max(head_s[step], head_s[writer] + fastest_s[writer])
    return head_s


def _tails_s(problem: Problem, fastest_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """[N] seconds that pass at least from each step's end to the end of all."""
    tail_s = np.zeros(len(fastest_s))
    for step in problem.topological[::-1]:
        for writer in problem.source[problem.first[step] : problem.first[step + 1]]:
            tail_s[writer] = max(tail_s[writer], fastest_s[step] + tail_s[step])
    return tail_s
