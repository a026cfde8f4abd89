"""Changes of a schedule and the loop that tries them: the inner part of the annealing. Compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from envs.simulation.workflows.problem import Problem
from envs.simulation.workflows.running import simulate


class Graph(NamedTuple):
    """What changes need besides the problem.

    Attributes:
        first: [N + 1] the steps that wait for step i are those from first[i] to first[i + 1] - 1.
        follower: [E] steps.
        choices: [N] how many clusters may run each step.
        cluster: [N, C] those clusters, the first `choices[i]` of each row.
    """

    first: NDArray[np.int64]
    follower: NDArray[np.int64]
    choices: NDArray[np.int64]
    cluster: NDArray[np.int64]


def graph_of(problem: Problem) -> Graph:
    """The graph of a problem."""
    n = len(problem.topological)
    waiting = np.repeat(np.arange(n), np.diff(problem.first))
    by_writer = np.argsort(problem.source, kind="stable")
    counts = np.bincount(problem.source, minlength=n)
    may = problem.executors > 0
    return Graph(
        np.concatenate([[0], np.cumsum(counts)]),
        waiting[by_writer],
        may.sum(axis=1),
        np.argsort(~may, axis=1, kind="stable"),
    )


@njit(cache=True, error_model="numpy")
def anneal(
    problem: Problem,
    graph: Graph,
    cluster: NDArray[np.int64],
    order: NDArray[np.int64],
    heat_s: NDArray[np.float64],
    draws: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lines 36 to 42: the best schedule met.

    Args:
        problem: the workflow and its clusters.
        graph: of the problem.
        cluster: [N] of the first schedule; left as it is.
        order: [N] of the first schedule; left as it is.
        heat_s: [iterations] alpha * T.
        draws: [iterations, 4] uniform from 0 to 1.

    Returns:
        [N] clusters and [N] order.
    """
    n = len(order)
    cluster, order, position = cluster.copy(), order.copy(), np.empty(n, np.int64)
    for place in range(n):
        position[order[place]] = place
    free_s = np.zeros((len(problem.capacity), problem.capacity.max()))
    start_s, end_s = np.zeros(n), np.zeros(n)
    now_s = simulate(problem, cluster, order, free_s, start_s, end_s)
    best_s, best_cluster, best_order = now_s, cluster.copy(), order.copy()
    for k in range(len(heat_s)):
        step, place, there = change(problem, graph, cluster, order, position, draws[k])
        found_s = simulate(problem, cluster, order, free_s, start_s, end_s)
        # Eq. 3.4
        if found_s <= now_s or np.exp((now_s - found_s) / heat_s[k]) >= draws[k, 3]:
            now_s = found_s
            if now_s < best_s:
                best_s = now_s
                best_cluster[:] = cluster
                best_order[:] = order
        else:
            cluster[step] = there
            move(order, position, step, place)
    return best_cluster, best_order


@njit(cache=True, error_model="numpy")
def worsening_s(
    problem: Problem,
    graph: Graph,
    cluster: NDArray[np.int64],
    order: NDArray[np.int64],
    draws: NDArray[np.float64],
) -> NDArray[np.float64]:
    """[len(draws)] by how much longer a schedule becomes with single changes; arguments as `anneal`."""
    n = len(order)
    cluster, order, position = cluster.copy(), order.copy(), np.empty(n, np.int64)
    for place in range(n):
        position[order[place]] = place
    free_s = np.zeros((len(problem.capacity), problem.capacity.max()))
    start_s, end_s, found_s = np.zeros(n), np.zeros(n), np.zeros(len(draws))
    first_s = simulate(problem, cluster, order, free_s, start_s, end_s)
    for k in range(len(draws)):
        step, place, there = change(problem, graph, cluster, order, position, draws[k])
        found_s[k] = simulate(problem, cluster, order, free_s, start_s, end_s) - first_s
        cluster[step] = there
        move(order, position, step, place)
    return found_s


@njit(cache=True, error_model="numpy")
def change(
    problem: Problem,
    graph: Graph,
    cluster: NDArray[np.int64],
    order: NDArray[np.int64],
    position: NDArray[np.int64],
    draw: NDArray[np.float64],
) -> tuple[int, int, int]:
    """Put one step on another cluster, or elsewhere in the order; gives the step and what undoes the change.

    Args:
        problem: the workflow and its clusters.
        graph: of the problem.
        cluster: [N]; changed in place.
        order: [N]; changed in place.
        position: [N] of each step in the order; changed in place.
        draw: [4] uniform from 0 to 1, of which it uses three.

    Returns:
        The step, its place in the order and its cluster before.
    """
    n = len(order)
    step = int(draw[0] * n)
    before, there = position[step], cluster[step]
    last = graph.choices[step] - 1
    if draw[1] < 0.5 and last > 0:
        # One of the others: the last of them stands in for the one that it is on.
        chosen = graph.cluster[step, int(draw[2] * last)]
        cluster[step] = graph.cluster[step, last] if chosen == there else chosen
    else:
        low, high = 0, n - 1
        for pair in range(problem.first[step], problem.first[step + 1]):
            low = max(low, position[problem.source[pair]] + 1)
        for pair in range(graph.first[step], graph.first[step + 1]):
            high = min(high, position[graph.follower[pair]] - 1)
        move(order, position, step, low + int(draw[2] * (high + 1 - low)))
    return step, before, there


@njit(cache=True, error_model="numpy")
def move(order: NDArray[np.int64], position: NDArray[np.int64], step: int, place: int) -> None:
    """Put a step at a place in the order; those in between close up."""
    now = position[step]
    towards = 1 if place > now else -1
    while now != place:
        order[now] = order[now + towards]
        position[order[now]] = now
        now += towards
    order[now] = step
    position[step] = now
