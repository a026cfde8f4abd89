"""What planners find: a cluster for each step, and the order in which clusters take them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from spotweave.envs.simulation.compiled import linked
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.workflows.plan import times_s
from spotweave.envs.simulation.workflows.problem import Problem, arrival_s


class Solution(NamedTuple):
    """A cluster for each step, and an order in which each step comes after all that it waits for."""

    cluster: Ints  # [N]
    order: Ints  # [N] steps


def finish_s(problem: Problem, solution: Solution) -> float:
    """When the last step ends."""
    _, end_s = times_s(problem, *solution)
    return float(end_s.max())


def by_start(problem: Problem, cluster: Ints, start_s: Floats) -> Solution:
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
    problem: Problem, step: int, cluster: Ints, end_s: Floats, free_s: Floats, start_s: Floats
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


# Changes of a schedule that the annealing tries. Compiled.

DRAWS = 6  # random numbers that a change uses
CRITICAL_SHARE = 0.5  # share of changes to steps that the finish depends on; the others are to any step
CLUSTER_SHARE = 0.5  # share of changes that put a step on another cluster
BOTH_SHARE = 0.3  # share of those that also move it in the order
GROUP_SHARE = 0.3  # share of those that take along neighbours: successors or, half of the time, predecessors


class Graph(NamedTuple):
    """What changes need besides the problem."""

    first: Ints  # [N + 1] the steps that wait for step i are those from first[i] to first[i + 1] - 1
    follower: Ints  # [E] steps
    choices: Ints  # [N] how many clusters may run each step
    cluster: Ints  # [N, C] those clusters, the first `choices[i]` of each row


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


@linked()
def change(
    problem: Problem, graph: Graph, critical: Ints, cluster: Ints, order: Ints, position: Ints, draw: Floats
) -> bool:
    """Put a step, and perhaps its neighbours, on another cluster, or elsewhere in the order.

    Args:
        problem: the workflow and its clusters.
        graph: of the problem.
        critical: at least one step that the finish depends on.
        cluster: [N]; changed in place.
        order: [N]; changed in place.
        position: [N] of each step in the order; changed in place.
        draw: [DRAWS] uniform from 0 to 1.

    Returns:
        Whether the order may have changed.
    """
    n = len(order)
    some = critical[int(draw[0] * len(critical))]
    step = some if draw[1] < CRITICAL_SHARE else int(draw[0] * n)
    last = graph.choices[step] - 1
    elsewhere = draw[2] < CLUSTER_SHARE and last > 0
    if elsewhere:
        here = cluster[step]
        # One of the others: the last of them stands in for the one that it is on.
        there = graph.cluster[step, int(draw[3] * last)]
        if there == here:
            there = graph.cluster[step, last]
        cluster[step] = there
        if draw[4] < GROUP_SHARE / 2:
            for pair in range(problem.first[step], problem.first[step + 1]):
                _take_along(problem, problem.source[pair], here, there, cluster)
        elif draw[4] < GROUP_SHARE:
            for pair in range(graph.first[step], graph.first[step + 1]):
                _take_along(problem, graph.follower[pair], here, there, cluster)
        if draw[2] >= CLUSTER_SHARE * BOTH_SHARE:
            return False
    low, high = 0, n - 1
    for pair in range(problem.first[step], problem.first[step + 1]):
        low = max(low, position[problem.source[pair]] + 1)
    for pair in range(graph.first[step], graph.first[step + 1]):
        high = min(high, position[graph.follower[pair]] - 1)
    _move(order, position, step, low + int(draw[5] * (high + 1 - low)))
    return True


@linked()
def _take_along(problem: Problem, step: int, here: int, there: int, cluster: Ints) -> None:
    if cluster[step] == here and problem.executors[step, there] > 0:
        cluster[step] = there


@linked()
def _move(order: Ints, position: Ints, step: int, place: int) -> None:
    """Put a step at a place in the order; those in between close up."""
    now = position[step]
    towards = 1 if place > now else -1
    while now != place:
        order[now] = order[now + towards]
        position[order[now]] = now
        now += towards
    order[now] = step
    position[step] = now
