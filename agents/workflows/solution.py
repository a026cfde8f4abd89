"""What planners find: a cluster for each step, and the order in which clusters take them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from envs.simulation.workflows.plan import work_space
from envs.simulation.workflows.problem import Problem, arrival_s, simulate


class Solution(NamedTuple):
    """A cluster for each step, and an order in which each step comes after all that it waits for.

    Attributes:
        cluster: [N].
        order: [N] steps.
    """

    cluster: NDArray[np.int64]
    order: NDArray[np.int64]


def finish_s(problem: Problem, solution: Solution) -> float:
    """When the last step ends."""
    n = len(solution.order)
    return float(simulate(problem, *solution, work_space(problem), np.zeros(n), np.zeros(n)))


def by_start(problem: Problem, cluster: NDArray[np.int64], start_s: NDArray[np.float64]) -> Solution:
    """The solution of a schedule: clusters take their steps by start."""
    position, key_s = np.empty(len(start_s), np.int64), start_s.copy()
    for place, step in enumerate(problem.topological):
        position[step] = place
        # Starts of a solver are exact up to its tolerance only, and a step may take no time.
        for writer in problem.source[problem.first[step] : problem.first[step + 1]]:
            key_s[step] = max(key_s[step], key_s[writer])
    return Solution(cluster, np.lexsort((position, key_s)))


def followers(problem: Problem) -> list[list[int]]:
    """For each step those that wait for it."""
    found: list[list[int]] = [[] for _ in problem.topological]
    for step in range(len(found)):
        for writer in problem.source[problem.first[step] : problem.first[step + 1]]:
            found[writer].append(step)
    return found


@njit(cache=True, error_model="numpy")
def earliest_s(
    problem: Problem,
    step: int,
    cluster: NDArray[np.int64],
    end_s: NDArray[np.float64],
    free_s: NDArray[np.float64],
    start_s: NDArray[np.float64],
) -> None:
    """Fill in job_st of Eq. 3.3 for each cluster; infinite where it may not run the step.

    Args:
        problem: the workflow and its clusters.
        step: all that it waits for must have been placed.
        cluster: [N] of the steps that have been placed.
        end_s: [N] of the steps that have been placed.
        free_s: [C, executors of the largest cluster] when each executor is free, ascending.
        start_s: [C] filled in.
    """
    for there in range(len(start_s)):
        start_s[there] = np.inf
        needed = problem.executors[step, there]
        if needed > 0:
            start_s[there] = max(arrival_s(problem, step, there, cluster, end_s), free_s[there, needed - 1])
