"""Whether a task can migrate in time, and how long a hibernated VM may be waited for (Teylo 2021)."""

from __future__ import annotations

from collections.abc import Iterable

from spotweave.envs.simulation.bags.fleet import Fleet
from spotweave.envs.simulation.bags.model import Market, Mode, VmType
from spotweave.envs.simulation.bags.plan import TIME_TOLERANCE_S
from spotweave.envs.simulation.bags.rented import Queue, RentedVm, VmState

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
    return appended(fleet, task, vm, queue, vm.longest_s, mode)


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


def migration_time_limit_s(fleet: Fleet, source: RentedVm) -> float:
    """Mtt = D - (estimate_rt + alpha) (Eq. 6.4), and no later than `last_call_s`.

    The VMs that Algorithm 4 counts on may be gone when the limit comes; a new VM of the type will not be.
    """
    needed_s = estimate_rt_s(fleet, source) + fleet.environment.migration_overhead_s
    return min(fleet.deadline_s - needed_s, last_call_s(fleet, source))


def last_call_s(fleet: Fleet, source: RentedVm) -> float:
    """When a new on-demand VM of the same type must be rented to run all tasks of a VM by the deadline."""
    vm_type = source.vm.vm_type
    queue = Queue(vm_type.vcpus, vm_type.memory_mb, 0.0, [])
    for task in (*source.running, *source.waiting):
        queue.append(fleet.unsaved_s(task, source, vm_type), fleet.memory_mb[task])
    return fleet.deadline_s - fleet.environment.migration_overhead_s - queue.end_s


def estimate_rt_s(fleet: Fleet, source: RentedVm) -> float:
    """Algorithm 4: seconds from now that the tasks of a VM take on others, without alpha of new ones.

    For each task a VM of K, then an idle one, then a busy one, each by price, then a new on-demand VM. A task
    that fits nowhere in time is taken to need a new VM of its own, which is late already.
    """
    pool = _Pool(fleet, source)
    for task in (*source.running, *source.waiting):
        pool.assign(task)
    return pool.makespan_s


class _Pool:
    """K and the VMs that may join it."""

    def __init__(self, fleet: Fleet, source: RentedVm) -> None:
        self._execution, self._source = fleet, source
        self._others = [*idle_vms(fleet), *busy_vms(fleet)]
        self._selected: dict[int, tuple[Queue, float]] = {}
        self._new: list[tuple[Queue, VmType]] = []
        self.makespan_s = 0.0

    def assign(self, task: int) -> None:
        """The first VM in the order of `sort_selected` that takes it in time."""
        if not (self._to_rented(task) or self._to_selected_new(task)):
            self._to_new(task)

    def _to_rented(self, task: int) -> bool:
        fleet = self._execution
        for vm in sorted(self._others, key=lambda vm: vm.index not in self._selected):
            queue, longest_s = self._selected.get(vm.index) or (fleet.queue(vm), vm.longest_s)
            trial = queue.copy()
            if appended(fleet, task, vm, trial, longest_s):
                self._selected[vm.index] = trial, max(longest_s, vm.runtimes_s[task])
                self._ends(trial.end_s - fleet.now_s)
                return True
        return False

    def _to_selected_new(self, task: int) -> bool:
        fleet = self._execution
        alpha_s = fleet.environment.migration_overhead_s
        for number, (queue, vm_type) in enumerate(self._new):
            if fleet.memory_mb[task] <= vm_type.memory_mb:
                trial = queue.copy()
                trial.append(fleet.unsaved_s(task, self._source, vm_type), fleet.memory_mb[task])
                if fleet.now_s + alpha_s + trial.end_s <= fleet.deadline_s + TIME_TOLERANCE_S:
                    self._new[number] = trial, vm_type
                    self._ends(trial.end_s)
                    return True
        return False

    def _to_new(self, task: int) -> None:
        fleet, source = self._execution, self._source
        for vm_type in rentable(fleet, source):
            taken = sum(one is vm_type for _, one in self._new)
            if fleet.memory_mb[task] <= vm_type.memory_mb and taken < room(fleet, vm_type, source):
                end_s = new_end_s(fleet, task, source, vm_type)
                if end_s <= fleet.deadline_s + TIME_TOLERANCE_S:
                    queue = Queue(vm_type.vcpus, vm_type.memory_mb, 0.0, [])
                    queue.append(fleet.unsaved_s(task, source, vm_type), fleet.memory_mb[task])
                    self._new.append((queue, vm_type))
                    self._ends(queue.end_s)
                    return
        self._ends(fleet.unsaved_s(task, source, source.vm.vm_type))

    def _ends(self, end_s: float) -> None:
        self.makespan_s = max(self.makespan_s, end_s)
