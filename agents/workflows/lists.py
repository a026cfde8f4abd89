"""HEFT and CPOP (Topcuoglu, Hariri and Wu 2002): list scheduling with insertion into idle times.

A cluster is a processor that runs several steps at once, as long as its executors suffice; with one executor
each, the algorithms are those of the print.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit

from spotweave.agents.workflows.solution import Solution, by_start, followers
from spotweave.envs.simulation.compiled import linked
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.workflows.problem import Problem, arrival_s


def plan_by_heft(problem: Problem) -> Solution:
    """Heterogeneous Earliest Finish Time: by upward rank, each step where it ends first."""
    up = upward_rank_s(problem)
    # Every step before those that wait for it, also where costs are 0: the sort keeps the order of equals.
    sequence = problem.topological[np.argsort(-up[problem.topological], kind="stable")]
    return _inserted(problem, sequence, np.full(len(sequence), -1))


def plans_on_fewer(problem: Problem) -> Iterator[Solution]:
    """HEFT's plans for the fastest cluster, the two fastest and so on, and for each cluster alone.

    HEFT puts a step where it ends first, wherever those that wait for it will need its file; with fewer
    clusters less is moved. Steps that may run on none of them run as before.
    """
    clusters, may = len(problem.capacity), problem.executors > 0
    mean_s = np.where(may, problem.run_s, problem.run_s[may].max()).mean(axis=0)
    fastest = np.argsort(mean_s / problem.capacity, kind="stable")
    several = [fastest[:k] for k in range(1, clusters)]
    for some in several + [fastest[k : k + 1] for k in range(1, clusters)]:
        there = may & np.isin(np.arange(clusters), some)
        there = np.where(there.any(axis=1, keepdims=True), there, may)
        left = problem._replace(
            run_s=np.where(there, problem.run_s, np.inf), executors=np.where(there, problem.executors, 0)
        )
        yield plan_by_heft(left)


def plan_by_cpop(problem: Problem) -> Solution:
    """Critical Path on a Processor: the critical path on one cluster, other steps where they end first.

    Unlike in the print, input that lies elsewhere counts when that cluster is chosen. Where none may run the
    whole path, its steps go where they end first as well.
    """
    n = len(problem.topological)
    up, down = upward_rank_s(problem), downward_rank_s(problem)
    priority = up + down
    waits, after = np.diff(problem.first), followers(problem)
    length = priority[waits == 0].max()
    critical = np.isclose(priority, length)
    path: list[int] = []
    step = int(np.flatnonzero(critical & (waits == 0))[0])
    while step >= 0:
        path.append(step)
        step = next((k for k in after[step] if critical[k]), -1)
    total_s = problem.run_s[path].sum(axis=0) + problem.input_s[path].max(axis=0)
    only = np.full(n, -1)
    if np.isfinite(total_s).any():
        only[path] = int(np.argmin(total_s))
    ready, sequence = [int(k) for k in np.flatnonzero(waits == 0)], []
    while ready:
        step = max(ready, key=lambda k: priority[k])
        ready.remove(step)
        sequence.append(step)
        for follower in after[step]:
            waits[follower] -= 1
            if waits[follower] == 0:
                ready.append(follower)
    return _inserted(problem, np.array(sequence), only)


def upward_rank_s(problem: Problem) -> Floats:
    """[N] rank_u, Eq. 7: mean seconds from a step's start to the end of all."""
    mean_s = mean_run_s(problem)
    rank = mean_s.copy()
    for step in problem.topological[::-1]:
        for pair in range(problem.first[step], problem.first[step + 1]):
            writer = problem.source[pair]
            rank[writer] = max(rank[writer], mean_s[writer] + _mean_moving_s(problem, pair) + rank[step])
    return rank


def downward_rank_s(problem: Problem) -> Floats:
    """[N] rank_d, Eq. 9: mean seconds from the start of all to a step's start."""
    mean_s = mean_run_s(problem)
    rank = np.zeros(len(mean_s))
    for step in problem.topological:
        for pair in range(problem.first[step], problem.first[step + 1]):
            writer = problem.source[pair]
            rank[step] = max(rank[step], rank[writer] + mean_s[writer] + _mean_moving_s(problem, pair))
    return rank


