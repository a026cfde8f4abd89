"""Simulated running: by hand, against checks that use no arrays, and attempts to move private data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.documents.workflows import workflow_of
from envs.simulation.workflows import model
from envs.simulation.workflows.plan import plan_document, plan_of, require_possible, violations
from envs.simulation.workflows.problem import problem_of
from tests.workflow_cases import GIS, drawn


def test_a_schedule_by_hand() -> None:
    workflow, platform = workflow_of(GIS)
    problem = problem_of(workflow, platform)
    # sum-1 on first, sum-2 on second, mean at the centre
    plan = plan_of(workflow, platform, problem, np.array([0, 1, 2]), np.array([0, 1, 2]))
    placed = {one.step: one for one in plan.placements}
    # 34 s as computed from equation 3.1; sum-2 reads where it lies: 6 * 8 / 4 / speed 2 = 6 s
    assert (placed["sum-1"].start_s, placed["sum-1"].end_s) == (0, 34)
    assert (placed["sum-2"].start_s, placed["sum-2"].end_s) == (0, 6)
    # sums-1 leaves first at 34: 20 + 0.5 / 0.1 = 25 s; sums-2 has long arrived (6 + 25)
    assert (placed["mean"].start_s, placed["mean"].end_s) == (59, 63)
    assert [(move.file, move.source, move.start_s, move.end_s) for move in plan.moves()] == [
        ("sums-1", "first", 34, 59),
        ("sums-2", "second", 6, 31),
    ]
    assert plan.late_s == 0
    assert replace(plan, workflow=replace(workflow, deadline_s=60.0)).late_s == 3
    assert plan.cost_usd == pytest.approx(4 * 8 * 0.5 / 3600)  # 4 s of all 8 executors; the rest is owned
    assert plan_document(plan, "by hand")["finish_s"] == 63


def executors_case(executors: tuple[int | None, ...]) -> tuple[model.Workflow, model.Platform]:
    """Independent steps of 10 s of work for each executor they occupy, on one cluster of 4 executors."""
    steps = tuple(
        model.Step(f"s{k}", model.Profile((model.Stage(n or 4, 10.0),), executors=n))
        for k, n in enumerate(executors)
    )
    return model.Workflow("executors", (), steps), model.Platform(
        (model.Cluster("only", 4),), model.Link(1.0)
    )


@pytest.mark.parametrize(
    ("executors", "starts_s"),
    [
        ((1, 1, 2, 1), [0, 0, 0, 10]),  # four fit at once, the fifth waits
        ((3, 2, 1), [0, 10, 0]),  # s1 does not fit beside s0, s2 does
        ((None, 1), [0, 10]),  # the whole cluster
        ((2, 3, 2), [0, 10, 20]),  # in this order s1 has 3 of the 4 until 20
    ],
)
def test_steps_share_executors(executors: tuple[int | None, ...], starts_s: list[float]) -> None:
    workflow, platform = executors_case(executors)
    problem = problem_of(workflow, platform)
    n = len(executors)
    plan = plan_of(workflow, platform, problem, np.zeros(n, np.int64), np.arange(n))
    placed = {one.step: one.start_s for one in plan.placements}
    assert [placed[f"s{k}"] for k in range(n)] == starts_s
    assert violations(plan) == []


@settings(max_examples=60, deadline=None)
@given(drawn(), st.integers(0, 1000))
def test_any_placement_on_allowed_clusters_can_be_carried_out(
    case: tuple[model.Workflow, model.Platform], seed: int
) -> None:
    workflow, platform = case
    problem = problem_of(workflow, platform)
    generator = np.random.default_rng(seed)
    cluster = np.array([generator.choice(np.flatnonzero(row)) for row in problem.executors > 0])
    plan = plan_of(workflow, platform, problem, cluster, problem.topological)
    assert violations(plan) == []


def private_case() -> tuple[model.Workflow, model.Platform]:
    """Private data at a slow cluster; every other one is a thousand times as fast."""
    files = (model.File("private", 1.0, ("slow",), model.Stays.CLUSTER), model.File("sums", 0.1))
    steps = (
        model.Step("sum", model.Profile((model.Stage(10, 10.0),)), ("private",), ("sums",)),
        model.Step("report", model.Profile((model.Stage(10, 10.0),)), ("sums", "private")),
    )
    fast = tuple(model.Cluster(f"fast-{k}", 10, 1000.0) for k in range(3))
    return model.Workflow("private", files, steps), model.Platform(
        (*fast, model.Cluster("slow", 1)), model.Link(1000.0)
    )


def test_a_plan_that_takes_private_data_elsewhere_is_refused() -> None:
    workflow, platform = private_case()
    problem = problem_of(workflow, platform)
    at_home = plan_of(workflow, platform, problem, np.array([3, 3]), np.array([0, 1]))
    assert require_possible(at_home).moves() == ()
    for k, placed in enumerate(at_home.placements):
        placements = list(at_home.placements)
        # 10 tasks of 10 s on 10 executors of speed 1000
        placements[k] = replace(placed, cluster="fast-0", end_s=placed.start_s + 0.01)
        broken = replace(at_home, placements=tuple(placements))
        assert f"step {placed.step} runs on fast-0, which may not run it" in violations(broken)
        assert "the private file private is moved to fast-0" in violations(broken)
        with pytest.raises(model.WorkflowError, match="cannot be carried out"):
            require_possible(broken)


def test_data_that_stay_in_a_region_move_within_it_only() -> None:
    files = (model.File("private", 2.0, ("a",), model.Stays.REGION),)
    workflow = model.Workflow(
        "regions", files, (model.Step("s", model.Profile((model.Stage(1, 1.0),)), ("private",)),)
    )
    clusters = (
        model.Cluster("a", 1, region="eu"),
        model.Cluster("b", 1, region="eu"),
        model.Cluster("c", 1, region="us"),
    )
    platform = model.Platform(clusters, model.Link(1.0))
    problem = problem_of(workflow, platform)
    assert np.isfinite(problem.run_s).tolist() == [[True, True, False]]
    moved = plan_of(workflow, platform, problem, np.array([1]), np.array([0]))
    assert [(move.target, move.end_s) for move in require_possible(moved).moves()] == [("b", 2.0)]


def tampered(field: str) -> list[str]:
    """What is found where one field of the GIS plan is wrong."""
    workflow, platform = workflow_of(GIS)
    plan = plan_of(
        workflow, platform, problem_of(workflow, platform), np.array([0, 1, 2]), np.array([0, 1, 2])
    )
    changes = {
        "early": lambda one: replace(one, start_s=one.start_s - 1, end_s=one.end_s - 1),
        "short": lambda one: replace(one, end_s=one.end_s - 1),
        "before": lambda one: replace(one, start_s=0.0, end_s=4.0),
    }
    placements = tuple(changes[field](one) if one.step == "mean" else one for one in plan.placements)
    return violations(replace(plan, placements=placements))


def test_what_is_wrong_with_a_plan_is_found() -> None:
    assert tampered("early") == ["step mean starts before the file sums-1 is at centre"]
    assert tampered("short") == ["step mean runs 3 s, expected 4 s"]
    assert "step mean starts before the file sums-2 is written" in tampered("before")
    workflow, platform = executors_case((3, 2))
    plan = plan_of(workflow, platform, problem_of(workflow, platform), np.zeros(2, np.int64), np.arange(2))
    first, second = plan.placements
    together = replace(plan, placements=(first, replace(second, start_s=0.0, end_s=10.0)))
    assert "5 executors in use on only, it has 4" in violations(together)
    assert violations(replace(plan, placements=(first, first))) == [
        "step s0 runs 2 times",
        "step s1 runs 0 times",
    ]
