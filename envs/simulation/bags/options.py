"""What a question may be answered: the VMs on which a task, or its rescue, still ends by the deadline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from spotweave.envs.simulation.bags.fleet import Slots
from spotweave.envs.simulation.bags.model import BagError, Environment, Market, Mode, Task, VmType
from spotweave.envs.simulation.bags.plan import TIME_TOLERANCE_S, Occupancy
from spotweave.envs.simulation.bags.rented import RentedVm, VmState
from spotweave.envs.simulation.bags.rescue import (
    appended,
    last_call_s,
    migration_time_limit_s,
    rentable,
    room,
)


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
