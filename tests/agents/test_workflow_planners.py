"""Workflows: planners, the annealing's inner loop, how steps are divided, and the rules on rented offers."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from spotweave.agents.named import named_rule, question_rules
from spotweave.agents.policy import Policy
from spotweave.agents.workflows.annealing import (
    AnnealingSettings,
    anneal,
    critical_steps,
    plan_by_annealing,
    plan_fairly,
    plan_greedily,
)
from spotweave.agents.workflows.exact import plan_exactly
from spotweave.agents.workflows.lists import (
    downward_rank_s,
    least_tail_s,
    plan_by_cpop,
    plan_by_heft,
    plans_on_fewer,
    upward_rank_s,
)
from spotweave.agents.workflows.online import WorkflowCost, WorkflowParameters, seen, weigh
from spotweave.agents.workflows.planners import PLANNERS, plan_workflow
from spotweave.agents.workflows.solution import DRAWS, Solution, finish_s, graph_of
from spotweave.agents.workflows.split import SplitSettings, transform
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.workflows.model import (
    Cluster,
    Divisible,
    File,
    Link,
    Platform,
    Profile,
    Stage,
    Stays,
    Step,
    Workflow,
    WorkflowError,
    files_by_name,
    input_gb,
    run_s,
)
from spotweave.envs.simulation.workflows.plan import times_s, violations, work_space
from spotweave.envs.simulation.workflows.problem import Problem, problem_of, simulate
from spotweave.envs.simulation.workflows.world import WorkflowWorld
from tests.envs.checks import answer, by_policy, decided
from tests.envs.offers_cases import DEMAND_A, NONE, OWNED, SPOT_A, SPOT_B, begun, case_of, chain, fan
from tests.envs.test_workflow_episodes import executors_case, private_case
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
    np.testing.assert_array_equal(found, plan_by_annealing(problem, seed=3))


@pytest.mark.real
def test_73_is_the_optimum_of_the_example() -> None:
    problem = problem_of(*topcuoglu())
    assert finish_s(problem, plan_exactly(problem)) == pytest.approx(73)


def test_a_model_that_is_not_solved_in_time_is_one_line() -> None:
    with pytest.raises(WorkflowError, match="not solved in 0 s: use fewer steps, or annealing"):
        plan_exactly(problem_of(*topcuoglu()), time_limit_s=0)


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
@settings(max_examples=15)
@given(drawn(most_steps=4, most_clusters=2))
def test_the_exact_planner_finds_what_brute_force_finds(case: tuple[Workflow, Platform]) -> None:
    problem = problem_of(*case)
    assert finish_s(problem, plan_exactly(problem)) == pytest.approx(brute_force_s(problem))


@settings(max_examples=40)
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
    assert (plan.finish_s, plan.moves()) == (200, ())


def test_greedy_takes_the_heaviest_first_and_where_it_ends_first() -> None:
    steps = (Step("light", Profile((Stage(1, 10.0),))), Step("heavy", Profile((Stage(1, 30.0),))))
    platform = Platform((Cluster("slow", 1), Cluster("fast", 1, 2.0)), Link(1.0))
    plan = plan_workflow("greedy", Workflow("two", (), steps), platform)
    # heavy: 15 s on the fast one; light: 10 s on the slow one, 15 + 5 s on the fast one. In the order given,
    # both would be on the fast one: light ends there at 5 s, and heavy at 20 s instead of 30 s.
    placed = [(one.step, one.cluster, one.end_s) for one in plan.placements]
    assert placed == [("light", "slow", 10), ("heavy", "fast", 15)]


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
    assert plan_fairly(problem_of(*executors_case((1, 1, 1)))).cluster.tolist() == [0, 0, 0]
    problem = problem_of(*topcuoglu())
    found = plan_fairly(problem)
    assert found.cluster[found.order].tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert finish_s(problem, plan_greedily(problem)) < finish_s(problem, found)


# The inner loop of the annealing: what it evaluates, the critical path, and where its lanes begin.


def seconds(name: str, run_s: float, reads: tuple[str, ...] = (), writes: tuple[str, ...] = ()) -> Step:
    """A step of one executor for so long."""
    return Step(name, Profile((Stage(1, run_s),), executors=1), reads, writes)


@settings(max_examples=40)
@given(drawn())
def test_a_schedule_within_its_limit_ends_as_simulated_and_no_other_ends(
    case: tuple[Workflow, Platform],
) -> None:
    problem = problem_of(*case)
    solution = plan_by_heft(problem)
    whole_s, tail_s, n = finish_s(problem, solution), least_tail_s(problem), len(solution.order)
    for limit_s, expected_s in ((np.inf, whole_s), (whole_s, whole_s), (whole_s - 1e-3, np.inf)):
        space = (work_space(problem), np.zeros(n), np.zeros(n))
        assert simulate(problem, tail_s, limit_s, *solution, *space) == expected_s


@pytest.mark.parametrize(("other_s", "before"), [(12.0, 0), (20.0, 1)])
def test_the_critical_path_goes_by_the_file_or_by_the_executor_that_comes_last(
    other_s: float, before: int
) -> None:
    # The first ends at 10 s, and its file is at the other cluster at 15 s, where one that takes 12 or 20 s is
    # before the last: that starts at 15 s because of the file, or at 20 s because of the executor.
    writes, reads = seconds("writes", 10.0, (), ("file",)), seconds("reads", 10.0, ("file",))
    steps = (writes, seconds("other", other_s), reads)
    platform = Platform((Cluster("one", 1), Cluster("two", 1)), Link(1.0))
    problem = problem_of(Workflow("three", (File("file", 5.0),), steps), platform)
    cluster, found = np.array([0, 1, 1]), np.zeros(3, np.int64)
    count = critical_steps(problem, cluster, *times_s(problem, cluster, np.array([0, 1, 2])), found)
    assert found[:count].tolist() == [2, before]


def joined(steps: int) -> Problem:
    """Steps of 10 s on one of two clusters, and a last one that reads 8 GB of each, at 1 GB/s."""
    files = tuple(File(f"f{k}", 8.0) for k in range(steps))
    each = tuple(seconds(f"s{k}", 10.0, (), (f"f{k}",)) for k in range(steps))
    last = seconds("last", 10.0, tuple(file.name for file in files))
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
    steps = tuple(seconds(f"s{k}", run_s) for k, run_s in enumerate(lengths_s))
    platform = Platform(tuple(Cluster(f"c{k}", 1) for k in range(12)), Link(1.0))
    problem = problem_of(Workflow("many", (), steps), platform)
    start, heat = (np.zeros(120, np.int64), np.arange(120)), np.full(6_000, 1e-9)
    draws = np.random.default_rng(0).random((6_000, DRAWS + 1))
    found = anneal(problem, graph_of(problem), least_tail_s(problem), *start, heat, draws)
    assert sum(lengths_s) / 12 <= finish_s(problem, Solution(*found)) <= 1.03 * sum(lengths_s) / 12


# Algorithm 1 of Liu 2022: what is divided, what is combined, and that the work remains the same.

NAMES = ("a", "b", "c")
PLATFORM = Platform((Cluster("a", 2), Cluster("b", 4), Cluster("c", 6)), Link(0.1))
COLLECT = Divisible(0.002, Profile((Stage(1, 49.0),)))
# 800 tasks of 8 s
COUNT = Step("count", Profile((Stage(800, 8.0),)), ("text",), ("counts",), divisible=COLLECT)
WORDCOUNT = Workflow("wordcount", (File("text", 102.4, NAMES), File("counts", 0.002)), (COUNT,))


def test_a_step_is_divided_in_proportion_to_the_clusters_that_have_its_input() -> None:
    # 102.4 GB are 800 blocks of 0.128 GB, more than 10 * 6 executors
    found = transform(WORDCOUNT, PLATFORM)
    files = files_by_name(found)
    assert [step.name for step in found.steps] == ["count-1", "count-2", "count-3", "count-collect"]
    assert [input_gb(step, files) for step in found.steps[:3]] == pytest.approx([51.2, 102.4 / 3, 102.4 / 6])
    assert files["text.1"].at == NAMES
    # half of 800 * 8 s / 6 executors; the part that is not, whatever its size, is the collecting step
    assert run_s(found.steps[0], 51.2, PLATFORM.cluster("c")) == pytest.approx(800 * 8 / 6 / 2)
    collect = found.steps[3]
    assert (collect.reads, collect.writes) == (("count-1.part", "count-2.part", "count-3.part"), ("counts",))
    assert collect.profile == COLLECT.collect


@pytest.mark.parametrize(
    ("settings", "workflow"),
    [
        (SplitSettings(most_blocks=800), WORDCOUNT),  # 800 blocks are not more than that
        (SplitSettings(most_parts=1), WORDCOUNT),
        (SplitSettings(), replace(WORDCOUNT, steps=(replace(COUNT, divisible=None),))),
        (SplitSettings(), replace(WORDCOUNT, files=(File("text", 102.4, ("a",)), WORDCOUNT.files[1]))),
    ],
)
def test_a_step_stays_whole(settings: SplitSettings, workflow: Workflow) -> None:
    assert transform(workflow, PLATFORM, settings) == workflow


def test_the_largest_clusters_are_taken_where_parts_are_limited() -> None:
    found = transform(WORDCOUNT, PLATFORM, SplitSettings(most_parts=2))
    assert [file.gb for file in found.files[:2]] == pytest.approx([102.4 * 0.6, 102.4 * 0.4])


def test_a_private_input_stays_private_in_its_pieces() -> None:
    private = replace(WORDCOUNT, files=(File("text", 102.4, ("a", "b"), Stays.CLUSTER), WORDCOUNT.files[1]))
    found = transform(private, PLATFORM)
    assert [(file.at, file.stays) for file in found.files[:2]] == [(("a", "b"), Stays.CLUSTER)] * 2


def test_a_dependent_step_is_divided_by_its_blocks_and_its_writer_writes_the_pieces() -> None:
    first = Step("parse", Profile((Stage(8, 1.0),)), ("raw",), ("text",))
    files = (File("raw", 0.1, ("a",)), File("text", 102.4), File("counts", 0.002))
    second = replace(COUNT, profile=Profile(run_s={"a": 90.0}))
    workflow = Workflow("chain", files, (first, second))
    found = transform(workflow, PLATFORM, SplitSettings(most_blocks=300))
    # 800 blocks / 300: three parts
    assert found.steps[0].writes == ("text.1", "text.2", "text.3")
    assert [step.profile.run_s["a"] for step in found.steps[1:4]] == [30.0] * 3


def two_steps(first_gb: float, *, elsewhere: bool = False) -> Workflow:
    """Two steps of which the first writes `first_gb` and the second 1 GB."""
    given = (File("in", 2.0, ("a",)), File("side", 1.0, ("b" if elsewhere else "a",)))
    files = (*given, File("between", first_gb), File("out", 1.0))
    first = Step("first", Profile((Stage(4, 3.0, 1.0),), sample_gb=1.0, executors=2), ("in",), ("between",))
    second = Step("second", Profile((Stage(2, 5.0),), executors=1), ("between", "side"), ("out",))
    return Workflow("chain", files, (first, second))


def test_steps_are_combined_where_that_keeps_much_data_from_moving() -> None:
    found = transform(two_steps(4.0), PLATFORM)  # 1 of 5 GB are left, less than half
    assert [step.name for step in found.steps] == ["first+second"]
    whole = found.steps[0]
    assert (whole.reads, whole.writes, whole.profile.executors) == (("in", "side"), ("out",), 2)
    # first: 2 GB / 1 GB * (4 * 3 / 2 + 1) = 14 s; second on the two executors: 2 * 5 / 2 = 5 s
    assert run_s(whole, 3.0, PLATFORM.cluster("a")) == 19
    assert "between" not in files_by_name(found)


def test_steps_stay_apart_where_little_is_saved_or_no_cluster_has_all_their_input() -> None:
    assert len(transform(two_steps(1.0), PLATFORM).steps) == 2  # 1 of 2 GB: not less than half
    assert len(transform(two_steps(4.0, elsewhere=True), PLATFORM).steps) == 2
    assert len(transform(two_steps(4.0), PLATFORM, SplitSettings(combined_share=0.2)).steps) == 2
    # another step waits for what is between them
    other = Step("other", Profile((Stage(1, 1.0),)), ("between",))
    shared = replace(two_steps(4.0), steps=(*two_steps(4.0).steps, other))
    assert len(transform(shared, PLATFORM).steps) == 3


# The rules for workflows on rented offers, worked by hand.


def acted(world: WorkflowWorld, rule: str) -> int:
    return decided(named_rule(rule), world.observation)


def played(world: WorkflowWorld, policy: Policy) -> dict[str, float]:
    """Metrics of the episode that a policy ends."""
    by_policy(world, policy)
    return dict(world.metrics(0))


def test_heft_goes_where_a_step_ends_first() -> None:
    world = begun(case_of(fan(3)))
    # 600 s on the owned cluster; 700 s on a new instance, of which spot is the cheaper one.
    assert (acted(world, "heft_on_demand"), acted(world, "heft_spot")) == (OWNED, OWNED)
    answer(world, OWNED)
    assert (acted(world, "heft_on_demand"), acted(world, "heft_spot")) == (DEMAND_A, SPOT_B)


def test_heft_on_spot_waits_for_spot_and_falls_back_when_there_is_no_more_time() -> None:
    away = [(SPOT_A, 0, 9000), (SPOT_B, 0, 9000)]
    world = begun(case_of(fan(2, deadline_s=2000), ends_s=away))
    answer(world, OWNED)
    # On demand needs 820 s; asked every 300 s, it may wait at 0 and 300 s; then the owned step ends.
    for _ in range(2):
        assert acted(world, "heft_spot") == NONE
        answer(world, NONE)
    assert world.execution(0).now_s == 600
    assert acted(world, "heft_spot") == OWNED
    busy = begun(case_of(fan(2, deadline_s=1119), ends_s=away))
    answer(busy, OWNED)
    assert acted(busy, "heft_spot") == DEMAND_A  # 300 + 820 would be too late


def test_the_cheapest_place_is_free_then_the_cheapest_spot() -> None:
    world = begun(case_of(fan(2)))
    assert acted(world, "cheapest_place") == OWNED
    answer(world, OWNED)
    # 700 s at 0.0005 USD and 0.02 USD for moving 1 GB, against 700 s at 0.001 USD.
    assert acted(world, "cheapest_place") == SPOT_B


def test_the_cost_of_each_answer_by_hand() -> None:
    world = begun(case_of(fan(2)))
    answer(world, OWNED)
    choices = weigh(seen(world.observation), WorkflowParameters(time_price=0.0))
    cost = choices.cost[0]
    # Nothing was ever interrupted, but an offer that has been up for no time may go: 60 s count at least.
    risk = 1 - np.exp(-700 / 60)
    assert choices.risk[0, SPOT_A] == pytest.approx(risk)
    assert cost[SPOT_A] == pytest.approx(0.7 + risk * 0.35)
    assert cost[SPOT_B] == pytest.approx(0.35 + 0.02 + risk * 0.175)
    assert cost[DEMAND_A] == pytest.approx(2.8)
    # It may wait for the owned executor, which is free.
    assert cost[NONE] == pytest.approx(0.0)
    # The latest end is 10,000 s; 100 s of launch, 600 s of run and 720 s of doing it again leave 8,580 s.
    # The step is all of its path, so all of that is its due; waiting ends it at 1,200 s, 600 s later than
    # at best.
    timed = weigh(seen(world.observation), WorkflowParameters(time_price=1.0))
    assert timed.due_s[0] == pytest.approx(8580)
    dearer = 600 * 0.004 - 600 * 0.0005
    assert timed.cost[0, NONE] == pytest.approx(dearer * (600 / 8580) ** 2)
    assert timed.cost[0, DEMAND_A] == pytest.approx(2.8 + dearer * (100 / 8580) ** 2)


def test_an_idle_instance_is_kept_if_that_costs_less_than_a_launch() -> None:
    for rule in question_rules("workflows"):
        world = begun(case_of(chain()))
        answer(world, SPOT_A, OWNED)
        assert acted(world, rule) == NONE  # nothing will want it
        for left_s, kept in ((99, SPOT_A), (101, NONE)):
            world.observation["jobs"][0, 0, col.ROUND_LEFT_S] = left_s  # a launch takes 100 s
            assert acted(world, rule) == kept


def test_time_is_bought_only_where_it_is_short() -> None:
    spent = {}
    for deadline_s in (2200.0, 20_000.0):
        metrics = played(begun(case_of(fan(6, deadline_s))), WorkflowCost())
        assert metrics["missed"] == 0
        spent[deadline_s] = metrics["cost_usd"]
    assert spent[20_000.0] < 0.5 * spent[2200.0]
