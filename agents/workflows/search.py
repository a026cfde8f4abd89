"""The loop of the annealing: Liu 2022, Algorithm 2, lines 36 to 42. Compiled."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agents.workflows.moves import DRAWS, Graph, change
from envs.simulation.workflows.problem import Problem
from envs.simulation.workflows.running import arrival_s, occupy

ROUNDING_S = 1e-9


@njit(cache=True, error_model="numpy")
def anneal(
    problem: Problem,
    graph: Graph,
    tail_s: NDArray[np.float64],
    cluster: NDArray[np.int64],
    order: NDArray[np.int64],
    heat_s: NDArray[np.float64],
    draws: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The best schedule met.

    Args:
        problem: the workflow and its clusters.
        graph: of the problem.
        tail_s: [N] see `lists.least_tail_s`.
        cluster: [N] of the first schedule; left as it is.
        order: [N] of the first schedule; left as it is.
        heat_s: [iterations] alpha * T.
        draws: [iterations, DRAWS + 1] uniform from 0 to 1.

    Returns:
        [N] clusters and [N] order.
    """
    n = len(order)
    cluster, order, position = cluster.copy(), order.copy(), np.empty(n, np.int64)
    for place in range(n):
        position[order[place]] = place
    # What is tried, apart from what it may go back to.
    on, by, at = cluster.copy(), order.copy(), position.copy()
    free_s = np.zeros((len(problem.capacity), problem.capacity.max()))
    start_s, end_s, critical = np.zeros(n), np.zeros(n), np.zeros(n, np.int64)
    now_s = finish_within_s(problem, tail_s, np.inf, on, by, free_s, start_s, end_s)
    count = critical_steps(problem, on, start_s, end_s, critical)
    best_s, best_cluster, best_order = now_s, cluster.copy(), order.copy()
    for k in range(len(heat_s)):
        moved = change(problem, graph, critical[:count], on, by, at, draws[k])
        # Eq. 3.4 for one random number: the longest finish that is accepted.
        limit_s = now_s - heat_s[k] * np.log(draws[k, DRAWS])
        found_s = finish_within_s(problem, tail_s, limit_s, on, by, free_s, start_s, end_s)
        if found_s <= limit_s:
            now_s = found_s
            cluster[:] = on
            if moved:
                order[:], position[:] = by, at
            count = critical_steps(problem, on, start_s, end_s, critical)
            if now_s < best_s:
                best_s, best_cluster[:], best_order[:] = now_s, cluster, order
        else:
            on[:] = cluster
            if moved:
                by[:], at[:] = order, position
    return best_cluster, best_order


@njit(cache=True, error_model="numpy")
def finish_within_s(
    problem: Problem,
    tail_s: NDArray[np.float64],
    limit_s: float,
    cluster: NDArray[np.int64],
    order: NDArray[np.int64],
    free_s: NDArray[np.float64],
    start_s: NDArray[np.float64],
    end_s: NDArray[np.float64],
) -> float:
    """As `running.simulate`, but infinite, and cut short, if it comes out as more than `limit_s`."""
    free_s[:] = 0.0
    finish_s = 0.0
    for step in order:
        there = cluster[step]
        run_s = problem.run_s[step, there]
        ready_s = arrival_s(problem, step, there, cluster, end_s)
        free = free_s[there, : problem.capacity[there]]
        start_s[step] = occupy(free, problem.executors[step, there], ready_s, run_s)
        end_s[step] = start_s[step] + run_s
        # Sums of the same numbers in another order differ in the last digits.
        if end_s[step] + tail_s[step] > limit_s + ROUNDING_S:
            return np.inf
        finish_s = max(finish_s, end_s[step])
    return finish_s


@njit(cache=True, error_model="numpy")
def critical_steps(
    problem: Problem,
    cluster: NDArray[np.int64],
    start_s: NDArray[np.float64],
    end_s: NDArray[np.float64],
    found: NDArray[np.int64],
) -> int:
    """Fill in the steps on a longest path through a schedule, the last first, and give their number.

    Before each comes the one whose file arrives last if the step starts then, else one that ends where and
    when it starts.
    """
    step, count = int(np.argmax(end_s)), 0
    while step >= 0:
        found[count] = step
        count += 1
        there, before, latest_s = cluster[step], -1, start_s[step] - ROUNDING_S
        for pair in range(problem.first[step], problem.first[step + 1]):
            writer = problem.source[pair]
            here = cluster[writer]
            moving_s = problem.latency_s[here, there] + problem.gb[pair] * problem.s_gb[here, there]
            if end_s[writer] + moving_s >= latest_s:
                before, latest_s = writer, end_s[writer] + moving_s
        if before < 0:
            for other in range(len(end_s)):
                if (
                    cluster[other] == there
                    and abs(end_s[other] - start_s[step]) < ROUNDING_S
                    and start_s[other] < start_s[step]
                ):
                    before = other
        step = before
    return count
