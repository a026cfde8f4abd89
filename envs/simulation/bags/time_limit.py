"""The migration time limit: until when a hibernated VM may be waited for (Teylo 2021, section 6.2.3)."""

from __future__ import annotations

from envs.simulation.bags.fleet import Fleet
from envs.simulation.bags.model import VmType
from envs.simulation.bags.plan import TIME_TOLERANCE_S
from envs.simulation.bags.rented import Queue, RentedVm
from envs.simulation.bags.rescue import appended, busy_vms, idle_vms, new_end_s, rentable, room


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
            queue, longest_s = self._selected.get(vm.index) or (
                fleet.queue(vm),
                max((vm.runtimes_s[one] for one in (*vm.running, *vm.waiting)), default=0.0),
            )
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
