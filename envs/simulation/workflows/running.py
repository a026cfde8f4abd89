"""Simulated running: Liu 2022, Eq. 3.3 and the evaluation function E() of Algorithm 2. Compiled."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from envs.simulation.workflows.problem import Problem


@njit(cache=True, error_model="numpy")
def arrival_s(
    problem: Problem, step: int, there: int, cluster: NDArray[np.int64], end_s: NDArray[np.float64]
) -> float:
    """When all that a step reads is at a cluster: t' of Eq. 3.3.

    Args:
        problem: the workflow and its clusters.
        step: whose files.
        there: the cluster.
        cluster: [N] where the steps that it waits for run.
        end_s: [N] when they end.
    """
    latest = problem.input_s[step, there]
    for pair in range(problem.first[step], problem.first[step + 1]):
        writer = problem.source[pair]
        here = cluster[writer]
        moving_s = problem.latency_s[here, there] + problem.gb[pair] * problem.s_gb[here, there]
        latest = max(latest, end_s[writer] + moving_s)
    return float(latest)


@njit(cache=True, error_model="numpy")
def occupy(free_s: NDArray[np.float64], executors: int, ready_s: float, run_s: float) -> float:
    """Start a step as early as its executors are free, and give the start.

    Args:
        free_s: [executors of the cluster] when each is free, ascending; changed in place.
        executors: how many the step occupies.
        ready_s: it starts no earlier.
        run_s: for so long.
    """
    start_s = max(ready_s, free_s[executors - 1])
    # It takes those that became free last: the others can serve steps that are ready earlier.
    last = executors
    while last < len(free_s) and free_s[last] <= start_s:
        last += 1
    end_s = start_s + run_s
    place = last - executors
    while place + executors < len(free_s) and free_s[place + executors] < end_s:
        free_s[place] = free_s[place + executors]
        place += 1
    free_s[place : place + executors] = end_s
    return float(start_s)


@njit(cache=True, error_model="numpy")
def simulate(
    problem: Problem,
    cluster: NDArray[np.int64],
    order: NDArray[np.int64],
    free_s: NDArray[np.float64],
    start_s: NDArray[np.float64],
    end_s: NDArray[np.float64],
) -> float:
    """Run all steps, and give the end of the last: E() of Eq. 3.4.

    Each cluster takes its steps in the order given; a step starts once its files are there and enough
    executors are free: job_st = max(t', cluster_at) of Eq. 3.3. Every schedule in which no step can start
    earlier by itself is that of the order of its starts, so nothing is lost by describing schedules so.

    Args:
        problem: the workflow and its clusters.
        cluster: [N] where each step runs.
        order: [N] the steps, each after all that it waits for.
        free_s: [C, executors of the largest cluster] work space.
        start_s: [N] filled in.
        end_s: [N] filled in.
    """
    free_s[:] = 0.0
    finish_s = 0.0
    for k in range(len(order)):
        step = order[k]
        there = cluster[step]
        ready_s = arrival_s(problem, step, there, cluster, end_s)
        run_s = problem.run_s[step, there]
        start_s[step] = occupy(
            free_s[there, : problem.capacity[there]], problem.executors[step, there], ready_s, run_s
        )
        end_s[step] = start_s[step] + run_s
        finish_s = max(finish_s, end_s[step])
    return finish_s
