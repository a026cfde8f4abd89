"""Workflows carried out on rented offers: bills, interruptions and the guard by hand, laws, and draws."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotweave.envs.documents.workflows import workflow_of
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import StepSeries
from spotweave.envs.simulation.workflows import model
from spotweave.envs.simulation.workflows.execution import Execution
from spotweave.envs.simulation.workflows.families import FAMILIES
from spotweave.envs.simulation.workflows.model import Stays, WorkflowError
from spotweave.envs.simulation.workflows.options import Habits, Quotes, Reserve, on_demand_s, on_demand_usd
from spotweave.envs.simulation.workflows.plan import (
    Plan,
    plan_document,
    plan_of,
    require_possible,
    violations,
)
from spotweave.envs.simulation.workflows.problem import problem_of
from spotweave.envs.simulation.workflows.world import WorkflowWorld
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.envs.workflows_episodes import DrawnWorkflows, WorkflowsConfig, build_workflows
from tests.envs.checks import answer, check, to_the_end, valid
from tests.envs.offers_cases import (
    DEMAND_A,
    DEMAND_B,
    NONE,
    OFFERS,
    OWNED,
    SPOT_A,
    SPOT_B,
    begun,
    case_of,
    chain,
    fan,
)
from tests.workflow_cases import GIS, drawn


def test_an_instance_is_billed_from_its_launch_and_takes_the_next_step_at_once() -> None:
    world = begun(case_of(chain()))
    assert valid(world) == [OWNED, SPOT_A, DEMAND_A, SPOT_B, DEMAND_B, NONE]
    assert world.observation["pairs"][0, 0, SPOT_A, col.FINISH_S] == 700
    first, _ = answer(world, SPOT_A)
    assert world.execution(0).now_s == 700
    assert world.observation["clusters"][0, :, col.LAUNCH_S].tolist() == [0, 0, 100, 100, 100]
    rest, done = answer(world, SPOT_A)
    assert done
    # 100 + 600 + 300 s at 0.001 USD; all the work on demand is 900 s at 0.004 USD.
    check(
        world.metrics(0), cost_usd=1.0, makespan_s=1000, cost_index=100 * 1.0 / 3.6, unused_usd=0.1
    )  # the launch
    assert first + rest == pytest.approx(-100 * 1.0 / 3.6)


def test_files_move_while_an_instance_launches_and_are_paid_for_once() -> None:
    world = begun(case_of(fan(2)))
    pairs = world.observation["pairs"][0, 0]
    # 10 s and 1 GB at 0.1 GB/s: 20 s, within the 100 s of a launch.
    assert pairs[SPOT_B, col.TRANSFER_S] == 0
    assert pairs[SPOT_B, col.EGRESS_USD] == pytest.approx(0.02)
    answer(world, SPOT_B)
    assert world.observation["pairs"][0, 0, SPOT_B, col.EGRESS_USD] == 0
    answer(world, SPOT_B)
    # Two instances, 700 s each, at 0.0005 USD.
    check(world.metrics(0), cost_usd=0.02 + 1400 * 0.0005)
    # The owned cluster launches nothing: there the step waits for what has been written in region b.
    other = begun(case_of(chain()))
    answer(other, SPOT_B)
    assert other.observation["pairs"][0, 0, OWNED, col.FINISH_S] == 320


def test_private_files_are_a_hard_mask() -> None:
    world = begun(case_of(chain(stays=Stays.REGION)))
    assert valid(world) == [OWNED, SPOT_A, DEMAND_A, NONE]
    answer(world, SPOT_A)
    assert valid(world) == [OWNED, SPOT_A, DEMAND_A, SPOT_B, DEMAND_B, NONE]  # results may leave
    assert valid(begun(case_of(chain(stays=Stays.CLUSTER)))) == [OWNED, NONE]


def test_a_step_that_only_spot_may_run_is_refused() -> None:
    workflow = chain()
    first = replace(workflow.steps[0], clusters=(OFFERS[SPOT_A].name,))
    with pytest.raises(WorkflowError, match="step 'first' may run on spot offers only: expected an owned"):
        begun(case_of(replace(workflow, steps=(first, workflow.steps[1]))))


def test_an_interrupted_step_starts_again_and_its_time_is_paid_for() -> None:
    world = begun(case_of(chain(), ends_s=[(SPOT_A, 400, 5000)]))
    answer(world, SPOT_A)
    assert world.execution(0).now_s == 400
    assert SPOT_A not in valid(world)
    assert world.observation["jobs"][0, 0, col.INTERRUPTIONS] == 1
    answer(world, DEMAND_A, DEMAND_A)
    check(world.metrics(0), cost_usd=400 * 0.001 + 1000 * 0.004, lost_s=300, makespan_s=1400)


def test_a_picture_shows_what_ran_what_was_rented_and_what_was_lost() -> None:
    world = begun(case_of(chain(), ends_s=[(SPOT_A, 400, 5000)]))
    answer(world, SPOT_A, DEMAND_A)
    shown = world.timeline()
    ran = [(one.job, one.cluster, one.start, one.end) for one in shown.segments]
    assert ran == [(0, SPOT_A, 100, 400), (0, DEMAND_A, 500, 1100)]
    assert list(shown.interruptions) == [(400, SPOT_A)]
    assert [shown.capacity[SPOT_A].at(time_s) for time_s in (0, 399, 400)] == [1, 1, 0]
    assert [shown.used[SPOT_A].at(time_s) for time_s in (0, 100, 400)] == [0, 1, 0]
    assert shown.capacity[OWNED].at(0) == 1


def test_a_step_that_ends_when_its_offer_does_has_ended() -> None:
    world = begun(case_of(chain(), ends_s=[(SPOT_A, 700, 5000)]))
    answer(world, SPOT_A)
    assert world.execution(0).steps_left == 1
    assert world.observation["jobs"][0, 0, col.INTERRUPTIONS] == 0


def test_an_idle_instance_is_kept_or_given_back_and_billed_for_a_minute_at_least() -> None:
    world = begun(case_of(chain(), actual=[0.8, 1.0]))
    answer(world, OWNED)
    answer(world, DEMAND_A)  # ends at 480 + 100 + 300 s
    check(world.metrics(0), cost_usd=400 * 0.004)
    kept = begun(case_of(chain()))
    answer(kept, SPOT_A, OWNED)  # at 700 s the instance is idle and the second step runs elsewhere
    assert valid(kept) == [SPOT_A, NONE]
    assert kept.observation["jobs"][0, 0, col.IDLE] == 1
    _, done = answer(kept, NONE)
    assert done
    check(kept.metrics(0), cost_usd=0.7)
    brief = begun(case_of(fan(1), ends_s=[(SPOT_A, 30, 100)]))
    answer(brief, SPOT_A, OWNED)
    check(brief.metrics(0), cost_usd=0.03)  # the provider took it


def test_what_on_demand_needs_at_most_by_hand() -> None:
    reserve = Reserve(case_of(chain()))
    # A launch, the input where it lies, and a fifth more than 600 s; then a file from the other region.
    assert reserve.need_s.tolist() == [100 + 720, 100 + 20 + 360]
    assert reserve.tail_s.tolist() == [480, 0]
    assert reserve.least_s == 1300
    assert on_demand_s(case_of(chain())) == 1000
    assert on_demand_usd(case_of(chain())) == pytest.approx(3.6)


@pytest.mark.parametrize(
    ("deadline_s", "actions"),
    [
        (1199, [OWNED, DEMAND_A, DEMAND_B]),  # nothing is certain any more: all but spot
        (1200, [OWNED]),  # 720 + 480
        (1300, [OWNED, DEMAND_A, DEMAND_B]),  # 100 more for a launch
        (1599, [OWNED, DEMAND_A, DEMAND_B]),
        (1600, [OWNED, DEMAND_A, DEMAND_B, NONE]),  # asked again after 300 s
        (2119, [OWNED, DEMAND_A, DEMAND_B, NONE]),
        (2120, [OWNED, SPOT_A, DEMAND_A, SPOT_B, DEMAND_B, NONE]),  # 820 on spot and 820 again
    ],
)
def test_spot_is_tried_only_where_on_demand_could_do_it_again(deadline_s: float, actions: list[int]) -> None:
    assert valid(begun(case_of(chain(deadline_s)))) == actions


def test_once_a_step_waits_those_behind_it_wait_too() -> None:
    world = begun(case_of(fan(3)))
    answer(world, SPOT_A)
    assert world.observation["jobs"][0, 0, col.BACKLOG] == 1
    answer(world, NONE)
    assert world.execution(0).now_s == 300  # nobody was asked about the third
    assert world.question(0).step == 1
    answer(world, NONE, NONE)
    assert world.execution(0).now_s == 700
    assert world.observation["clusters"][0, SPOT_A, col.LAUNCH_S] == 0


def test_what_is_expected_of_a_round() -> None:
    world = begun(case_of(fan(3)))
    answer(world, SPOT_A)
    row = world.observation["jobs"][0, 0]
    # One instance will be idle at 700 s on the owned executor at once: 600, then 700 + 600... the owned one
    # takes the second step until 600 s and the third until 1,200 s.
    assert row[[col.ROUND_LEFT_S, col.ROUND_S]].tolist() == [700, 1200]
    answer(world, OWNED)
    assert world.observation["jobs"][0, 0, [col.ROUND_LEFT_S, col.ROUND_S]].tolist() == [600, 1200]
    world = begun(case_of(chain()))
    answer(world, SPOT_A, OWNED)
    # Nothing will come: until the deadline.
    assert world.observation["jobs"][0, 0, col.ROUND_LEFT_S] == 10_000 - 700


def test_prices_and_the_past_of_an_offer() -> None:
    price = StepSeries(np.array([0, 1800]), np.array([1.0, 3.0]))
    availability = StepSeries(np.array([-3600, -1800, 0, 900]), np.array([1.0, 0.0, 1.0, 0.0]))
    quotes = Quotes(price, availability)
    assert quotes.cost_usd(900, 2700) == pytest.approx(0.25 + 0.75)
    assert [quotes.available(at_s) for at_s in (0, 899, 900)] == [True, True, False]
    assert quotes.changes_s() == [900]
    assert quotes.least_usd_hour(3600) == 1.0
    # Up for 1800 and 900 s of 5400 s, in two spells.
    assert quotes.habits(1800) == Habits(0.5, 900, 1350)
    assert quotes.habits(-3600).up_ratio == 0.0


def _check(execution: Execution) -> None:
    """Laws that every execution keeps, whatever was decided."""
    case = execution.case
    whole = {one.step: one for one in execution.attempts if one.whole}
    assert Counter(one.step for one in execution.attempts if one.whole) == Counter(range(len(case.before)))
    for step, one in whole.items():
        assert case.may[step, one.place]
        run_s = case.problem.run_s[step, one.place] * case.actual[step]
        assert one.end_s - one.start_s == pytest.approx(run_s)
        assert all(whole[earlier].end_s <= one.start_s + 1e-6 for earlier in case.before[step])
    for attempt in execution.attempts:
        if case.spot[attempt.place] and attempt.end_s > attempt.start_s:
            for time_s in (attempt.start_s, (attempt.start_s + attempt.end_s) / 2):
                assert case.quotes[attempt.place].available(time_s)
    for c, offer in enumerate(case.offers):
        spans = [(a.start_s, a.end_s) for a in execution.attempts if a.place == c and a.end_s > a.start_s]
        most = max((sum(s <= start < e for s, e in spans) for start, _ in spans), default=0)
        assert most <= offer.quota


def waiting_often(world: WorkflowWorld, seed: int) -> float:
    """Any valid answers; with some seeds mostly waiting, which comes close to the deadline."""
    rng = np.random.default_rng(seed)
    waits = rng.random()
    return to_the_end(
        world, lambda: valid(world)[-1] if rng.random() < waits else int(rng.choice(valid(world)))
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_no_valid_answers_miss_the_deadline_and_the_laws_hold(family: str) -> None:
    world = build_workflows(WorkflowsConfig(family=family, steps=30))
    for index in range(4):
        world.reset([EpisodeKey(3, "test", index)])
        total = waiting_often(world, index)
        metrics = world.metrics(0)
        assert metrics["missed"] == 0
        assert -total == pytest.approx(metrics["cost_index"])
        _check(world.execution(0))


def test_a_deadline_that_cannot_be_kept_is_missed_and_counts() -> None:
    world = begun(case_of(chain(500)))
    assert valid(world) == [OWNED, DEMAND_A, DEMAND_B]
    answer(world, OWNED, OWNED)
    check(world.metrics(0), cost_index=100, missed=1)


def test_what_is_drawn_lies_within_its_bounds_and_what_is_given_is_taken() -> None:
    given = DrawnWorkflows(WorkflowsConfig(deadline_factor=3.0, mean_run_s=600, private_share=1.0))
    for index in range(10):
        case = given.case(EpisodeKey(0, "validation", index))
        assert case.deadline_s == pytest.approx(3.0 * on_demand_s(case))
        assert Reserve(case).least_s <= case.deadline_s
        assert np.mean([step.profile.stages[0].task_s for step in case.workflow.steps]) == pytest.approx(600)
        assert np.all(np.abs(case.actual - 1) <= 0.2)
        assert {file.stays for file in case.workflow.files if file.at} <= {Stays.REGION}
        homes = {file.at for file in case.workflow.files if file.at}
        assert len(homes) == 1


def test_other_clouds_and_recorded_workflows_play(tmp_path: Path) -> None:
    file = tmp_path / "instance.json"
    first, second = ({"name": "x", "sizeInBytes": 1e9, "link": link} for link in ("output", "input"))
    tasks = [
        {"name": "a", "runtimeInSeconds": 900, "files": [first]},
        {"name": "b", "parents": ["a"], "runtimeInSeconds": 60, "files": [second]},
    ]
    file.write_text(json.dumps({"name": "two", "schemaVersion": "1.4", "workflow": {"tasks": tasks}}))
    world = build_workflows(WorkflowsConfig(instance=str(file), providers=["aws", "gcp"]))
    assert world.spec.n_clusters == 21
    world.reset([EpisodeKey(0, "test", 0)])
    to_the_end(world, lambda: valid(world)[0])
    assert len(world.execution(0).attempts) == 2


# Simulated running: by hand, against checks that use no arrays, and attempts to move private data.


def planned(case: tuple[model.Workflow, model.Platform], *clusters: int) -> Plan:
    """The steps, as they are given, on these clusters."""
    return plan_of(*case, problem_of(*case), np.array(clusters, np.int64), np.arange(len(clusters)))


def test_a_schedule_by_hand() -> None:
    # sum-1 on first, sum-2 on second, mean at the centre
    plan = planned(workflow_of(GIS), 0, 1, 2)
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
    assert replace(plan, workflow=replace(plan.workflow, deadline_s=60.0)).late_s == 3
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
    plan = planned(executors_case(executors), *[0] * len(executors))
    placed = {one.step: one.start_s for one in plan.placements}
    assert [placed[f"s{k}"] for k in range(len(executors))] == starts_s
    assert violations(plan) == []


@settings(max_examples=60)
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
    at_home = planned(private_case(), 3, 3)
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
    assert np.isfinite(problem_of(workflow, platform).run_s).tolist() == [[True, True, False]]
    moved = planned((workflow, platform), 1)
    assert [(move.target, move.end_s) for move in require_possible(moved).moves()] == [("b", 2.0)]


def tampered(field: str) -> list[str]:
    """What is found where one field of the GIS plan is wrong."""
    plan = planned(workflow_of(GIS), 0, 1, 2)
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
    plan = planned(executors_case((3, 2)), 0, 0)
    first, second = plan.placements
    together = replace(plan, placements=(first, replace(second, start_s=0.0, end_s=10.0)))
    assert "5 executors in use on only, it has 4" in violations(together)
    assert violations(replace(plan, placements=(first, first))) == [
        "step s0 runs 2 times",
        "step s1 runs 0 times",
    ]
