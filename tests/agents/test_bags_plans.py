"""Bags: the primary maps, the searches, and the rule `bag_cost`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotweave.agents.bags.cost import BagCost, BagParameters, weigh
from spotweave.agents.bags.exact import objective, plan_exactly
from spotweave.agents.bags.heuristics import (
    Draft,
    WeightedRoundRobin,
    checkpoint_count,
    checkpoint_interval_s,
    plan_greedily,
    plan_max_min,
    plan_min_min,
    plan_primarily,
)
from spotweave.agents.bags.ils import Fleet, allocate_bursts, end_s, fitness, plan_by_search, walk
from spotweave.agents.bags.planners import PLANNERS, plan_bag
from spotweave.envs.simulation.bags.cases import Scenario, published_job, uniform_job
from spotweave.envs.simulation.bags.execution import Cause
from spotweave.envs.simulation.bags.model import (
    TABLE_7_1,
    TABLE_9_1,
    Bag,
    BagError,
    Environment,
    Market,
    Mode,
    Task,
    Vm,
    VmType,
)
from spotweave.envs.simulation.bags.options import ImpossibleDeadlineError, compute_d_spot
from spotweave.envs.simulation.bags.plan import (
    MEMORY_TOLERANCE_MB,
    Occupancy,
    Plan,
    PlannedTask,
    PlannedVm,
    violations,
)
from spotweave.envs.simulation.bags.world import BagWorld
from tests.envs.bag_cases import (
    FAST,
    ONE_CORE,
    SLOW,
    SMALL_BURST,
    TWO_CORES,
    at,
    bag_of,
    bags,
    environment,
    environments,
    plan_of,
    spot,
    tasks_of,
)
from tests.envs.checks import decided, to_the_end, valid
from tests.envs.test_bags_world import NONE, ONE_DEMAND, TWO_DEMAND, Given, begun

# Planners of bags: worked examples, and plans that can be carried out whatever is drawn.

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
    environment = Environment((two, SMALL_BURST))
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


def picked(robin: WeightedRoundRobin, count: int) -> list[Vm]:
    vms = []
    for _ in range(count):
        vm = robin.next()
        assert vm is not None
        robin.take(vm)
        vms.append(vm)
    return vms


def test_the_weighted_round_robin_takes_types_in_proportion() -> None:
    # Equal power, prices 1 and 3: weights 3 and 1. Gained before each turn: (3, 1), (2, 2), (1, 3), (4, 0).
    cheap, dear = VmType("cheap", 1, 1.0, None, 1.0), VmType("dear", 1, 1.0, None, 3.0)
    bag = bag_of((1, 10), speeds={"cheap": 1.0, "dear": 1.0})
    robin = WeightedRoundRobin(Environment((cheap, dear)).spot(), bag)
    vms = picked(robin, 9)
    taken = [f"{vm.vm_type.name}{vm.number}" for vm in vms]
    # After five cheap ones only dear ones are left.
    assert taken == ["cheap1", "cheap2", "dear1", "cheap3", "cheap4", "cheap5", "dear2", "dear3", "dear4"]
    assert robin.next() == robin.next() == picked(robin, 1)[0]
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
    taken = Counter(vm.vm_type.name for vm in picked(robin, picks))
    assert taken.keys() <= published.keys()
    assert all(abs(taken[name] - count) <= 1 for name, count in published.items())


def test_the_primary_heuristic_fills_then_turns_then_goes_on_demand() -> None:
    # D = 100 s, alpha 0, as many on-demand VMs as tasks: mkp_w is one task, 30 s, and D_spot = 70 s. Weights:
    # slow 1 / 0.3, fast 2 / 0.6, a tie: slow first. Two tasks of 30 s end before 70 s there. Fast takes 15 s
    # each, so that four end by 60 s. Tasks 0 and 1 go to slow, then 2, 3 and 4 to fast.
    def ends(tasks: int) -> dict[str, list[float]]:
        environment = replace(PAIR, max_on_demand=tasks, migration_overhead_s=0)
        bag = bag_of(*[(float(500 - k), 30.0) for k in range(tasks)])
        plan = plan_primarily(bag, environment, 100)
        assert plan.d_spot_s == 70
        return {vm: [round(end, 6) for _, _, end in rows] for vm, rows in placed(plan).items()}

    spot = {"slow spot 1": [30, 60], "fast spot 1": [15, 30, 45]}
    assert ends(5) == spot
    # With 9 tasks fast ends its fourth at 60 s; the last three go to the cheapest on-demand VM, which may
    # work until D: three of 30 s end at 90 s.
    assert ends(9) == {**spot, "fast spot 1": [15, 30, 45, 60], "slow on-demand 1": [30, 60, 90]}


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
    both = {"fast spot 1": [("0", 0, 10)], "slow spot 1": [("1", 0, 10)]}
    assert placed(plan_greedily(bag, PAIR, 100, 25)) == both
    for plan in (plan_min_min, plan_max_min, plan_greedily):
        with pytest.raises(ImpossibleDeadlineError, match=r"no spot VM is left that ends task 0 by 10 s"):
            plan(bag, PAIR, 100, 10)


@settings(max_examples=25)
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


# The local search, the burstable VMs and the exact model: against brute force and against each other.

TINY = Environment(
    (VmType("slow", 2, 1.0, 0.9, 0.3), VmType("fast", 1, 1.0, 1.8, 0.7)),
    max_per_type_and_market=1,
    migration_overhead_s=0,
    checkpoint_overhead=0.0,
)


def brute_force(bag: Bag, environment: Environment, deadline_s: float) -> float:
    """The least objective over every allocation to spot VMs and every order; inf if none is in time."""
    d_spot_s = compute_d_spot(bag.tasks, environment, deadline_s)
    best = math.inf
    for order in permutations(bag.tasks):
        for vms in product(environment.spot(), repeat=len(order)):
            draft = Draft(bag, environment, deadline_s, d_spot_s)
            for task, vm in zip(order, vms, strict=True):
                slot = draft.slot(task, vm)
                if slot is None:
                    break
                draft.schedule(task, vm, slot)
            else:
                plan = draft.plan()
                if plan.makespan_s <= d_spot_s + 1e-6:
                    best = min(best, objective(plan, environment))
    return best


@settings(max_examples=12)
@given(
    # Even run times, so that they are whole seconds on "fast" too.
    st.lists(
        st.tuples(st.sampled_from((0.0, 300.0, 700.0)), st.integers(1, 6).map(lambda half: 2.0 * half)),
        min_size=1,
        max_size=4,
    ),
    st.integers(14, 60),
)
def test_the_exact_model_is_brute_force(tasks: list[tuple[float, float]], deadline_s: int) -> None:
    bag = bag_of(*tasks)
    expected = brute_force(bag, TINY, deadline_s)
    if expected == math.inf:
        with pytest.raises(ImpossibleDeadlineError):
            plan_exactly(bag, TINY, deadline_s)
        return
    plan = plan_exactly(bag, TINY, deadline_s)
    assert violations(plan, TINY) == []
    assert objective(plan, TINY) == pytest.approx(expected, rel=1e-6)


@settings(max_examples=25)
@given(environments(), bags(), st.integers(100, 900), st.integers(0, 3))
def test_the_search_is_never_worse_than_its_start(
    environment: Environment, bag: Bag, deadline_s: int, seed: int
) -> None:
    try:
        start = plan_primarily(bag, environment, deadline_s)
    except ImpossibleDeadlineError:
        with pytest.raises(ImpossibleDeadlineError):
            plan_by_search(bag, environment, deadline_s, seed)
        return
    found = plan_by_search(bag, environment, deadline_s, seed)
    assert violations(found, environment) == []
    if start.d_spot_s > 0:
        assert objective(found, environment) <= objective(start, environment) + 1e-9
    assert found == plan_by_search(bag, environment, deadline_s, seed)


def test_the_search_finds_the_optimum_of_a_small_bag() -> None:
    # Four cores of two VMs, four tasks of 10 s: at once, all on the VM that is cheaper by the core.
    environment = Environment(
        (VmType("slow", 4, 4.0, 0.9, 0.3), VmType("fast", 1, 4.0, 1.8, 0.7)), max_per_type_and_market=2
    )
    bag = bag_of(*[(10.0, 10.0)] * 4, speeds={"slow": 1.0, "fast": 1.0})
    optimum = plan_exactly(bag, environment, 300, period_s=0.5)
    assert {planned.vm.name for planned in optimum.vms} == {"slow spot 1"}
    found = plan_by_search(bag, environment, 300)
    assert objective(found, environment) == pytest.approx(objective(optimum, environment))


def test_the_search_is_never_better_than_the_optimum() -> None:
    environment = Environment(tuple(t for t in TABLE_9_1 if not t.burstable), checkpoint_overhead=0.0)
    drawn = uniform_job(5, 5, 15, environment.types)
    rounded_s = [{name: math.ceil(s - 1e-9) for name, s in task.runtime_s.items()} for task in drawn.tasks]
    tasks = (replace(task, runtime_s=s) for task, s in zip(drawn.tasks, rounded_s, strict=True))
    whole = replace(drawn, tasks=tuple(tasks))
    least = objective(plan_exactly(whole, environment, 900), environment)
    for seed in range(3):
        assert objective(plan_by_search(whole, environment, 900, seed), environment) >= least - 1e-9


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 4096), st.integers(1, 50)), min_size=1, max_size=9), st.integers(1, 4)
)
def test_the_compiled_search_fills_a_vm_as_plans_do(tasks: list[tuple[int, int]], cores: int) -> None:
    occupancy = Occupancy(VmType("slow", cores, 4.0))
    for memory_mb, duration_s in tasks:
        slot = occupancy.earliest(memory_mb, duration_s)
        assert slot is not None
        occupancy.place(slot[0], memory_mb, slot[1], slot[1] + duration_s)
    fleet = fleet_of([[float(duration)] for _, duration in tasks], [float(mb) for mb, _ in tasks], [cores])
    assert end_s(fleet, 0, np.zeros(len(tasks), np.int64)) == occupancy.end_s


def fleet_of(duration_s: list[list[float]], memory_mb: list[float], cores: list[int]) -> Fleet:
    """VMs of 4096 MB at 1, 2, ... USD per second; cost and makespan weigh 1."""
    memory, usd_s = np.full(len(cores), 4096 + MEMORY_TOLERANCE_MB), np.arange(1.0, len(cores) + 1)
    return Fleet(np.array(duration_s), np.array(memory_mb), np.array(cores), memory, usd_s, 1.0, 1.0)


def test_a_walk_keeps_the_best_on_its_way() -> None:
    # Two VMs of one core, two tasks of 10 s on the first: 20 s at 1 USD/s and a makespan of 20 s: 40. One
    # task on the second: 10 + 20 USD and 10 s: 40, no better. At 0.5 USD/s the latter is 10 + 5 + 10 = 25.
    fleet = fleet_of([[10.0, 10.0]] * 2, [1.0, 1.0], [1, 1])
    start = np.zeros(2, np.int64)
    limit_s = np.array([100.0, 100.0])
    assert fitness(fleet, np.array([20.0, 0.0]), limit_s) == 40
    assert walk(fleet, start, np.array([1, 0]), 1, limit_s).tolist() == [0, 0]
    cheap = fleet._replace(usd_s=np.array([1.0, 0.5]))
    assert walk(cheap, start, np.array([1]), 1, limit_s).tolist() == [0, 1]
    # Both on the second: 10 USD and 20 s, 30, worse than 25; the walk goes on, but keeps the best.
    assert walk(cheap, start, np.array([1, 0]), 1, limit_s).tolist() == [0, 1]
    # A VM may not end at its limit.
    assert walk(cheap, start, np.array([1, 0]), 1, np.array([100.0, 10.0])).tolist() == [0, 0]
    assert start.tolist() == [0, 0]


def test_tasks_after_d_spot_leave_their_spot_vms() -> None:
    # D_spot 50 s, D 200 s. Of four tasks of 30 s in a row on one core, those that end at 60, 90 and 120 s
    # must leave. One burstable VM (0.2 * 1 spot VM, rounded up) takes the latest, in baseline mode for 60 s;
    # the other two go to the cheapest on-demand VM.
    environment = Environment((SLOW, FAST, SMALL_BURST), checkpoint_overhead=0.0, migration_overhead_s=0)
    bag = bag_of(*[(10.0, 30.0)] * 4)
    row = tuple(PlannedTask(task, 0, 30.0 * k, 30.0 * (k + 1)) for k, task in enumerate(bag.tasks))
    plan = Plan(bag, (PlannedVm(Vm(SLOW, Market.SPOT, 1), row),), 200.0, 50.0, 900.0)
    found = allocate_bursts(plan, environment)
    assert violations(found, environment) == []
    assert placed(found) == {
        "slow spot 1": [("0", 0, 30)],
        "slow on-demand 1": [("2", 0, 30), ("1", 30, 60)],
        "burst on-demand 1": [("3", 0, 60)],
    }
    assert found.vms[-1].mode == Mode.BASELINE


def apart(bag: Bag, deadline_s: float, d_spot_s: float) -> Plan:
    """Each task at once on a spot VM of its own."""
    rows = [(PlannedTask(task, 0, 0, task.runtime_s["slow"]),) for task in bag.tasks]
    vms = tuple(PlannedVm(Vm(SLOW, Market.SPOT, k), row) for k, row in enumerate(rows, start=1))
    return Plan(bag, vms, deadline_s, d_spot_s, 900.0)


def test_an_idle_burstable_vm_takes_the_task_that_ends_last_or_stands_by() -> None:
    environment = Environment((SLOW, SMALL_BURST), checkpoint_overhead=0.0, migration_overhead_s=0)
    plan = apart(bag_of((10, 30), (10, 25)), 200.0, 50.0)
    found = allocate_bursts(plan, environment)
    assert [(v.vm.name, [p.task.name for p in v.tasks]) for v in found.vms] == [
        ("slow spot 2", ["1"]),
        ("burst on-demand 1", ["0"]),
    ]
    # In baseline mode the first would end at 60 s: with D = 55 s the second, which ends at 50 s, moves.
    found = allocate_bursts(replace(plan, deadline_s=55.0), environment)
    assert [[p.task.name for p in v.tasks] for v in found.vms] == [["0"], ["1"]]
    # With D = 50 s neither can; the VM stands by for a cycle of 900 s.
    found = allocate_bursts(replace(plan, deadline_s=50.0), environment)
    assert [[p.task.name for p in v.tasks] for v in found.vms] == [["0"], ["1"], []]
    assert found.cost_usd == pytest.approx((55 * 0.3 + 900 * 0.8) / 3600)


def test_twenty_spot_vms_and_a_rate_of_a_tenth_give_two_burstable_vms() -> None:
    # Section 8.1.2: "if 20 spot VMs were selected by the ILS, with burst_rate = 0.1, only 2 burstable VMs".
    environment = Environment((SLOW, SMALL_BURST), max_per_type_and_market=20, checkpoint_overhead=0.0)
    plan = apart(bag_of(*[(10.0, 30.0)] * 20), 500.0, 200.0)
    found = allocate_bursts(plan, environment, burst_rate=0.1)
    assert sum(planned.vm.vm_type.burstable for planned in found.vms) == 2


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        *[
            (partial(plan_bag, "hads", bag_of((1, 30)), PAIR, deadline_s), "expected a number of seconds > 0")
            for deadline_s in (0, -1, math.nan, math.inf)
        ],
        (
            lambda: plan_bag("best", bag_of((1, 30)), PAIR, 300),
            "there is no planner 'best': use hads, burst-hads, ils, exact",
        ),
        (lambda: plan_bag("ils", bag_of((1, 30)), PAIR, 300, seed=-1), "the seed is -1"),
        (
            lambda: plan_exactly(uniform_job(300, 15, 35, TABLE_9_1), Environment(TABLE_9_1), 900),
            r"the exact model would have \d+ variables, at most 500000",
        ),
        (
            lambda: plan_exactly(bag_of(*[(1.0, 10.0)] * 4), TINY, 60, time_limit_s=0),
            "not solved in 0 s: use fewer tasks or another planner",
        ),
        # D_spot = 14 - 12 = 2 s, and the task takes 6 s on the faster VM.
        (lambda: plan_exactly(bag_of((0, 12)), TINY, 14), "a task fits on no spot VM within 2 periods"),
    ],
)
def test_what_cannot_be_planned_is_refused(ask: Callable[[], Plan], message: str) -> None:
    with pytest.raises(BagError, match=message):
        ask()


# The rule `bag_cost`, worked by hand.

CALM = Scenario("calm", 0, 0, 1)


def acted(world: BagWorld, **parameters: float) -> int:
    return decided(BagCost(BagParameters(**parameters)), world.observation)


def hibernated(rates: tuple[float, float]) -> BagWorld:
    """A task of 100 s whose VM hibernated at 50 s, with a VM of two cores that is busy until 600 s."""
    plan = plan_of(tasks_of(100, 600), {spot(ONE_CORE): (0,), spot(TWO_CORES): (1,)}, deadline_s=3000)
    return begun(Given(plan, environment(), at(one=(50,)), Scenario("drawn", *rates, over_s=1000)))


def test_the_cost_of_each_answer_by_hand() -> None:
    world = hibernated((1, 4))
    choices = weigh(world.observation, BagParameters(time_price=1.0))
    cost, end_s = choices.cost[0], choices.end_s[0]
    # A second of makespan costs ten VMs at 0.00002 USD; all others end 550 s from now, on the VM of two.
    assert choices.time_usd_s[0] == pytest.approx(0.0002)
    # On its other core at once: 110 s of half of 0.00002 USD.
    assert (cost[5], end_s[5]) == (pytest.approx(0.0011), pytest.approx(110))
    # A new on-demand VM of one core: 100 s to launch and 100 s of work at 0.0001 USD.
    assert (cost[ONE_DEMAND], end_s[ONE_DEMAND]) == (pytest.approx(0.02), pytest.approx(200))
    # It resumes after 1000 / 4 s on average, and has 50 s left at 0.00001 USD.
    assert (cost[NONE], end_s[NONE]) == (pytest.approx(0.0005), pytest.approx(300))
    assert acted(world) == NONE
    # Where it resumes after 1,000 s, 500 s after all others, time is dear enough to move.
    slow = hibernated((1, 1))
    assert weigh(slow.observation, BagParameters(1.0)).cost[0, NONE] == pytest.approx(0.0005 + 500 * 0.0002)
    assert acted(slow, time_price=1.0) == 5
    # Without a price of time it waits.
    assert acted(slow, time_price=0.0) == NONE


def test_risk_is_the_chance_to_hibernate_before_the_end() -> None:
    risk = weigh(hibernated((1, 4)).observation, BagParameters()).risk[0]
    assert (risk[5], risk[TWO_DEMAND]) == (pytest.approx(1 - np.exp(-110 / 1000)), 0)


def test_an_empty_vm_is_given_back() -> None:
    plan = plan_of(tasks_of(100, 200), {spot(ONE_CORE, 1): (0,), spot(ONE_CORE, 2): (1,)})
    world = begun(Given(plan, environment(), at(), CALM))
    assert world.question(0)[0].cause == Cause.EMPTY
    assert acted(world) == NONE
    # 900 s of it until the end of its cycle, at 0.00001 USD.
    assert weigh(world.observation, BagParameters()).cost[0, 0] == pytest.approx(0.009)


def test_the_rule_ends_a_bag_in_time_for_less_than_a_random_policy() -> None:
    plan = plan_of(tasks_of(*[100] * 8), {}, deadline_s=2000)
    rewards = []
    for choose in (acted, lambda world: valid(world)[-1]):
        world = begun(Given(plan, environment(), at(), CALM))
        rewards.append(to_the_end(world, partial(choose, world)))
        assert not world.outcome(0).missed
    assert rewards[0] > rewards[1]
