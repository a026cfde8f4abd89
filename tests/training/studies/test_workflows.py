"""docs/results/liu2022-workflows.md holds what is stored next to it, and its figures are near the print."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from spotweave.agents.named import named_rule, question_rules
from spotweave.agents.workflows.lists import plan_by_heft
from spotweave.agents.workflows.solution import finish_s
from spotweave.envs.simulation.workflows.model import (
    Cluster,
    File,
    Link,
    Platform,
    Profile,
    Stage,
    Step,
    Workflow,
)
from spotweave.envs.simulation.workflows.problem import problem_of
from spotweave.envs.simulation.world import EpisodeKey
from spotweave.envs.workflows_episodes import DrawnWorkflows, WorkflowsConfig, build_workflows
from spotweave.training.evaluation.episodes import Suite, run_suite
from spotweave.training.studies.workflows import chapter_3, spot
from spotweave.training.studies.workflows.planners import PRECISION, lower_bound_s
from tests.agents.test_workflow_planners import brute_force_s
from tests.envs.offers_cases import SPOT_B, case_of, chain
from tests.workflow_cases import drawn


def test_fitted_components_are_near_the_printed_ones() -> None:
    task_s, shuffle_s = chapter_3.fitted()
    for gb, nodes, printed_s in chapter_3.PRINTED_COMPONENTS_S:
        ours_s = task_s * gb / chapter_3.BLOCK_GB / nodes + shuffle_s
        assert ours_s == pytest.approx(printed_s, rel=0.04)


def test_figure_3_5_and_table_3_1_are_near_the_print() -> None:
    finish_min = chapter_3.make_figure_3_5()["finish_min"]
    assert finish_min["1"] == pytest.approx(16.0, rel=0.05)
    assert finish_min["3"] == pytest.approx(6.8, rel=0.05)
    assert finish_min["1"] > finish_min["2"] > finish_min["3"] > finish_min["4"]
    found = chapter_3.make_table_3_1()
    worst = {name: max(one["finish_min"]) for name, one in found.items()}
    assert worst["fair"] == pytest.approx(19.0, rel=0.03)
    assert worst["annealing"] == pytest.approx(5.3, rel=0.03)
    # whatever the sequence, the largest part goes to the largest cluster
    assert found["fair"]["gb"] == [40, 30, 20, 10]
    assert found["annealing"]["gb"] == [10, 20, 30, 40]


def test_the_arrangement_of_table_3_2_takes_as_long_as_printed() -> None:
    # 59 s, 20 s to the first cluster, 23 s, 20 s to the central one, 45 s; 2 MB take 0.02 s more, twice
    assert chapter_3.as_printed().finish_s == pytest.approx(167.04)
    assert chapter_3.as_printed().finish_s / 60 == pytest.approx(chapter_3.PRINTED_TOTAL_MIN, rel=0.05)


@settings(max_examples=25)
@given(drawn(most_steps=4, most_clusters=2))
def test_no_schedule_is_shorter_than_the_bound(case: tuple[Workflow, Platform]) -> None:
    problem = problem_of(*case)
    best_s = brute_force_s(problem)
    for known_s in (best_s, 2 * best_s, finish_s(problem, plan_by_heft(problem))):
        assert lower_bound_s(problem, known_s) <= best_s + 1e-6


def test_the_bound_counts_work_paths_and_moves() -> None:
    # 3 steps of 10 s on two executors, of speed 1 and 2: 30 s / 3 = 10 s if they could be divided
    steps = tuple(Step(f"s{k}", Profile((Stage(1, 10.0),))) for k in range(3))
    platform = Platform((Cluster("slow", 1), Cluster("fast", 1, 2.0)), Link(1.0))
    problem = problem_of(Workflow("three", (), steps), platform)
    assert lower_bound_s(problem, 20.0) == pytest.approx(10, abs=20 * PRECISION)
    # no schedule of less than 10 s has a step on the slow cluster, and 3 * 5 s do not fit on the other
    assert lower_bound_s(problem, 10.0) == 10
    # Steps of 5 s, the last of which reads 8 GB of each of the others: 3 * 5 s on one cluster, 5 + 8 + 5 s on
    # both. Paths without moves say 10 s, work 7.5 s.
    files = (File("a", 8.0), File("b", 8.0))
    joined = (
        Step("one", steps[0].profile, (), ("a",)),
        Step("two", steps[0].profile, (), ("b",)),
        Step("both", steps[0].profile, ("a", "b")),
    )
    pair = Platform((Cluster("one", 1, 2.0), Cluster("two", 1, 2.0)), Link(1.0))
    problem = problem_of(Workflow("join", files, joined), pair)
    assert lower_bound_s(problem, 18.0) == pytest.approx(15, abs=18 * PRECISION)


def test_a_late_step_of_one_path_and_an_early_one_of_another_refute_nothing() -> None:
    # Chains of 18 + 2 s and of 2 + 18 s, on two executors: 20 s. No step starts at 18 s with 18 s behind it.
    chains = tuple(
        step
        for name, first_s, last_s in (("a", 18.0, 2.0), ("b", 2.0, 18.0))
        for step in (
            Step(f"{name}1", Profile((Stage(1, first_s),), executors=1), (), (name,)),
            Step(f"{name}2", Profile((Stage(1, last_s),), executors=1), (name,)),
        )
    )
    workflow = Workflow("chains", (File("a", 0.0), File("b", 0.0)), chains)
    problem = problem_of(workflow, Platform((Cluster("only", 2),), Link(1.0)))
    assert lower_bound_s(problem, 30.0) == pytest.approx(20, abs=30 * PRECISION)


# The table of workflows on spot offers: its bound, worked by hand, and what is written.


def test_the_bound_by_hand() -> None:
    # The owned cluster has time for all 900 s.
    assert spot.lower_bound_usd(case_of(chain(deadline_s=10_000))) == pytest.approx(0.0)
    # It has time for 500 of the 600 and 240 s that the steps take in truth; the rest costs 0.0005 USD/s.
    slow = case_of(chain(deadline_s=500), actual=[1.0, 0.8])
    assert spot.lower_bound_usd(slow) == pytest.approx(340 * 0.0005)
    # The cheap spot offer comes too late, and the other one costs twice as much.
    late = case_of(chain(deadline_s=500), ends_s=[(SPOT_B, 0, 500)])
    assert spot.lower_bound_usd(late) == pytest.approx(400 * 0.001)


@pytest.mark.parametrize("family", ["montage", "blast"])
def test_no_rule_undercuts_the_bound(family: str) -> None:
    config, suite = WorkflowsConfig(family=family, steps=20), Suite("any", "validation", seed=9, episodes=4)
    bounds = [spot.lower_bound_usd(DrawnWorkflows(config).case(key)) for key in suite.episode_keys()]
    assert any(bounds)
    for rule in question_rules("workflows"):
        for bound, result in zip(
            bounds, run_suite(build_workflows(config, 4), named_rule(rule), suite), strict=True
        ):
            assert bound <= result.metrics["cost_usd"] + 1e-9


def test_the_test_episodes_are_of_other_days_than_those_on_which_anything_was_chosen() -> None:
    assert spot.TEST.split == "test"
    source = DrawnWorkflows(WorkflowsConfig())
    prints = [source.case(EpisodeKey(spot.TEST.seed, split, 0)).quotes[2] for split in ("test", "validation")]
    assert prints[0].digest() != prints[1].digest()


@pytest.mark.real
def test_the_released_policy_pays_less_than_all_rules_and_keeps_the_deadlines() -> None:
    world, suite = build_workflows(WorkflowsConfig(), 16), Suite("some", "test", seed=31, episodes=16)
    learned = run_suite(world, spot._learned(world.spec), suite)
    usd = sum(one.metrics["cost_usd"] for one in learned)
    assert not any(one.metrics["missed"] for one in learned)
    for rule in question_rules("workflows"):
        assert usd < sum(one.metrics["cost_usd"] for one in run_suite(world, named_rule(rule), suite))


def test_policies_are_compared_by_their_costs_of_all_episodes() -> None:
    usd = dict.fromkeys((*spot.RULES, spot.LEARNED), 4.0) | {spot.LEARNED: 3.0, "workflow_cost": 3.5}
    columns = {
        name: {metric: [value * (k + 1) for k in range(3)] for metric in spot.METRICS}
        for name, value in usd.items()
    }
    against = spot._measured(columns)["against"][spot.LEARNED]
    assert against["workflow_cost"]["mean"] == pytest.approx(-100 / 7)
