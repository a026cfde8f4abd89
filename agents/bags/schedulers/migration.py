"""Where a task migrates (Teylo 2021, Algorithm 6)."""

from __future__ import annotations

from envs.simulation.bags.decisions import Answer, Move, Rent, Wait
from envs.simulation.bags.fleet import Fleet
from envs.simulation.bags.model import Market, VmType
from envs.simulation.bags.plan import TIME_TOLERANCE_S
from envs.simulation.bags.rented import RentedVm
from envs.simulation.bags.rescue import busy_vms, check_migration, idle_vms, new_end_s
from envs.simulation.bags.reserve import rentable


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
