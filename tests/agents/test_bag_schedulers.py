"""HADS and Burst-HADS, worked by hand, and the deadline that they keep (Teylo 2021, chapters 6.2 and 8.2)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spotweave.agents.bags.heuristics import plan_primarily
from spotweave.agents.bags.ils import SearchSettings, plan_with_bursts
from spotweave.agents.bags.schedulers import BurstHads, Hads, OnDemand, on_demand_plan
from spotweave.envs.simulation.bags.cases import (
    SCENARIOS,
    Changes,
    Scenario,
    drawn,
    published_job,
    uniform_job,
)
from spotweave.envs.simulation.bags.execution import Execution
from spotweave.envs.simulation.bags.fleet import Outcome
from spotweave.envs.simulation.bags.model import SECONDS_PER_HOUR, TABLE_9_1, Environment
from spotweave.envs.simulation.bags.options import ImpossibleDeadlineError
from spotweave.envs.simulation.bags.plan import Plan
from spotweave.envs.simulation.bags.rented import VmState
from tests.envs.bag_cases import (
    BURST,
    DRAWN,
    ONE_CORE,
    TWO_CORES,
    at,
    environment,
    on_demand,
    plan_of,
    spot,
    tasks_of,
)


def hads(plan: Plan, changes: Changes, **parameters: float) -> Outcome:
    return Execution(plan, environment(**parameters), changes, Hads()).run()


def burst(plan: Plan, changes: Changes, **parameters: float) -> Outcome:
    return Execution(plan, environment(**parameters), changes, BurstHads()).run()


def runs(outcome: Outcome, task: int) -> list[tuple[str, float, float]]:
    """(VM, start, end) of a task."""
    return [(outcome.vms[s.vm].name, s.start_s, s.end_s) for s in outcome.tasks if s.task == task]


def test_migration_time_limit_of_one_core() -> None:
    # Nothing is saved at 50 s: a new VM needs 200 + 100 s. mtt = 1000 - (300 + 100) = 600 (Eq. 6.4). It is
    # rented then, ready at 700, and the tasks end at 900 and, exactly at the deadline, at 1,000 s.
    plan = plan_of(tasks_of(200, 100), {spot(ONE_CORE): (0, 1)}, deadline_s=1000)
    outcome = hads(plan, at(one=(50,)))
    assert runs(outcome, 0)[1:] == [("one on-demand 1", 700, 900)]
    assert runs(outcome, 1) == [("one on-demand 1", 900, 1000)]
    assert not outcome.missed
    assert (outcome.counts.migrations, outcome.counts.on_demand) == (2, 1)
    # 50 s of spot at 0.00001 USD, 400 s on demand from the renting at 600 s.
    assert outcome.cost_usd == pytest.approx(0.0005 + 0.04)


def test_checkpoints_move_the_limit() -> None:
    # At 104 s 60 s of the 100 are saved: mtt = 1000 - (40 + 100) = 860.
    plan = plan_of(tasks_of(100), {spot(ONE_CORE): (0,)}, deadline_s=1000, interval_s=30)
    outcome = hads(plan, at(one=(104,)))
    assert runs(outcome, 0)[-1] == ("one on-demand 1", 960, 1000)
    assert not outcome.missed


def test_resuming_before_the_limit_goes_on_from_the_break_point() -> None:
    plan = plan_of(tasks_of(200, 100), {spot(ONE_CORE): (0, 1)}, deadline_s=2000)
    outcome = hads(plan, at(one=(50, 500)))
    assert outcome.makespan_s == 750
    assert (outcome.counts.migrations, outcome.counts.on_demand) == (0, 0)


def test_a_vm_that_resumed_may_hibernate_again_just_before_its_last_task_ends() -> None:
    # mtt = 600. Resumed at 500 s, task 0 would end at 650. At 600 s both together could no longer be saved if
    # the VM hibernated again, task 0 alone can until 1000 - 200 - 100 = 700: task 1 migrates, task 0 stays.
    plan = plan_of(tasks_of(200, 100), {spot(ONE_CORE): (0, 1)}, deadline_s=1000)
    calm = hads(plan, at(one=(50, 500)))
    assert runs(calm, 0)[-1] == ("one spot 1", 500, 650)
    assert runs(calm, 1) == [("one on-demand 1", 700, 800)]
    # It does hibernate again: at 649 s nothing of task 0 is saved, and mtt is 700 as before. The new VM is
    # busy until 800 s and would end it at 1,000 s; another would be ready at 800 s too.
    again = hads(plan, at(one=(50, 500, 649)))
    assert not again.missed
    assert runs(again, 0)[-1][2] == 1000


def test_resuming_after_the_limit_steals_back_what_waits() -> None:
    # mtt = 1000 - (250 + 100) = 650; ready at 750; task 0 until 950, then task 1. Resumed at 760 s the spot
    # VM would end task 1 at 810 s, and 1000 - 810 > 50 + 100. Task 1 would start in a later allocation cycle
    # of the on-demand VM (they end at 750, 850, ...), so it is stolen; task 0 runs.
    plan = plan_of(tasks_of(200, 50), {spot(ONE_CORE): (0, 1)}, deadline_s=1000)
    outcome = hads(plan, at(one=(50, 760)), allocation_cycle_s=100)
    assert runs(outcome, 1) == [("one spot 1", 760, 810)]
    assert outcome.makespan_s == 950
    assert outcome.counts.steals == 1


def test_hibernation_just_before_the_last_task_ends() -> None:
    # Without a checkpoint all 200 s are lost at 199 s: 600 - (200 + 100) = 300 is the limit.
    plan = plan_of(tasks_of(200), {spot(ONE_CORE): (0,)}, deadline_s=600)
    outcome = hads(plan, at(one=(199,)))
    assert runs(outcome, 0)[-1] == ("one on-demand 1", 400, 600)
    assert not outcome.missed


def test_an_idle_vm_is_preferred_to_a_busy_one_and_spot_to_on_demand() -> None:
    # VM 1 is busy with enough time left, VM 2 is idle, VM 3 idle on demand. The limit of task 0 is
    # 2000 - (300 + 100) at the latest, and by then the spot VM 2 is too late for its spare time
    # (2000 - 1900 < 300 + 100): it goes to the on-demand VM 3, which is idle and in time.
    vms = {
        spot(ONE_CORE): (0,),
        spot(TWO_CORES, 1): (1,),
        spot(TWO_CORES, 2): (2,),
        on_demand(ONE_CORE): (3,),
    }
    plan = plan_of(tasks_of(300, 1700, 10, 10), vms, deadline_s=2000)
    outcome = hads(plan, at(one=(50,)), allocation_cycle_s=5000)
    assert runs(outcome, 0)[-1] == ("one on-demand 1", 1600, 1900)
    # Burst-HADS does not wait: at 50 s the idle spot VM has all the time it needs.
    assert runs(burst(plan, at(one=(50,)), allocation_cycle_s=5000), 0)[-1] == ("two spot 2", 50, 350)


def test_work_stealing_takes_the_tasks_of_later_cycles() -> None:
    # As in Figure 6.8: of the on-demand VM's eight tasks on two cores, the first four start in its first
    # cycle of 200 s; the spot VM, idle after 10 s, takes tasks 5 to 8 (here 4 to 7).
    tasks = tasks_of(*[100] * 4, *[150] * 4, 10)
    vms = {on_demand(TWO_CORES): range(8), spot(TWO_CORES): (8,)}
    outcome = hads(plan_of(tasks, vms), at(), allocation_cycle_s=200)
    assert outcome.counts.steals == 4
    assert {task for task in range(9) if runs(outcome, task)[0][0] == "two spot 1"} == {4, 5, 6, 7, 8}


def test_hads_steals_for_spot_vms_only_burst_hads_for_all() -> None:
    plan = plan_of(tasks_of(100, 100, 100, 10), {spot(ONE_CORE): (0, 1, 2), on_demand(ONE_CORE): (3,)})
    assert hads(plan, at(), allocation_cycle_s=150).counts.steals == 0
    stolen = burst(plan, at(), allocation_cycle_s=150)
    assert runs(stolen, 2) == [("one on-demand 1", 10, 110)]
    assert stolen.counts.steals == 1


def test_nothing_is_stolen_that_would_leave_too_little_spare_time() -> None:
    # The spot VM would end task 1 at 110 s. It must leave more than 100 s for the longest task and 100 s for
    # a new VM: a deadline of 310 s is not enough, one of 311 s is.
    vms = {on_demand(ONE_CORE): (0, 1), spot(ONE_CORE): (2,)}
    for deadline_s, steals in ((310, 0), (311, 1)):
        plan = plan_of(tasks_of(100, 100, 10), vms, deadline_s=deadline_s)
        assert hads(plan, at(), allocation_cycle_s=100).counts.steals == steals


def test_a_spot_vm_gets_no_task_for_which_no_on_demand_vm_is_left() -> None:
    # One on-demand VM of each type may run, and it does: nothing could take over from the spot VM.
    plan = plan_of(tasks_of(100, 100, 10), {on_demand(ONE_CORE): (0, 1), spot(ONE_CORE): (2,)})
    assert hads(plan, at(), allocation_cycle_s=100, max_per_type_and_market=1).counts.steals == 0
    assert hads(plan, at(), allocation_cycle_s=100, max_per_type_and_market=2).counts.steals == 1


@pytest.mark.parametrize(("hibernates_s", "where"), [(600, "one on-demand 1"), (601, "burst on-demand 1")])
def test_burst_mode_needs_the_credits_of_the_whole_task(hibernates_s: float, where: str) -> None:
    # A task of 240 s needs ceil(240 / 60) = 4 credits, and more than that must be there (Algorithm 11, line
    # 6). The idle burstable VM has 600 / 150 = 4 at 600 s.
    plan = plan_of(tasks_of(500, 240), {spot(ONE_CORE): (0, 1), on_demand(BURST): ()})
    outcome = burst(plan, at(one=(hibernates_s,)))
    start_s = hibernates_s + (0 if where.startswith("burst") else 100)
    assert runs(outcome, 1)[-1] == (where, start_s, start_s + 240)


def test_a_burstable_vm_steals_one_task_in_baseline_mode() -> None:
    # Idle at 50 s (10 s of work at 20 %), it takes task 2 of the queue, which takes 100 / 0.2 s there, and
    # not task 3 as well. It does not steal from another burstable VM, nor another from it.
    vms = {on_demand(BURST): (0,), spot(ONE_CORE): (1, 2, 3)}
    outcome = burst(plan_of(tasks_of(10, 100, 100, 100), vms), at(), allocation_cycle_s=100)
    assert runs(outcome, 2) == [("burst on-demand 1", 50, 550)]
    assert runs(outcome, 3) == [("one spot 1", 100, 200)]


def test_a_task_that_meets_the_deadline_nowhere_goes_where_it_ends_soonest() -> None:
    # 150 s are left at 50 s; any VM ends task 0 late. The busy VM would at 60 + 200 s, a new one at 350 s.
    plan = plan_of(tasks_of(200, 60), {spot(ONE_CORE): (0,), on_demand(ONE_CORE): (1,)}, deadline_s=200)
    for outcome in (hads(plan, at(one=(50,))), burst(plan, at(one=(50,)))):
        assert runs(outcome, 0)[-1] == ("one on-demand 1", 60, 260)
        assert outcome.missed


def test_on_demand_only_keeps_the_queues_and_the_price_is_that_of_on_demand() -> None:
    vms = {spot(ONE_CORE): (1, 0), on_demand(ONE_CORE): (2,)}
    plan = on_demand_plan(plan_of(tasks_of(100, 50, 60), vms, interval_s=30))
    outcome = Execution(plan, environment(), at(one=(10, 20)), OnDemand()).run()
    assert runs(outcome, 0) == [("one on-demand 1", 50, 150)]
    assert (outcome.counts.hibernations, outcome.counts.checkpoints) == (0, 0)
    # VM 2 is idle from 60 s on and kept: its cycle of 1,000 s has not ended.
    assert outcome.cost_usd == pytest.approx(0.03)


QUICK = SearchSettings(max_iteration=5, max_attempt=5)


def has_twins(plan: Plan, environment: Environment) -> bool:
    """Whether for each spot VM an on-demand VM of its type is left, which the guarantee rests on."""
    vms = [planned.vm for planned in plan.vms]
    per_type = all(
        sum(vm.vm_type.name == vm_type.name for vm in vms) <= environment.max_per_type_and_market
        for vm_type in environment.types
    )
    return per_type and len(vms) <= environment.max_on_demand


@pytest.mark.real
@settings(max_examples=60)
@given(**DRAWN, cycle_s=st.sampled_from([60.0, 900.0]))
def test_no_deadline_is_missed_however_vms_hibernate(
    count: int, longest_s: int, stretch: float, rates: tuple[float, float], cycle_s: float, seed: int
) -> None:
    """They keep it whenever the primary map does and leaves a VM for each spot VM."""
    environment = Environment(TABLE_9_1, allocation_cycle_s=cycle_s)
    bag = uniform_job(count, 10, longest_s, environment.types, seed)
    deadline_s = 180.0 + longest_s * count / 8 * stretch
    try:
        plans: dict[type[Hads] | type[BurstHads], Plan] = {
            Hads: plan_primarily(bag, environment, deadline_s),
            BurstHads: plan_with_bursts(bag, environment, deadline_s, settings=QUICK),
        }
    except ImpossibleDeadlineError:
        assume(False)
    world = drawn(Scenario("drawn", *rates, over_s=deadline_s), seed)
    for scheduler, plan in plans.items():
        if not has_twins(plan, environment):
            continue
        outcome = Execution(plan, environment, world, scheduler()).run()
        assert not outcome.missed
        assert_books_balance(outcome, bag_tasks=count)


def assert_books_balance(outcome: Outcome, bag_tasks: int) -> None:
    """What is billed is what ran; no core runs two tasks; every task ends once."""
    billed_usd = sum(
        vm.usd_hour / SECONDS_PER_HOUR * (span.end_s - span.start_s)
        for vm, spans in zip(outcome.vms, outcome.states, strict=True)
        for span in spans
        if span.state in (VmState.STARTING, VmState.BUSY, VmState.IDLE)
    )
    assert outcome.cost_usd == pytest.approx(billed_usd)
    for vm, spans in enumerate(outcome.states):
        for before, after in pairwise(spans):
            assert before.end_s == after.start_s
        assert {span.state for span in spans} <= set(VmState) - {VmState.TERMINATED}
        for core in range(outcome.vms[vm].vm_type.vcpus):
            mine = sorted((s.start_s, s.end_s) for s in outcome.tasks if (s.vm, s.core) == (vm, core))
            assert all(before[1] <= after[0] for before, after in pairwise(mine))
        # A VM is busy exactly while a task runs on it.
        busy_s = sum(span.end_s - span.start_s for span in spans if span.state == VmState.BUSY)
        assert busy_s == pytest.approx(covered_s([s[3:] for s in outcome.tasks if s.vm == vm]))
    assert {span.task for span in outcome.tasks} == set(range(bag_tasks))


def covered_s(spans: list[tuple[float, float]]) -> float:
    total_s, until_s = 0.0, 0.0
    for start_s, end_s in sorted(spans):
        total_s += max(end_s - max(start_s, until_s), 0.0)
        until_s = max(until_s, end_s)
    return total_s


def early_hibernations(outcome: Outcome) -> set[tuple[str, float]]:
    return {
        (vm.name, span.start_s)
        for vm, spans in zip(outcome.vms, outcome.states, strict=True)
        for span in spans
        if span.state == VmState.HIBERNATED and span.start_s < 1000
    }


def test_schedulers_meet_the_same_world() -> None:
    environment = Environment(TABLE_9_1)
    plan = plan_primarily(published_job("J60", environment.types), environment, 2700)
    world = drawn(SCENARIOS["s_4"], seed=3)
    one, other = (Execution(plan, environment, world, scheduler()).run() for scheduler in (Hads, BurstHads))
    assert early_hibernations(one) == early_hibernations(other) != set()
