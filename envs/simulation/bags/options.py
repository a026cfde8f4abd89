"""What a question may be answered: the VMs on which a task, or its rescue, still ends by the deadline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from spotweave.envs.simulation.bags.execution import (
    Answer,
    Cause,
    Execution,
    Move,
    Question,
    Release,
    Rent,
    Wait,
)
from spotweave.envs.simulation.bags.fleet import Fleet, Slots
from spotweave.envs.simulation.bags.model import BagError, Environment, Market, Mode, Task, VmType
from spotweave.envs.simulation.bags.plan import TIME_TOLERANCE_S, Occupancy
from spotweave.envs.simulation.bags.rented import Queue, RentedVm, VmState


class Option(NamedTuple):
    """One answer."""

    answer: Answer  # what it is
    start_s: float  # seconds from now until the task would begin
    work_s: float  # seconds that it would take, with checkpoints on spot VMs


class Options:
    """The answers to one question that keep the deadline, by place.

    A task goes to a spot VM only where it leaves time, and an on-demand VM, for doing it again (Algorithm 7);
    to another VM if it ends by the deadline. On-demand VMs that are kept free for spot VMs are rented if
    nothing else will do; only where nothing at all is in time may a task be late. A burstable VM takes tasks
    as Burst-HADS' do: with all the credits that they need after a hibernation, one at a time in baseline mode
    otherwise.

    Args:
        question: what is asked.
        execution: that asks.
        slots: numbers the VMs.

    Attributes:
        by_slot: by place.
        here: the place of the VM that the task is on or that is empty; -1 before the start.
        none: whether "none for now" is an answer.
    """

    def __init__(self, question: Question, execution: Execution, slots: Slots) -> None:
        self._question, self._execution, self._slots = question, execution, slots
        self._fleet = execution.fleet
        self.taken = slots.taken(execution.fleet)
        self.here = next((slot for slot, vm in self.taken.items() if vm is question.vm), -1)
        self.none = question.cause != Cause.START
        self.by_slot: dict[int, Option] = {}
        if question.cause == Cause.EMPTY:
            self.by_slot[self.here] = Option(Wait(), 0.0, 0.0)
        elif question.cause == Cause.IDLE:
            self._add_rented()
        else:
            self._add_all()

    def answer(self, slot: int) -> Answer:
        """The answer that a place stands for; any without one is "none for now".

        That waits: for a hibernated VM until the migration time limit (Eq. 6.4), for one that resumed until
        its tasks could only just be saved. An empty VM is given back.
        """
        if slot in self.by_slot:
            return self.by_slot[slot].answer
        cause, vm = self._question.cause, self._question.vm
        if cause == Cause.EMPTY:
            return Release()
        if vm is None or cause == Cause.IDLE:
            return Wait()
        limit_s = migration_time_limit_s if cause == Cause.HIBERNATED else last_call_s
        return Wait(limit_s(self._fleet, vm))

    def place(self, answer: Answer) -> int:
        """The place of an answer; the number of places for "none for now".

        Raises:
            ValueError: if it is no option.
        """
        for slot, option in self.by_slot.items():
            if option.answer == answer:
                return slot
        if not self.none or isinstance(answer, Move | Rent):
            raise ValueError(f"{answer} is no option for {self._question.cause}: {list(self.by_slot)} are")
        return len(self._slots.vms)

    def _add_all(self) -> None:
        fleet, vm = self._fleet, self._question.vm
        if vm is not None and self._question.cause == Cause.LIMIT:
            self.none = vm.state != VmState.HIBERNATED and last_call_s(fleet, vm) > fleet.now_s
        self._add_rented()
        self._add_new(rentable(fleet, vm))
        self._add_new_spot()
        if not self.by_slot:
            self._add_new(rentable(fleet, vm, kept=False))
        if not self.by_slot:
            self._add_late()

    def _ready_in_s(self) -> float:
        if self._question.cause == Cause.START:
            return self._execution.launch_s
        return self._fleet.environment.migration_overhead_s

    def work_s(self, vm_type: VmType, market: Market, mode: Mode = Mode.FULL) -> float:
        """Seconds that the task takes on a VM from what is saved of it by now."""
        fleet, (_, task, source, _) = self._fleet, self._question
        left_s = fleet.runtimes_s(vm_type)[task]
        if source is not None:
            left_s = fleet.unsaved_s(task, source, vm_type)
        if mode == Mode.BASELINE:
            return left_s / vm_type.baseline
        return left_s * (1 + fleet.environment.checkpoint_overhead) if market == Market.SPOT else left_s

    def _add_rented(self) -> None:
        fleet, (cause, task, source, idle) = self._fleet, self._question
        for slot, vm in self.taken.items():
            if vm is source or (idle is not None and vm is not idle) or vm.state == VmState.HIBERNATED:
                continue
            mode = Mode.FULL
            if vm.vm.vm_type.burstable:
                mode = Mode.BASELINE if cause == Cause.IDLE else Mode.FULL
                if not self._may_burst(vm, mode):
                    continue
            queue = fleet.queue(vm).copy()
            if appended(fleet, task, vm, queue, vm.longest_s, mode):
                work_s = self.work_s(vm.vm.vm_type, vm.vm.market, mode)
                self.by_slot[slot] = Option(Move(vm, mode), queue.start_s - fleet.now_s, work_s)

    def _may_burst(self, vm: RentedVm, mode: Mode) -> bool:
        if vm.state != VmState.IDLE or vm.has_tasks:
            return False
        if mode == Mode.BASELINE:
            source = self._question.vm
            return source is not None and not source.vm.vm_type.burstable
        return self._fleet.may_burst(self._question.task, vm)

    def _add_new(self, types: list[VmType]) -> None:
        fleet, task, ready_in_s = self._fleet, self._question.task, self._ready_in_s()
        left_s = fleet.deadline_s - fleet.now_s + TIME_TOLERANCE_S
        for vm_type in types:
            work_s = self.work_s(vm_type, Market.ON_DEMAND)
            if ready_in_s + work_s <= left_s and fleet.memory_mb[task] <= vm_type.memory_mb:
                self._add_rent(vm_type, Market.ON_DEMAND, work_s)

    def _add_rent(self, vm_type: VmType, market: Market, work_s: float) -> None:
        slot = self._slots.next(self._fleet, vm_type, market)
        self.by_slot[slot] = Option(Rent(vm_type, market), self._ready_in_s(), work_s)

    def _add_new_spot(self) -> None:
        fleet, task, ready_in_s = self._fleet, self._question.task, self._ready_in_s()
        alpha_s = fleet.environment.migration_overhead_s
        for vm_type in self._spot_types():
            work_s = self.work_s(vm_type, Market.SPOT)
            spare_s = fleet.deadline_s - fleet.now_s - ready_in_s - work_s
            if (
                fleet.memory_mb[task] <= vm_type.memory_mb
                and spare_s > fleet.runtimes_s(vm_type)[task] + alpha_s
                and room(fleet, vm_type, None) > 0
            ):
                self._add_rent(vm_type, Market.SPOT, work_s)

    def _spot_types(self) -> Iterator[VmType]:
        """Types of which a spot VM can be rented now, and an on-demand VM in its place."""
        fleet = self._fleet
        for vm_type in fleet.environment.types:
            if (
                len(vm_type.markets) == len(Market)
                and not vm_type.burstable
                and fleet.alive(vm_type, Market.SPOT) < fleet.environment.max_per_type_and_market
                and not self._execution.hibernated(vm_type.name)
            ):
                yield vm_type

    def _add_late(self) -> None:
        """Whatever has the memory: nothing is in time."""
        fleet, (_, task, source, _) = self._fleet, self._question
        for vm_type in rentable(fleet, source, kept=False):
            if fleet.memory_mb[task] <= vm_type.memory_mb:
                self._add_rent(vm_type, Market.ON_DEMAND, self.work_s(vm_type, Market.ON_DEMAND))
        for slot, vm in self.taken.items():
            usable = vm is not source and vm.state != VmState.HIBERNATED
            if usable and fleet.memory_mb[task] <= vm.vm.vm_type.memory_mb:
                queue = fleet.queue(vm).copy()
                start_s = queue.append(fleet.remaining_s(task, vm), fleet.memory_mb[task], fleet.now_s)
                work_s = self.work_s(vm.vm.vm_type, vm.vm.market)
                self.by_slot[slot] = Option(Move(vm), start_s - fleet.now_s, work_s)


# D_spot: until when a spot VM may work so that its tasks can run elsewhere (Teylo 2021, Algorithm 1).


class ImpossibleDeadlineError(BagError):
    """A planner found no plan that keeps the deadline."""


def compute_d_spot(tasks: Sequence[Task], environment: Environment, deadline_s: float) -> float:
    """D_spot = max(D - (mkp_w + alpha), 0) in seconds.

    mkp_w is the makespan of the ceil(|B| / max_ondemand) longest tasks on the slowest VM: the worst case that
    an on-demand VM may have to take over. The slowest is the regular type on which they take longest.
    """
    count = -(-len(tasks) // environment.max_on_demand)
    longest = sorted(tasks, key=lambda task: -max(task.runtime_s.values()))[:count]
    types = [vm_type for vm_type in environment.types if not vm_type.burstable]
    worst_s = max((_makespan_s(longest, vm_type) for vm_type in types), default=0.0)
    return max(deadline_s - (worst_s + environment.migration_overhead_s), 0.0)


def _makespan_s(tasks: Sequence[Task], vm_type: VmType) -> float:
    """Seconds that tasks take on one VM, longest first; a task too large for its memory is left out."""
    occupancy = Occupancy(vm_type)
    for task in sorted(tasks, key=lambda task: -task.runtime_s[vm_type.name]):
        runtime_s = task.runtime_s[vm_type.name]
        slot = occupancy.earliest(task.memory_mb, runtime_s)
        if slot is not None:
            core, start_s = slot
            occupancy.place(core, task.memory_mb, start_s, start_s + runtime_s)
    return occupancy.end_s


# Whether a task can migrate in time, and how long a hibernated VM may be waited for (Teylo 2021).


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
