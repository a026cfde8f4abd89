"""The greedy initial plan: GreedySolution() of Liu 2022, Algorithm 2, lines 3 to 33."""

from __future__ import annotations

import numpy as np

from agents.workflows.solution import Solution, earliest_s, followers
from envs.simulation.workflows.plan import work_space
from envs.simulation.workflows.problem import Problem
from envs.simulation.workflows.running import occupy


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
