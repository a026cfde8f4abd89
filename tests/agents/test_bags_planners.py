"""Planners of bags: worked examples, and plans that can be carried out whatever is drawn."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.bags.checkpoints import checkpoint_count, checkpoint_interval_s
from agents.bags.heuristics import plan_greedily, plan_max_min, plan_min_min
from agents.bags.planners import PLANNERS, plan_bag
from agents.bags.primary import plan_primarily
from agents.bags.round_robin import WeightedRoundRobin
from envs.simulation.bags.deadlines import ImpossibleDeadlineError, compute_d_spot
from envs.simulation.bags.errors import BagError
from envs.simulation.bags.jobs import published_job
from envs.simulation.bags.model import Bag, Environment, Market, Task, Vm, VmType
from envs.simulation.bags.plan import Plan, violations
from envs.simulation.bags.tables import TABLE_7_1
from tests.bag_cases import BURST, FAST, SLOW, bag_of, bags, environments

PAIR = Environment((SLOW, FAST), max_per_type_and_market=1, checkpoint_overhead=0.0)


def placed(plan: Plan) -> dict[str, list[tuple[str, float, float]]]:
    """(task, start, end) by the name of the VM."""
    return {
        planned.vm.name: [(item.task.name, item.start_s, item.end_s) for item in planned.tasks]
        for planned in plan.vms
    }


def test_d_spot_of_a_worked_example() -> None:
    # 41 tasks, 20 on-demand VMs: the ceil(41 / 20) = 3 longest take 100 s, 90 s and 80 s. On two cores:
    # 100 | 90 + 80 = 170 s. D_spot = 1000 - (170 + 180) = 650 s. The burstable type would be slower.
    two = VmType("slow", 2, 4.0, 0.9, 0.3)
    bag = bag_of((1, 90), (1, 100), (1, 80), *[(1.0, 10.0)] * 38)
    environment = Environment((two, BURST))
    assert compute_d_spot(bag.tasks, environment, 1000) == 650
    assert compute_d_spot(bag.tasks, environment, 340) == 0
    # Where both do not fit into the memory at once, they follow each other: 270 s.
    large = bag_of((3000, 90), (3000, 100), (3000, 80), *[(1.0, 10.0)] * 38)
    assert compute_d_spot(large.tasks, environment, 1000) == 550


def test_checkpoints_of_a_mean_task_of_ed200() -> None:
    # dump = 12.99 + 0.022 * 168.68 = 16.70096 s; n = 211 * 0.1 / 16.70096 = 1.26340 (Eq. 6.1);
    # interval = 211 / 1.26340 = 167.0096 s (Eq. 6.2).
    task = Task("0", "", 168.68, {"c3.large": 211.0})
    vm = Vm(TABLE_7_1[0], Market.SPOT, 1)
    environment = Environment(TABLE_7_1)
    assert checkpoint_count(task, vm, environment) == pytest.approx(1.26340, abs=1e-5)
    assert checkpoint_interval_s(task, vm, environment) == pytest.approx(167.0096)


def test_the_weighted_round_robin_takes_types_in_proportion() -> None:
    # Equal power, prices 1 and 3: weights 3 and 1. Gained before each turn: (3, 1), (2, 2), (1, 3), (4, 0).
    cheap, dear = VmType("cheap", 1, 1.0, None, 1.0), VmType("dear", 1, 1.0, None, 3.0)
    bag = bag_of((1, 10), speeds={"cheap": 1.0, "dear": 1.0})
    robin = WeightedRoundRobin(Environment((cheap, dear)).spot(), bag)
    taken = []
    for _ in range(9):
        vm = robin.next()
        assert vm is not None
        robin.take(vm)
        taken.append(vm.name.removesuffix(" spot " + str(vm.number)) + str(vm.number))
    # After five cheap ones only dear ones are left.
    assert taken == ["cheap1", "cheap2", "dear1", "cheap3", "cheap4", "cheap5", "dear2", "dear3", "dear4"]
    vm = robin.next()
    assert vm is not None
    assert vm == robin.next()
    robin.take(vm)
    assert robin.next() is None


@pytest.mark.parametrize(
    ("picks", "published"),
    [
        (6, {"c3.large": 2, "c3.xlarge": 0, "c4.large": 2, "c4.xlarge": 2}),
        (8, {"c3.large": 2, "c3.xlarge": 1, "c4.large": 3, "c4.xlarge": 2}),
        (10, {"c3.large": 2, "c3.xlarge": 1, "c4.large": 4, "c4.xlarge": 3}),
    ],
)
def test_the_round_robin_is_near_the_vms_of_table_7_4(picks: int, published: dict[str, int]) -> None:
    robin = WeightedRoundRobin(Environment(TABLE_7_1).spot(), published_job("J100", TABLE_7_1))
    taken = dict.fromkeys(published, 0)
    for _ in range(picks):
        vm = robin.next()
        assert vm is not None
        robin.take(vm)
        taken[vm.vm_type.name] += 1
    assert all(abs(taken[name] - count) <= 1 for name, count in published.items())


def test_the_primary_heuristic_fills_then_turns_then_goes_on_demand() -> None:
    # D = 100 s, alpha 0, as many on-demand VMs as tasks: mkp_w is one task, 30 s, and D_spot = 70 s. Weights:
    # slow 1 / 0.3, fast 2 / 0.6, a tie: slow first. Two tasks of 30 s end before 70 s there. Fast takes 15 s
    # each, so that four end by 60 s. Tasks 0 and 1 go to slow, then 2, 3 and 4 to fast.
    environment = Environment(
        (SLOW, FAST), 1, max_on_demand=5, migration_overhead_s=0, checkpoint_overhead=0.0
    )
    five = bag_of(*[(float(500 - k), 30.0) for k in range(5)])
    plan = plan_primarily(five, environment, 100)
    assert plan.d_spot_s == 70
    ends = {vm: [round(end, 6) for _, _, end in tasks] for vm, tasks in placed(plan).items()}
    assert ends == {"slow spot 1": [30, 60], "fast spot 1": [15, 30, 45]}
    # With 9 tasks fast ends its fourth at 60 s; the last three go to the cheapest on-demand VM, which may
    # work until D: three of 30 s end at 90 s.
    environment = Environment(
        (SLOW, FAST), 1, max_on_demand=9, migration_overhead_s=0, checkpoint_overhead=0.0
    )
    nine = bag_of(*[(float(500 - k), 30.0) for k in range(9)])
    ends = {
        vm: [round(end, 6) for _, _, end in tasks]
        for vm, tasks in placed(plan_primarily(nine, environment, 100)).items()
    }
    assert ends == {
        "slow spot 1": [30, 60],
        "fast spot 1": [15, 30, 45, 60],
        "slow on-demand 1": [30, 60, 90],
    }


def test_without_d_spot_only_on_demand_vms_are_rented() -> None:
    environment = Environment((SLOW, FAST), migration_overhead_s=180)
    plan = plan_primarily(bag_of((1, 30), (1, 20)), environment, 200)
    assert plan.d_spot_s == 0
    assert {planned.vm.market for planned in plan.vms} == {Market.ON_DEMAND}


def test_min_min_max_min_and_greedy_on_two_vms() -> None:
    # Tasks of 10 s and 20 s on slow, 5 s and 10 s on fast.
    bag = bag_of((1, 20), (1, 10))
    # The smallest completion is the short task on fast, 5 s; then the long one there, 15 s, not slow, 20 s.
    assert placed(plan_min_min(bag, PAIR, 100, 100)) == {"fast spot 1": [("1", 0, 5), ("0", 5, 15)]}
    # The largest is the long task on slow, 20 s, then the short one there, 30 s.
    assert placed(plan_max_min(bag, PAIR, 100, 31)) == {"slow spot 1": [("0", 0, 20), ("1", 20, 30)]}
    # The shortest first on the cheapest: slow. The long one ends there at 30 s, which is too late for 25 s.
    assert placed(plan_greedily(bag, PAIR, 100, 31)) == {"slow spot 1": [("1", 0, 10), ("0", 10, 30)]}
    assert placed(plan_greedily(bag, PAIR, 100, 25)) == {
        "fast spot 1": [("0", 0, 10)],
        "slow spot 1": [("1", 0, 10)],
    }
    for plan in (plan_min_min, plan_max_min, plan_greedily):
        with pytest.raises(ImpossibleDeadlineError, match=r"no spot VM is left that ends task 0 by 10 s"):
            plan(bag, PAIR, 100, 10)


@settings(max_examples=25, deadline=None)
@given(
    environments(),
    bags(most_tasks=6),
    # The exact model has its own test: that of a drawn bag may take HiGHS minutes.
    st.sampled_from([name for name in PLANNERS if name != "exact"]),
    st.integers(40, 900),
)
def test_every_plan_can_be_carried_out_and_every_refusal_names_a_deadline(
    environment: Environment, bag: Bag, planner: str, deadline_s: int
) -> None:
    try:
        plan = plan_bag(planner, bag, environment, deadline_s)
    except ImpossibleDeadlineError as error:
        refusal = str(error)
    else:
        assert violations(plan, environment) == []
        assert plan.slack_s >= 0
        return
    # "no deadline is possible" is refused here: some spot VM runs every drawn task, given time.
    named = re.search(r"; (\d+) s is possible$", refusal)
    assert named is not None, refusal
    assert int(named[1]) > deadline_s
    plan = PLANNERS[planner].probe(bag, environment, int(named[1]))
    assert violations(plan, environment) == []
    assert plan.slack_s >= 0


def test_the_deadline_that_a_refusal_names_is_near_the_least() -> None:
    # One core of 30 s, alpha 0: D_spot = D - 30 must be more than 33 s, so D = 63 s is too little; on demand
    # the task ends after 30 s, and must end before D.
    only_spot = Environment((VmType("slow", 1, 4.0, None, 0.3),), migration_overhead_s=0)
    with pytest.raises(ImpossibleDeadlineError, match=r"20 s is impossible for hads: .*; 64 s is possible"):
        plan_bag("hads", bag_of((1, 30)), only_spot, 20)
    both = Environment((SLOW,), migration_overhead_s=0)
    with pytest.raises(ImpossibleDeadlineError, match="31 s is possible"):
        plan_bag("hads", bag_of((1, 30)), both, 20)
    no_spot = Environment((VmType("slow", 1, 4.0, 0.9),))
    with pytest.raises(ImpossibleDeadlineError, match="no deadline is possible"):
        plan_bag("minmin", bag_of((1, 30)), no_spot, 20)


@pytest.mark.parametrize("deadline_s", [0, -1, math.nan, math.inf])
def test_a_deadline_must_be_a_time(deadline_s: float) -> None:
    with pytest.raises(BagError, match=r"the deadline is .*, expected a number of seconds > 0"):
        plan_bag("hads", bag_of((1, 30)), PAIR, deadline_s)


def test_an_unknown_planner_and_a_bad_seed_are_refused() -> None:
    with pytest.raises(BagError, match="there is no planner 'best': use hads, burst-hads, ils, exact"):
        plan_bag("best", bag_of((1, 30)), PAIR, 300)
    with pytest.raises(BagError, match="the seed is -1"):
        plan_bag("ils", bag_of((1, 30)), PAIR, 300, seed=-1)
