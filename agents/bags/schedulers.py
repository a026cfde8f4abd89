"""Schedulers of a bag's tasks while it is carried out (Teylo 2021, sections 6 and 9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from spotweave.envs.simulation.bags.execution import Answer, BagScheduler, Cause, Move, Question, Rent, Wait
from spotweave.envs.simulation.bags.fleet import Fleet
from spotweave.envs.simulation.bags.model import BagError, Market, Mode, Vm, VmType
from spotweave.envs.simulation.bags.options import (
    busy_vms,
    check_migration,
    idle_vms,
    last_call_s,
    migration_time_limit_s,
    new_end_s,
    rentable,
)
from spotweave.envs.simulation.bags.plan import TIME_TOLERANCE_S, Plan
from spotweave.envs.simulation.bags.rented import RentedVm, VmState

# Where a task migrates (Teylo 2021, Algorithm 6).


def migrate(fleet: Fleet, task: int, source: RentedVm) -> Answer:
    """Algorithm 6: an idle VM, a busy VM, or the cheapest new on-demand VM that meets the deadline."""
    for vm in (*idle_vms(fleet), *busy_vms(fleet)):
        if vm is not source and check_migration(fleet, task, vm):
            return Move(vm)
    return rent(fleet, task, source)


def rent(fleet: Fleet, task: int, source: RentedVm) -> Answer:
    """Attempt 3 of Algorithms 6 and 11: the cheapest new on-demand VM that meets the deadline.

    VMs kept free for other spot VMs are taken only if no other will do. The listings end there without an
    answer; here the task then goes where it ends soonest, late as that is, or waits if it can go nowhere.
    """
    kept = rentable(fleet, source)
    types = [*kept, *(vm_type for vm_type in rentable(fleet, source, kept=False) if vm_type not in kept)]
    types = [vm_type for vm_type in types if fleet.memory_mb[task] <= vm_type.memory_mb]
    limit_s = fleet.deadline_s + TIME_TOLERANCE_S
    for vm_type in types:
        if new_end_s(fleet, task, source, vm_type) <= limit_s:
            return Rent(vm_type, Market.ON_DEMAND)
    return _soonest(fleet, task, source, types)


def _soonest(fleet: Fleet, task: int, source: RentedVm, types: list[VmType]) -> Answer:
    ends: list[tuple[float, Answer]] = [
        (new_end_s(fleet, task, source, vm_type), Rent(vm_type, Market.ON_DEMAND)) for vm_type in types
    ]
    for vm in (*idle_vms(fleet), *busy_vms(fleet)):
        if vm is not source and fleet.memory_mb[task] <= vm.vm.vm_type.memory_mb:
            queue = fleet.queue(vm).copy()
            start_s = queue.append(fleet.remaining_s(task, vm), fleet.memory_mb[task], fleet.now_s)
            ends.append((start_s + fleet.remaining_s(task, vm), Move(vm)))
    return min(ends, key=lambda end: end[0])[1] if ends else Wait()


# HADS: wait for a hibernated VM as long as the deadline allows (Teylo 2021, section 6.2).
#
# Algorithm 5 handles events; here each event is a question about one task.


class Hads:
    """Hibernation-Aware Dynamic Scheduler."""

    name = "HADS"

    def __init__(self) -> None:
        self._limit: tuple[Fleet, float, int] | None = None
        self._until_s = 0.0

    def decide(self, question: Question, fleet: Fleet) -> Answer:
        """React to an event of a VM (Algorithm 5)."""
        cause, task, vm, idle = question
        assert vm is not None
        if cause == Cause.EMPTY:
            return Wait()
        if cause == Cause.HIBERNATED:
            return Wait(self._limit_s(vm, fleet))
        if cause == Cause.LIMIT:
            if vm.state != VmState.HIBERNATED:
                # It resumed in time, yet may hibernate again: as long as its tasks could still be saved then,
                # they stay. Algorithm 5 forgets the limit here, and would then miss the deadline.
                limit_s = last_call_s(fleet, vm)
                if limit_s > fleet.now_s:
                    return Wait(limit_s)
            return migrate(fleet, task, vm)
        assert idle is not None
        # Section 6.2.6 steals for spot VMs only.
        return Move(idle) if idle.spot and may_steal(fleet, task, vm, idle) else Wait()

    def _limit_s(self, vm: RentedVm, fleet: Fleet) -> float:
        """mtt, once for all tasks of a VM that hibernates."""
        key = fleet, fleet.now_s, vm.index
        if self._limit != key:
            self._limit, self._until_s = key, migration_time_limit_s(fleet, vm)
        return self._until_s


def may_steal(fleet: Fleet, task: int, vm: RentedVm, idle: RentedVm, mode: Mode = Mode.FULL) -> bool:
    """Algorithm 8: a task that its VM would start only in a later allocation cycle, if it is in time."""
    fleet.queue(vm)
    cycle_end_s = vm.cycle_end_s(fleet.now_s, fleet.environment.allocation_cycle_s)
    return vm.starts_s[task] >= cycle_end_s and check_migration(fleet, task, idle, mode)


# Burst-HADS: migrate at once, to burstable VMs in burst mode first (Teylo 2021, section 8.2).


class BurstHads:
    """Burst Hibernation-Aware Dynamic Scheduler."""

    name = "Burst-HADS"

    def decide(self, question: Question, fleet: Fleet) -> Answer:
        """Algorithm 11 for a hibernated VM, Algorithm 12 for an idle one."""
        cause, task, vm, idle = question
        assert vm is not None
        if cause == Cause.EMPTY:
            return Wait()
        if cause == Cause.IDLE:
            assert idle is not None
            return _steal(fleet, task, vm, idle)
        return burst_migrate(fleet, task, vm)


def burst_migrate(fleet: Fleet, task: int, source: RentedVm) -> Answer:
    """Algorithm 11: an idle burstable VM with credits, an idle or busy other VM, or a new on-demand VM."""
    idle, busy = idle_vms(fleet), busy_vms(fleet)
    for vm in idle:
        if vm.vm.vm_type.burstable and fleet.may_burst(task, vm) and check_migration(fleet, task, vm):
            return Move(vm, Mode.FULL)
    # sort_by_market: spot VMs first, idle ones first among equals.
    for vm in sorted((*idle, *busy), key=lambda vm: not vm.spot):
        if not vm.vm.vm_type.burstable and vm is not source and check_migration(fleet, task, vm):
            return Move(vm)
    return rent(fleet, task, source)


def _steal(fleet: Fleet, task: int, vm: RentedVm, idle: RentedVm) -> Answer:
    """Algorithm 12: no task of a burstable VM; a burstable VM takes one task, in baseline mode."""
    if vm.vm.vm_type.burstable:
        return Wait()
    if not idle.vm.vm_type.burstable:
        return Move(idle) if may_steal(fleet, task, vm, idle) else Wait()
    if idle.has_tasks or not may_steal(fleet, task, vm, idle, Mode.BASELINE):
        return Wait()
    return Move(idle, Mode.BASELINE)


# On-demand only: the plan is carried out as it stands (Teylo 2021, section 7.2).


class OnDemand:
    """Carries out a plan on on-demand VMs, and never moves a task."""

    name = "on-demand"

    def decide(self, question: Question, fleet: Fleet) -> Answer:
        """The task stays where the plan has it."""
        return Wait()


def on_demand_plan(plan: Plan) -> Plan:
    """The same scheduling "but only with on-demand VMs": the same queues, without checkpoints.

    Starts and ends are still those of the spot VMs; an execution needs only their order.
    """
    numbers: Counter[str] = Counter()
    vms = []
    for planned in plan.vms:
        vm_type = planned.vm.vm_type
        numbers[vm_type.name] += 1
        vm = Vm(vm_type, Market.ON_DEMAND, numbers[vm_type.name])
        tasks = tuple(replace(placed, checkpoint_interval_s=None) for placed in planned.tasks)
        vms.append(replace(planned, vm=vm, tasks=tasks))
    return replace(plan, vms=tuple(vms))


SCHEDULERS: dict[str, Callable[[], BagScheduler]] = {
    "hads": Hads,
    "burst-hads": BurstHads,
    "on-demand": OnDemand,
}

POLICIES = ("bag_cost", "mtdqn")
"""Policies that carry out bags: a rule, and the released policy of the agent `mtdqn`."""

SCHEDULER_SOURCES = {
    "hads": ("HADS", "Teylo 2021, Algorithms 4 to 8"),
    "burst-hads": ("Burst-HADS", "Teylo 2021, Algorithms 11 and 12"),
    "on-demand": ("On-demand VMs only", "Teylo 2021, section 7.2"),
}
"""Title and source of each."""


def scheduler_named(name: str) -> BagScheduler:
    """A new scheduler. Raises BagError naming those there are."""
    if name not in SCHEDULERS:
        raise BagError(
            f"there is no scheduler {name!r}: expected one of {', '.join((*SCHEDULERS, *POLICIES))}"
        )
    return SCHEDULERS[name]()
