"""Whether a task can migrate in time (Teylo 2021, Algorithm 7), and when it would end on a new VM."""

from __future__ import annotations

from collections.abc import Iterable

from envs.simulation.bags.fleet import Fleet
from envs.simulation.bags.model import Market, Mode, VmType
from envs.simulation.bags.plan import TIME_TOLERANCE_S
from envs.simulation.bags.rented import Queue, RentedVm, VmState

# On-demand VMs that may be rented, and those kept free for spot VMs (Teylo 2021, section 6.2.5).
#
# "There always exists on-demand VMs with the same characteristics of vm_j that can be allocated" is what
# makes HADS meet deadlines. The number of VMs per type is limited, so it holds only if they are reserved:
# one on-demand VM of its type for each spot VM with tasks.


def room(fleet: Fleet, vm_type: VmType, source: RentedVm | None, kept: bool = True) -> int:
    """On-demand VMs of a type that may be rented for the tasks of a VM.

    Args:
        fleet: what is rented now.
        vm_type: to be rented.
        source: the VM whose tasks need it; the one kept free for it may be used.
        kept: False to use those kept free for other spot VMs too.
    """
    of_type, of_all = fleet.environment.max_per_type_and_market, fleet.environment.max_on_demand
    for rented in fleet.vms:
        same = rented.vm.vm_type is vm_type
        if rented.spot:
            taken = kept and rented.has_tasks and (rented is not source or not same)
        else:
            taken = rented.state != VmState.TERMINATED
        if taken:
            of_type -= same
            of_all -= 1
    return min(of_type, of_all)


def has_twin(fleet: Fleet, spot: RentedVm) -> bool:
    """Whether an on-demand VM of a spot VM's type is free for the tasks that it has or may get."""
    vm_type = spot.vm.vm_type
    return Market.ON_DEMAND in vm_type.markets and room(fleet, vm_type, spot) > 0


def rentable(fleet: Fleet, source: RentedVm | None, kept: bool = True) -> list[VmType]:
    """M^o by price: types of which a regular on-demand VM may be rented for the tasks of a VM."""
    types = [
        vm_type
        for vm_type in fleet.environment.types
        if not vm_type.burstable
        and Market.ON_DEMAND in vm_type.markets
        and room(fleet, vm_type, source, kept) > 0
    ]
    return sorted(types, key=lambda vm_type: vm_type.usd_hour(Market.ON_DEMAND))


def idle_vms(fleet: Fleet) -> list[RentedVm]:
    """IR, spot VMs first, each by price."""
    return _by_market(vm for vm in fleet.vms if vm.state == VmState.IDLE)


def busy_vms(fleet: Fleet) -> list[RentedVm]:
    """BR, spot VMs first, each by price; with those that are starting."""
    return _by_market(vm for vm in fleet.vms if vm.state in (VmState.BUSY, VmState.STARTING))


def _by_market(vms: Iterable[RentedVm]) -> list[RentedVm]:
    return sorted(vms, key=lambda rented: (not rented.spot, rented.vm.usd_hour))


def check_migration(fleet: Fleet, task: int, vm: RentedVm, mode: Mode = Mode.FULL) -> bool:
    """Algorithm 7: whether a VM can take one more task and everything on it still meets the deadline."""
    queue = fleet.queue(vm).copy()
    longest_s = max((vm.runtimes_s[one] for one in (*vm.running, *vm.waiting)), default=0.0)
    return appended(fleet, task, vm, queue, longest_s, mode)


def appended(
    fleet: Fleet, task: int, vm: RentedVm, queue: Queue, longest_s: float, mode: Mode = Mode.FULL
) -> bool:
    """Append a task to a queue of a VM; whether Algorithm 7 allows it.

    A spot VM may hibernate just before its longest task ends: it must leave time for that task on a new VM,
    and an on-demand VM of its type must be free. Other VMs need no such spare time (section 8.2.1).

    Args:
        fleet: as it is now.
        task: index in the bag.
        vm: where it would go.
        queue: of that VM; it is changed.
        longest_s: run time of the longest task in the queue.
        mode: of a burstable VM.
    """
    if fleet.memory_mb[task] > vm.vm.vm_type.memory_mb:
        return False
    queue.append(fleet.remaining_s(task, vm, mode), fleet.memory_mb[task], fleet.now_s)
    spare_s = fleet.deadline_s - queue.end_s
    if not vm.spot:
        return spare_s >= -TIME_TOLERANCE_S
    longest_s = max(longest_s, vm.runtimes_s[task])
    return spare_s > longest_s + fleet.environment.migration_overhead_s and has_twin(fleet, vm)


def new_end_s(fleet: Fleet, task: int, source: RentedVm, vm_type: VmType) -> float:
    """When a task would end on a VM that is rented now: start + e + alpha."""
    start_s = fleet.now_s + fleet.environment.migration_overhead_s
    return start_s + fleet.unsaved_s(task, source, vm_type)
