"""The local search, the burstable VMs and the exact model: against brute force and against each other."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.bags.burst import allocate_bursts
from agents.bags.draft import Draft
from agents.bags.exact import objective, plan_exactly
from agents.bags.ils import plan_by_search
from agents.bags.primary import plan_primarily
from agents.bags.walk import Fleet, end_s, fitness, walk
from envs.simulation.bags.deadlines import ImpossibleDeadlineError, compute_d_spot
from envs.simulation.bags.errors import BagError
from envs.simulation.bags.jobs import uniform_job
from envs.simulation.bags.model import Bag, Environment, Market, Mode, Vm, VmType
from envs.simulation.bags.occupancy import MEMORY_TOLERANCE_MB, Occupancy
from envs.simulation.bags.plan import Plan, PlannedTask, PlannedVm, violations
from envs.simulation.bags.tables import TABLE_9_1
from tests.bag_cases import BURST, FAST, SLOW, bag_of, bags, environments

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


@settings(max_examples=12, deadline=None)
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


@settings(max_examples=25, deadline=None)
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
    whole = uniform_job(5, 5, 15, environment.types)
    whole = replace(
        whole,
        tasks=tuple(
            replace(task, runtime_s={name: math.ceil(s - 1e-9) for name, s in task.runtime_s.items()})
            for task in whole.tasks
        ),
    )
    least = objective(plan_exactly(whole, environment, 900), environment)
    for seed in range(3):
        assert objective(plan_by_search(whole, environment, 900, seed), environment) >= least - 1e-9


def test_three_hundred_tasks_are_planned_in_two_seconds() -> None:
    environment = Environment(TABLE_9_1)
    bag = uniform_job(300, 15, 35, TABLE_9_1)
    plan_by_search(bag, environment, 900)  # compiles
    began = time.process_time()
    plan = plan_by_search(bag, environment, 900)
    assert time.process_time() - began < 2
    assert violations(plan, environment) == []


def test_a_model_that_is_too_large_is_refused() -> None:
    bag = uniform_job(300, 15, 35, TABLE_9_1)
    with pytest.raises(BagError, match=r"the exact model would have \d+ variables, at most 500000"):
        plan_exactly(bag, Environment(TABLE_9_1), 900)


@settings(max_examples=60, deadline=None)
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
    return Fleet(
        np.array(duration_s),
        np.array(memory_mb),
        np.array(cores),
        np.full(len(cores), 4096 + MEMORY_TOLERANCE_MB),
        np.arange(1.0, len(cores) + 1),
        1.0,
        1.0,
    )


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
    environment = Environment((SLOW, FAST, BURST), checkpoint_overhead=0.0, migration_overhead_s=0)
    bag = bag_of(*[(10.0, 30.0)] * 4)
    row = tuple(PlannedTask(task, 0, 30.0 * k, 30.0 * (k + 1)) for k, task in enumerate(bag.tasks))
    plan = Plan(bag, (PlannedVm(Vm(SLOW, Market.SPOT, 1), row),), 200.0, 50.0, 900.0)
    found = allocate_bursts(plan, environment)
    assert violations(found, environment) == []
    spans = {
        planned.vm.name: [(item.task.name, item.start_s, item.end_s) for item in planned.tasks]
        for planned in found.vms
    }
    assert spans == {
        "slow spot 1": [("0", 0, 30)],
        "slow on-demand 1": [("2", 0, 30), ("1", 30, 60)],
        "burst on-demand 1": [("3", 0, 60)],
    }
    assert found.vms[-1].mode == Mode.BASELINE


def test_an_idle_burstable_vm_takes_the_task_that_ends_last_or_stands_by() -> None:
    environment = Environment((SLOW, BURST), checkpoint_overhead=0.0, migration_overhead_s=0)
    bag = bag_of((10, 30), (10, 25))
    vms = tuple(
        PlannedVm(Vm(SLOW, Market.SPOT, k + 1), (PlannedTask(task, 0, 0, task.runtime_s["slow"]),))
        for k, task in enumerate(bag.tasks)
    )
    plan = Plan(bag, vms, 200.0, 50.0, 900.0)
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
    environment = Environment((SLOW, BURST), max_per_type_and_market=20, checkpoint_overhead=0.0)
    bag = bag_of(*[(10.0, 30.0)] * 20)
    vms = tuple(
        PlannedVm(Vm(SLOW, Market.SPOT, k + 1), (PlannedTask(task, 0, 0, 30.0),))
        for k, task in enumerate(bag.tasks)
    )
    found = allocate_bursts(Plan(bag, vms, 500.0, 200.0, 900.0), environment, burst_rate=0.1)
    assert sum(planned.vm.vm_type.burstable for planned in found.vms) == 2


def test_a_bag_of_which_no_task_can_end_in_time_has_no_exact_plan() -> None:
    # D_spot = 14 - 12 = 2 s, and the task takes 6 s on the faster VM.
    with pytest.raises(ImpossibleDeadlineError, match="a task fits on no spot VM within 2 periods"):
        plan_exactly(bag_of((0, 12)), TINY, 14)
