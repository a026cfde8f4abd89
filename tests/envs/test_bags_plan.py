"""Plans of bags: times on a VM, money, and every way in which a plan is impossible."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envs.simulation.bags.model import BagError, Environment, Market, Mode, Vm, VmType
from envs.simulation.bags.plan import Occupancy, Plan, PlannedTask, PlannedVm, require_possible, violations
from tests.bag_cases import BURST, SLOW, bag_of

TWO_CORES = VmType("slow", 2, 4.0, 0.9, 0.36)
ENVIRONMENT = Environment((TWO_CORES, BURST), checkpoint_overhead=0.0)
SPOT = Vm(TWO_CORES, Market.SPOT, 1)


def plan_of(*placed: tuple[int, int, float, float], memory_mb: float = 1000.0) -> Plan:
    """(task, core, start, end) on one spot VM; D_spot is 100 s, D 200 s."""
    bag = bag_of(*[(memory_mb, end - start) for _, _, start, end in placed])
    tasks = tuple(PlannedTask(bag.tasks[task], core, start, end) for task, core, start, end in placed)
    return Plan(bag, (PlannedVm(SPOT, tasks),), 200.0, 100.0, 900.0)


def test_a_core_waits_for_memory_as_in_figure_4_1() -> None:
    # Tasks 1 and 4 run at once. Core 0 is free when 4 ends at 30 s, but 5 needs 2000 MB of which 4096 - 2500
    # are left: it waits for the end of 1.
    occupancy = Occupancy(TWO_CORES)
    occupancy.place(1, 2500, 0, 100)
    occupancy.place(0, 1000, 0, 30)
    assert occupancy.earliest(2000, 50) == (0, 100)
    assert occupancy.earliest(1500, 50) == (0, 30)
    occupancy.place(0, 2000, 100, 150)
    # Core 1 is free at 100 s, where 4096 - 2000 MB are left until 150 s.
    assert occupancy.earliest(2096, 50) == (1, 100)
    assert occupancy.earliest(2097, 50) == (1, 150)
    assert occupancy.earliest(4097, 1) is None


def test_memory_must_last_until_the_end_of_a_task() -> None:
    # Core 0 runs 3000 MB from 50 s on: 2000 MB fit before it, but not for longer than 50 s.
    occupancy = Occupancy(VmType("three", 3, 4.0, 1.0))
    occupancy.place(0, 3000, 50, 80)
    assert occupancy.earliest(2000, 50) == (1, 0)
    assert occupancy.earliest(2000, 51) == (1, 80)


def test_cost_makespan_and_slack() -> None:
    # A spot VM until 40 s at 0.36 USD/hour: 0.004 USD. One on standby for a cycle of 900 s at 0.8: 0.2 USD.
    plan = plan_of((0, 0, 0, 40), (1, 1, 0, 30))
    standby = PlannedVm(Vm(BURST, Market.ON_DEMAND, 1), (), Mode.BASELINE)
    plan = replace(plan, vms=(*plan.vms, standby))
    assert plan.cost_usd == pytest.approx(0.204)
    assert (plan.makespan_s, plan.slack_s) == (40, 160)
    assert violations(plan, ENVIRONMENT) == []


def test_durations_with_checkpoints_and_in_baseline_mode() -> None:
    environment = Environment((TWO_CORES, BURST))
    task = bag_of((10, 100)).tasks[0]
    assert environment.duration_s(task, SPOT) == pytest.approx(110)
    assert environment.duration_s(task, Vm(TWO_CORES, Market.ON_DEMAND, 1)) == 100
    # Half a vCPU takes twice as long.
    assert environment.duration_s(task, Vm(BURST, Market.ON_DEMAND, 1), Mode.BASELINE) == 200


def test_the_sets_of_vms() -> None:
    environment = Environment((SLOW, BURST), max_per_type_and_market=2)
    assert [vm.name for vm in environment.spot()] == ["slow spot 1", "slow spot 2"]
    assert [vm.name for vm in environment.on_demand()] == ["slow on-demand 1", "slow on-demand 2"]
    assert [vm.name for vm in environment.burstable()] == ["burst on-demand 1", "burst on-demand 2"]
    with pytest.raises(BagError, match="'burst' has no spot price"):
        Vm(BURST, Market.SPOT, 1).usd_hour  # noqa: B018


@pytest.mark.parametrize(
    ("placed", "memory_mb", "found"),
    [
        (((0, 0, 0, 40), (1, 0, 39, 60)), 1000, "core 0 of slow spot 1 runs two tasks at 39 s"),
        (((0, 0, 0, 40), (1, 1, 10, 60)), 2100, "4200 MB in use at 10 s, it has 4096 MB"),
        (((0, 2, 0, 40),), 1000, "core 2, expected 0 to 1"),
        (((0, 0, 70, 101),), 1000, "ends at 101 s, expected 100 s at the latest"),
        (((0, 0, -1, 9),), 1000, "starts at -1 s"),
    ],
)
def test_an_impossible_place_is_found(
    placed: tuple[tuple[int, int, float, float], ...], memory_mb: float, found: str
) -> None:
    lines = violations(plan_of(*placed, memory_mb=memory_mb), ENVIRONMENT)
    assert len(lines) == 1
    assert found in lines[0]


def test_tasks_that_end_as_others_start_do_not_overlap() -> None:
    assert violations(plan_of((0, 0, 0, 40), (1, 0, 40, 60), memory_mb=2100), ENVIRONMENT) == []


def test_a_task_that_is_missing_or_runs_for_the_wrong_time_is_found() -> None:
    plan = plan_of((0, 0, 0, 40), (1, 1, 0, 30))
    (vm,) = plan.vms
    missing = replace(plan, vms=(replace(vm, tasks=vm.tasks[:1]),))
    assert violations(missing, ENVIRONMENT) == ["task 1 runs 0 times, expected once"]
    short = replace(plan, vms=(replace(vm, tasks=(vm.tasks[0], replace(vm.tasks[1], end_s=29))),))
    assert violations(short, ENVIRONMENT) == ["task 1 on slow spot 1: runs 29 s, expected 30 s"]
    with pytest.raises(BagError, match="cannot be carried out: task 1 runs 0 times"):
        require_possible(missing, ENVIRONMENT)


def test_too_many_vms_are_found() -> None:
    plan = plan_of((0, 0, 0, 40))
    idle = [PlannedVm(Vm(BURST, Market.ON_DEMAND, number), ()) for number in (1, 2)]
    crowded = replace(plan, vms=(*plan.vms, *idle))
    few = replace(ENVIRONMENT, max_per_type_and_market=1)
    assert violations(crowded, few) == ["2 on-demand VMs of type burst, at most 1 may run"]
    few = replace(ENVIRONMENT, max_on_demand=1)
    assert violations(crowded, few) == ["2 on-demand VMs, at most 1 may run"]
    twice = replace(plan, vms=(*plan.vms, idle[0], idle[0]))
    assert violations(twice, ENVIRONMENT) == ["burst on-demand 1 is rented 2 times"]
