"""Simulated annealing: SimulatedAnnealing() of Liu 2022, Algorithm 2, lines 35 to 43, and Eq. 3.4."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numba import njit

from spotweave.agents.workflows.lists import least_tail_s, plan_by_cpop, plan_by_heft, plans_on_fewer
from spotweave.agents.workflows.solution import (
    DRAWS,
    Graph,
    Solution,
    change,
    earliest_s,
    finish_s,
    followers,
    graph_of,
)
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.streams import Streams
from spotweave.envs.simulation.workflows.plan import work_space
from spotweave.envs.simulation.workflows.problem import ROUNDING_S, Problem, occupy, simulate

# The greedy initial plan: GreedySolution() of Liu 2022, Algorithm 2, lines 3 to 33.


def plan_greedily(problem: Problem) -> Solution:
    """Put the steps whose files are all decided on the clusters that end them first, wave by wave.

    Where the print lets a step start with whatever executors are left (line 20), one here occupies what its
    profile says; and a step without dependencies may also run where its input has to be moved to.
    """
    n, clusters = problem.run_s.shape
    cluster, end_s = np.zeros(n, np.int64), np.zeros(n)
    free_s, start_s = work_space(problem), np.empty((n, clusters))
    waits, after = np.diff(problem.first), followers(problem)
    # Computing load: the mean over the clusters that may run the step.
    load_s = np.nanmean(np.where(np.isinf(problem.run_s), np.nan, problem.run_s), axis=1)
    order: list[int] = []
    pool = [int(step) for step in np.flatnonzero(waits == 0)]
    while pool:
        for step in pool:
            earliest_s(problem, step, cluster, end_s, free_s, start_s[step])
        least_s = start_s[pool].min(axis=1)
        key = load_s[pool] if np.all(least_s == least_s[0]) else least_s
        ready: list[int] = []
        for step in np.array(pool)[np.argsort(-key, kind="stable")]:
            earliest_s(problem, step, cluster, end_s, free_s, start_s[step])
            there = int(np.argmin(start_s[step] + problem.run_s[step]))
            cluster[step] = there
            run_s = problem.run_s[step, there]
            free = free_s[there, : problem.capacity[there]]
            begins_s = occupy(free, problem.executors[step, there], start_s[step, there], run_s)
            end_s[step] = begins_s + run_s
            order.append(int(step))
            for follower in after[step]:
                waits[follower] -= 1
                if waits[follower] == 0:
                    ready.append(follower)
        pool = sorted(ready)
    return Solution(cluster, np.array(order))


def plan_fairly(problem: Problem) -> Solution:
    """Fair scheduling, the baseline of Table 3.1: the clusters take turns, whatever the steps need.

    Turns go to those clusters that may run the step.
    """
    clusters = len(problem.capacity)
    cluster = np.zeros(len(problem.topological), np.int64)
    turn = 0
    for step in problem.topological:
        turns = [(turn + k) % clusters for k in range(clusters)]
        cluster[step] = next(there for there in turns if problem.executors[step, there] > 0)
        turn = int(cluster[step]) + 1
    return Solution(cluster, problem.topological)


# The loop of the annealing: Liu 2022, Algorithm 2, lines 36 to 42. Compiled.


@njit(cache=True, error_model="numpy")
def anneal(
    problem: Problem, graph: Graph, tail_s: Floats, cluster: Ints, order: Ints, heat_s: Floats, draws: Floats
) -> tuple[Ints, Ints]:
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
    now_s = simulate(problem, tail_s, np.inf, on, by, free_s, start_s, end_s)
    count = critical_steps(problem, on, start_s, end_s, critical)
    best_s, best_cluster, best_order = now_s, cluster.copy(), order.copy()
    for k in range(len(heat_s)):
        moved = change(problem, graph, critical[:count], on, by, at, draws[k])
        # Eq. 3.4 for one random number: the longest finish that is accepted.
        limit_s = now_s - heat_s[k] * np.log(draws[k, DRAWS])
        found_s = simulate(problem, tail_s, limit_s, on, by, free_s, start_s, end_s)
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
def critical_steps(problem: Problem, cluster: Ints, start_s: Floats, end_s: Floats, found: Ints) -> int:
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


@dataclass(frozen=True)
class AnnealingSettings:
    """How long and how hot."""

    iterations: int = 200_000  # k_max, which the print does not say, of all lanes together
    runs: int = 20_000_000  # of a step in simulation, at most in all: fewer iterations for large workflows
    # alpha * T at the start, as a share of the finish of the first schedule. The print chooses alpha so that
    # the probability of accepting what is worse begins "very close to 1"
    first_share: float = 0.03
    cooling: float = 0.001  # T at the end as a share of T at the start (line 37)


DEFAULTS = AnnealingSettings()
FEWER_STEPS = 300
"""With more, HEFT's insertion on few clusters takes longer than the annealing: there is no second lane."""


def plan_by_annealing(problem: Problem, seed: int = 0, settings: AnnealingSettings = DEFAULTS) -> Solution:
    """The shortest schedule met on the way.

    Differences from the print: the order in which clusters take their steps changes too, not only where
    steps run; half of the changes are of steps on the critical path, and some put neighbours on another
    cluster together; the search begins at the shortest of the greedy, HEFT and CPOP plans instead of the
    greedy one, and where HEFT's plan for fewer clusters is shorter, a second lane begins there; it begins
    less hot, so that it does not first forget them; the shortest schedule met is the result, not the last.
    """
    lanes = [_shortest(problem, (plan(problem) for plan in (plan_greedily, plan_by_heft, plan_by_cpop)))]
    if len(problem.topological) <= FEWER_STEPS:
        fewer = _shortest(problem, (*lanes, *plans_on_fewer(problem)))
        if fewer is not lanes[0]:
            lanes.append(fewer)
    random = Streams(seed).generator("policy")
    graph, tail_s = graph_of(problem), least_tail_s(problem)
    iterations = max(1, min(settings.iterations, settings.runs // len(tail_s)) // len(lanes))
    share = settings.first_share * settings.cooling ** (np.arange(iterations) / iterations)
    found = [
        Solution(
            *anneal(
                problem,
                graph,
                tail_s,
                *lane,
                finish_s(problem, lane) * share,
                random.random((iterations, DRAWS + 1)),
            )
        )
        for lane in lanes
    ]
    return _shortest(problem, found)


def _shortest(problem: Problem, solutions: Iterable[Solution]) -> Solution:
    return min(solutions, key=lambda solution: finish_s(problem, solution))