def least_tail_s(problem: Problem) -> Floats:
    """[N] seconds that pass at least from each step's end to the end of all, files moving in no time."""
    fastest_s, tail_s = problem.run_s.min(axis=1), np.zeros(len(problem.topological))
    for step in problem.topological[::-1]:
        for writer in problem.source[problem.first[step] : problem.first[step + 1]]:
            tail_s[writer] = max(tail_s[writer], fastest_s[step] + tail_s[step])
    return tail_s


def mean_run_s(problem: Problem) -> Floats:
    """[N] mean over the clusters that may run each step, Eq. 2."""
    finite = np.isfinite(problem.run_s)
    mean: Floats = np.where(finite, problem.run_s, 0.0).sum(axis=1) / finite.sum(axis=1)
    return mean


def _mean_moving_s(problem: Problem, pair: int) -> float:
    """Mean over all pairs of different clusters, Eq. 4."""
    clusters = len(problem.capacity)
    pairs = max(1, clusters * (clusters - 1))
    return float(problem.latency_s.sum() + problem.gb[pair] * problem.s_gb.sum()) / pairs


def _inserted(problem: Problem, sequence: Ints, only: Ints) -> Solution:
    n = len(sequence)
    cluster, start_s = np.zeros(n, np.int64), np.zeros(n)
    insert(problem, sequence, only, cluster, start_s)
    return by_start(problem, cluster, start_s)


@njit(cache=True, error_model="numpy")
def insert(problem: Problem, sequence: Ints, only: Ints, cluster: Ints, start_s: Floats) -> None:
    """Put each step, one after the other, where it ends first; idle times before placed steps are used.

    Args:
        problem: the workflow and its clusters.
        sequence: [N] the steps, each after all that it waits for.
        only: [N] the cluster that must run a step, or -1.
        cluster: [N] filled in.
        start_s: [N] filled in.
    """
    n, clusters = problem.run_s.shape
    end_s = np.zeros(n)
    placed = np.empty((clusters, n), np.int64)
    count = np.zeros(clusters, np.int64)
    for step in sequence:
        best_s = np.inf
        for there in range(clusters):
            if problem.executors[step, there] == 0 or (only[step] >= 0 and only[step] != there):
                continue
            ready_s = arrival_s(problem, step, there, cluster, end_s)
            begins_s = _gap_s(problem, step, there, placed[there, : count[there]], start_s, end_s, ready_s)
            if begins_s + problem.run_s[step, there] < best_s:
                best_s = begins_s + problem.run_s[step, there]
                cluster[step], start_s[step], end_s[step] = there, begins_s, best_s
        there = cluster[step]
        placed[there, count[there]] = step
        count[there] += 1


@linked()
def _gap_s(
    problem: Problem, step: int, there: int, placed: Ints, start_s: Floats, end_s: Floats, ready_s: float
) -> float:
    """The earliest start from `ready_s` on at which executors suffice until the step's end."""
    # Executors come free only where a step ends.
    spare = problem.capacity[there] - problem.executors[step, there]
    run_s = problem.run_s[step, there]
    best_s = np.inf
    for k in range(-1, len(placed)):
        at_s = ready_s if k < 0 else end_s[placed[k]]
        if ready_s <= at_s < best_s and _peak(problem, there, placed, start_s, end_s, at_s, run_s) <= spare:
            best_s = at_s
    return best_s


@linked()
def _peak(
    problem: Problem, there: int, placed: Ints, start_s: Floats, end_s: Floats, at_s: float, run_s: float
) -> int:
    """Peak number of executors in use within a span of seconds; usage rises only where a step starts."""
    peak = 0
    for k in range(-1, len(placed)):
        when_s = at_s if k < 0 else start_s[placed[k]]
        if when_s < at_s or (k >= 0 and when_s >= at_s + run_s):
            continue
        used = 0
        for other in placed:
            if start_s[other] <= when_s < end_s[other]:
                used += problem.executors[other, there]
        peak = max(peak, used)
    return peak
