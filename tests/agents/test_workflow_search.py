"""The inner loop of the annealing: what it evaluates, the critical path, and where its lanes begin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from agents.workflows.lists import least_tail_s, plan_by_heft, plans_on_fewer
from agents.workflows.moves import DRAWS, graph_of
from agents.workflows.search import anneal, critical_steps, finish_within_s
from agents.workflows.solution import Solution, finish_s
from envs.simulation.workflows.model import Cluster, File, Link, Platform, Profile, Stage, Step, Workflow
from envs.simulation.workflows.plan import work_space
from envs.simulation.workflows.problem import Problem, problem_of
from tests.workflow_cases import drawn


def seconds(run_s: float) -> Profile:
    """One executor for so long."""
    return Profile((Stage(1, run_s),), executors=1)


@settings(max_examples=40, deadline=None)
@given(drawn())
def test_a_schedule_within_its_limit_ends_as_simulated_and_no_other_ends(
    case: tuple[Workflow, Platform],
) -> None:
    problem = problem_of(*case)
    solution = plan_by_heft(problem)
    whole_s, tail_s, n = finish_s(problem, solution), least_tail_s(problem), len(solution.order)
    for limit_s, expected_s in ((np.inf, whole_s), (whole_s, whole_s), (whole_s - 1e-3, np.inf)):
        found_s = finish_within_s(
            problem, tail_s, limit_s, *solution, work_space(problem), np.zeros(n), np.zeros(n)
        )
        assert found_s == expected_s


@pytest.mark.parametrize(("other_s", "before"), [(12.0, 0), (20.0, 1)])
def test_the_critical_path_goes_by_the_file_or_by_the_executor_that_comes_last(
    other_s: float, before: int
) -> None:
    # The first ends at 10 s, and its file is at the other cluster at 15 s, where one that takes 12 or 20 s is
    # before the last: that starts at 15 s because of the file, or at 20 s because of the executor.
    steps = (
        Step("writes", seconds(10.0), (), ("file",)),
        Step("other", seconds(other_s)),
        Step("reads", seconds(10.0), ("file",)),
    )
    platform = Platform((Cluster("one", 1), Cluster("two", 1)), Link(1.0))
    problem = problem_of(Workflow("three", (File("file", 5.0),), steps), platform)
    start_s, end_s, found = np.zeros(3), np.zeros(3), np.zeros(3, np.int64)
    cluster, order = np.array([0, 1, 1]), np.array([0, 1, 2])
    finish_within_s(problem, np.zeros(3), np.inf, cluster, order, work_space(problem), start_s, end_s)
    count = critical_steps(problem, cluster, start_s, end_s, found)
    assert found[:count].tolist() == [2, before]


def joined(steps: int) -> Problem:
    """Steps of 10 s on one of two clusters, and a last one that reads 8 GB of each, at 1 GB/s."""
    files = tuple(File(f"f{k}", 8.0) for k in range(steps))
    each = tuple(Step(f"s{k}", seconds(10.0), (), (f"f{k}",)) for k in range(steps))
    last = Step("last", seconds(10.0), tuple(file.name for file in files))
    clusters = (Cluster("one", 1), Cluster("two", 1))
    return problem_of(Workflow("join", files, (*each, last)), Platform(clusters, Link(1.0)))


def test_heft_on_fewer_clusters_moves_less() -> None:
    # HEFT puts the two on both clusters: 10 + 8 + 10 s; on one it takes 10 + 10 + 10 s. With links of half
    # the bandwidth HEFT takes 10 + 16 + 10 s.
    problem = joined(2)
    assert finish_s(problem, plan_by_heft(problem)) == 28
    assert [finish_s(problem, plan) for plan in plans_on_fewer(problem)] == [30, 30]
    slower = problem._replace(s_gb=2 * problem.s_gb)
    assert finish_s(slower, plan_by_heft(slower)) == 36
    assert min(finish_s(slower, plan) for plan in plans_on_fewer(slower)) == 30


def test_without_heat_the_search_goes_downhill_and_takes_back_what_is_longer() -> None:
    # 120 steps of 10 to 16 s, all on the first of twelve clusters. Each cluster would have 129.75 s if steps
    # could be divided; a walk that keeps what is longer stays above 140 s.
    lengths_s = [10.0 + k % 7 for k in range(120)]
    steps = tuple(Step(f"s{k}", seconds(run_s)) for k, run_s in enumerate(lengths_s))
    platform = Platform(tuple(Cluster(f"c{k}", 1) for k in range(12)), Link(1.0))
    problem = problem_of(Workflow("many", (), steps), platform)
    found = anneal(
        problem,
        graph_of(problem),
        least_tail_s(problem),
        np.zeros(120, np.int64),
        np.arange(120),
        np.full(6_000, 1e-9),
        np.random.default_rng(0).random((6_000, DRAWS + 1)),
    )
    assert sum(lengths_s) / 12 <= finish_s(problem, Solution(*found)) <= 1.03 * sum(lengths_s) / 12
