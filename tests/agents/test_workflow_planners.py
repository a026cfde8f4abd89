"""Planners of workflows: published figures, brute force, and that none can be talked into breaking a rule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from agents.workflows.annealing import AnnealingSettings, plan_by_annealing
from agents.workflows.exact import plan_exactly
from agents.workflows.greedy import plan_fairly, plan_greedily
from agents.workflows.lists import downward_rank_s, plan_by_cpop, plan_by_heft, upward_rank_s
from agents.workflows.planners import PLANNERS, plan_workflow
from agents.workflows.solution import Solution, finish_s
from envs.simulation.workflows.errors import WorkflowError
from envs.simulation.workflows.model import (
    Cluster,
    File,
    Link,
    Platform,
    Profile,
    Stage,
    Step,
    Workflow,
)
from envs.simulation.workflows.plan import violations
from envs.simulation.workflows.problem import Problem, problem_of
from tests.envs.test_workflow_running import executors_case, private_case
from tests.workflow_cases import drawn, topcuoglu

QUICK = AnnealingSettings(iterations=2_000)


def test_heft_and_cpop_give_the_published_example() -> None:
    problem = problem_of(*topcuoglu())
    # Topcuoglu, Hariri and Wu 2002, Table 1 and Figure 3: schedule lengths 80 and 86
    published = [108.000, 77.000, 80.000, 80.000, 69.000, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert upward_rank_s(problem).round(3).tolist() == published
    assert downward_rank_s(problem).round(3).tolist()[-1] == 93.333
    assert finish_s(problem, plan_by_heft(problem)) == 80
    assert finish_s(problem, plan_by_cpop(problem)) == 86


def test_annealing_finds_a_shorter_schedule_of_the_example_and_repeats_itself() -> None:
    problem = problem_of(*topcuoglu())
    found = plan_by_annealing(problem, seed=3)
    assert finish_s(problem, found) == 73
    again = plan_by_annealing(problem, seed=3)
    assert found.cluster.tolist() == again.cluster.tolist()
    assert found.order.tolist() == again.order.tolist()


@pytest.mark.real
def test_73_is_the_optimum_of_the_example() -> None:
    problem = problem_of(*topcuoglu())
    assert finish_s(problem, plan_exactly(problem)) == pytest.approx(73)


def brute_force_s(problem: Problem) -> float:
    """The shortest of all placements in all orders."""
    n = len(problem.topological)
    choices = [np.flatnonzero(row) for row in problem.executors > 0]
    best = np.inf
    for order in itertools.permutations(range(n)):
        place = {step: k for k, step in enumerate(order)}
        pairs = zip(problem.source, np.repeat(np.arange(n), np.diff(problem.first)), strict=True)
        if all(place[int(writer)] < place[int(reader)] for writer, reader in pairs):
            for cluster in itertools.product(*choices):
                best = min(best, finish_s(problem, Solution(np.array(cluster), np.array(order))))
    return best


@pytest.mark.real
@settings(max_examples=15, deadline=None)
@given(drawn(most_steps=4, most_clusters=2))
def test_the_exact_planner_finds_what_brute_force_finds(case: tuple[Workflow, Platform]) -> None:
    problem = problem_of(*case)
    assert finish_s(problem, plan_exactly(problem)) == pytest.approx(brute_force_s(problem))


@settings(max_examples=40, deadline=None)
@given(drawn())
def test_every_plan_can_be_carried_out(case: tuple[Workflow, Platform]) -> None:
    problem = problem_of(*case)
    annealed_s = finish_s(problem, plan_by_annealing(problem, settings=QUICK))
    for name in ("greedy", "heft", "cpop"):
        plan = plan_workflow(name, *case)
        assert violations(plan) == []
        assert annealed_s <= plan.finish_s + 1e-9
    assert violations(plan_workflow("fair", *case)) == []


@pytest.mark.parametrize("name", list(PLANNERS))
def test_no_planner_takes_private_data_where_it_would_be_faster(name: str) -> None:
    workflow, platform = private_case()
    plan = plan_workflow(name, workflow, platform)
    # On the others both steps would take 0.02 s instead of 200 s.
    assert [placed.cluster for placed in plan.placements] == ["slow", "slow"]
    assert plan.finish_s == 200
    assert plan.moves() == ()


def test_greedy_takes_the_heaviest_first_and_where_it_ends_first() -> None:
    steps = (Step("light", Profile((Stage(1, 10.0),))), Step("heavy", Profile((Stage(1, 30.0),))))
    platform = Platform((Cluster("slow", 1), Cluster("fast", 1, 2.0)), Link(1.0))
    plan = plan_workflow("greedy", Workflow("two", (), steps), platform)
    # heavy: 15 s on the fast one; light: 10 s on the slow one, 15 + 5 s on the fast one. In the order given,
    # both would be on the fast one: light ends there at 5 s, and heavy at 20 s instead of 30 s.
    assert [(one.step, one.cluster, one.end_s) for one in plan.placements] == [
        ("light", "slow", 10),
        ("heavy", "fast", 15),
    ]


def test_cpop_does_not_choose_a_fast_cluster_that_waits_for_input() -> None:
    steps = (Step("only", Profile((Stage(1, 10.0),)), ("in",)),)
    workflow = Workflow("input", (File("in", 100.0, ("home",)),), steps)
    platform = Platform((Cluster("fast", 1, 2.0), Cluster("home", 1)), Link(1.0))
    # 10 s at home; on the fast one 100 s of moving and 5 s
    assert plan_workflow("cpop", workflow, platform).finish_s == 10


def test_a_wish_that_cannot_be_met_is_one_line() -> None:
    workflow, platform = topcuoglu()
    with pytest.raises(WorkflowError, match="no planner 'best': use greedy"):
        plan_workflow("best", workflow, platform)
    with pytest.raises(WorkflowError, match="the seed is -1"):
        plan_workflow("annealing", workflow, platform, seed=-1)
    large, only = executors_case((1,) * 13)
    with pytest.raises(WorkflowError, match="13 steps on 1 clusters are too many for the exact planner"):
        plan_workflow("exact", large, only)


def test_fair_scheduling_takes_turns() -> None:
    problem = problem_of(*executors_case((1, 1, 1)))
    assert plan_fairly(problem).cluster.tolist() == [0, 0, 0]
    problem = problem_of(*topcuoglu())
    found = plan_fairly(problem)
    assert found.cluster[found.order].tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert finish_s(problem, plan_greedily(problem)) < finish_s(problem, found)
