"""The VMs of an execution and what runs on them (Teylo 2021, section 4.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from spotweave.envs.simulation.bags.cases import Calendar, Event
from spotweave.envs.simulation.bags.model import SECONDS_PER_HOUR, Environment, Market, Mode, Vm, VmType
from spotweave.envs.simulation.bags.plan import MEMORY_TOLERANCE_MB, TIME_TOLERANCE_S, Plan
from spotweave.envs.simulation.bags.rented import Queue, RentedVm, RunningTask, Span, VmState


class TaskSpan(NamedTuple):
    """A task's time on a core, interrupted by nothing."""

    vm: int
    core: int
    task: int
    start_s: float
    end_s: float


@dataclass
class Counts:
    """How often something happened."""

    hibernations: int = 0  # VMs that hibernated
    resumes: int = 0  # VMs that resumed
    migrations: int = 0  # tasks that left a VM because it had hibernated
    steals: int = 0  # waiting tasks that an idle VM took
    on_demand: int = 0  # regular on-demand VMs that the scheduler rented
    checkpoints: int = 0  # recorded
    recoveries: int = 0  # running tasks that went on from a checkpoint on another VM


@dataclass(frozen=True)
class Outcome:
    """One execution of a bag."""

    scheduler: str  # its name
    deadline_s: float  # D
    makespan_s: float  # when the last task ended; math.inf if some never did
    cost_usd: float  # of all VMs
    counts: Counts  # how often something happened
    vms: tuple[Vm, ...]  # what was rented, in the order of renting
    states: tuple[tuple[Span, ...], ...]  # what each VM did
    tasks: tuple[TaskSpan, ...]  # what ran where

    @property
    def missed(self) -> bool:
        """Whether a task ended after the deadline, or never."""
        return self.makespan_s > self.deadline_s + TIME_TOLERANCE_S


# The objective of Teylo 2021: money and makespan, weighted (Eq. 8.1 and 8.8).


def fitness_scales(environment: Environment, d_spot_s: float) -> tuple[float, float]:
    """Weights of one USD and of one second in Eq. 8.1 and 8.8.

    The cost is divided by that of all VMs, at the price of the dearest, during D_spot; the makespan by it.
    """
    vms = environment.spot() or environment.on_demand()
    most_usd = max(vm.usd_hour for vm in vms) / SECONDS_PER_HOUR * d_spot_s * len(vms)
    return environment.omega / most_usd, (1 - environment.omega) / d_spot_s


CREDITS_END_S = 1e-6
"""Credits for less time than this are none: below it the clock would not move on."""


class Fleet:
    """What a scheduler may read, and how tasks start, stop and end.

    Every VM runs its queue first come, first served.

    Args:
        plan: its bag, deadline and checkpoint intervals.
        environment: limits and parameters.

    Attributes:
        now_s: seconds after the bag was started.
        deadline_s: D.
        memory_mb: [tasks] rm_i.
        vms: in the order of renting; given back ones too.
        unfinished: tasks that have not ended.
        counts: how often something happened.
        ran: what ran where so far; not what runs now.
    """

    def __init__(self, plan: Plan, environment: Environment) -> None:
        tasks = plan.bag.tasks
        self.now_s, self.deadline_s = 0.0, plan.deadline_s
        self.environment, self.bag = environment, plan.bag
        self.memory_mb = [task.memory_mb for task in tasks]
        self.vms: list[RentedVm] = []
        self.unfinished = len(tasks)
        self.counts = Counts()
        self.ran: list[TaskSpan] = []
        self.calendar = Calendar()
        self._dump_s = [environment.checkpoint_s(task) for task in tasks]
        intervals_s = {
            placed.task.name: placed.checkpoint_interval_s for vm in plan.vms for placed in vm.tasks
        }
        # A task that no plan has placed saves as often as Eq. 6.2 says: dump / ovh on every type of VM.
        ovh = environment.checkpoint_overhead
        usual_s = [dump_s / ovh if ovh > 0 else math.inf for dump_s in self._dump_s]
        self._interval_s = [
            intervals_s.get(task.name, usual) or math.inf for task, usual in zip(tasks, usual_s, strict=True)
        ]
        self._runtimes_s: dict[str, list[float]] = {}
        self._left = [1.0] * len(tasks)

    def runtimes_s(self, vm_type: VmType) -> list[float]:
        """[tasks] e_ij on a type of VM."""
        if vm_type.name not in self._runtimes_s:
            tasks = self.bag.tasks
            self._runtimes_s[vm_type.name] = [task.runtime_s[vm_type.name] for task in tasks]
        return self._runtimes_s[vm_type.name]

    def remaining_s(self, task: int, vm: RentedVm, mode: Mode = Mode.FULL) -> float:
        """Seconds that a task takes on a VM from its latest checkpoint, with the checkpoints to come."""
        work_s = self._left[task] * vm.runtimes_s[task]
        if vm.spot and work_s > self._interval_s[task]:
            return work_s + (math.ceil(work_s / self._interval_s[task]) - 1) * self._dump_s[task]
        return work_s / vm.speed(mode)

    def unsaved_s(self, task: int, source: RentedVm, vm_type: VmType) -> float:
        """Seconds that a task would take on a VM of a type from what its VM has saved of it by now."""
        left, running = self._left[task], source.running.get(task)
        if running is not None:
            left -= running.saved(self.now_s)[1] / source.runtimes_s[task]
        return left * self.runtimes_s(vm_type)[task]

    def queue(self, vm: RentedVm) -> Queue:
        """When a VM that is not hibernated will have run all it has; also fills in its `starts_s`."""
        if vm.queue is None:
            running = [(task.finish_s, self.memory_mb[task.task]) for task in vm.running.values()]
            vm_type = vm.vm.vm_type
            vm.queue = Queue(vm_type.vcpus, vm_type.memory_mb, max(self.now_s, vm.ready_s), running)
            vm.starts_s = {
                task: vm.queue.append(self.remaining_s(task, vm, vm.modes[task]), self.memory_mb[task])
                for task in vm.waiting
            }
        return vm.queue

    def may_burst(self, task: int, vm: RentedVm) -> bool:
        """Whether a burstable VM holds the credits for a whole task in burst mode now."""
        vm.update_credits(self.now_s, self.environment.burst_period_s)
        return vm.credits > math.ceil(self.remaining_s(task, vm) / self.environment.burst_period_s)

    def alive(self, vm_type: VmType | None, market: Market) -> int:
        """VMs of a type (of all types if None) and market that are rented now."""
        return sum(
            rented.state != VmState.TERMINATED
            and rented.vm.market == market
            and (vm_type is None or rented.vm.vm_type is vm_type)
            for rented in self.vms
        )

    def rent(self, vm: Vm, ready_s: float) -> RentedVm:
        """Rent a VM now."""
        rented = RentedVm(len(self.vms), vm, self.runtimes_s(vm.vm_type), self.now_s, ready_s)
        self.vms.append(rented)
        if ready_s > self.now_s:
            self.calendar.push(ready_s, Event.READY, rented)
        return rented

    def enqueue(self, task: int, vm: RentedVm, mode: Mode) -> None:
        """A task goes to the end of a VM's queue."""
        vm.waiting.append(task)
        vm.modes[task] = mode
        vm.queue = None

    def start_tasks(self, vm: RentedVm) -> None:
        """Start waiting tasks in order while there are cores and memory."""
        if vm.state not in (VmState.BUSY, VmState.IDLE):
            return
        while vm.waiting and vm.free_cores:
            task = vm.waiting[0]
            if self.memory_mb[task] > vm.free_mb + MEMORY_TOLERANCE_MB:
                break
            del vm.waiting[0]
            self._start(task, vm)
        if vm.running and vm.state == VmState.IDLE:
            vm.enter(VmState.BUSY, self.now_s)
            vm.idle_until_s = math.inf
        self.watch_credits(vm)

    def _start(self, task: int, vm: RentedVm) -> None:
        vm.update_credits(self.now_s, self.environment.burst_period_s)
        vm.free_mb -= self.memory_mb[task]
        running = RunningTask(
            task,
            vm.free_cores.pop(),
            self._left[task] * vm.runtimes_s[task],
            self._interval_s[task] if vm.spot else math.inf,
            self._dump_s[task],
            vm.speed(vm.modes[task]),
            self.now_s,
        )
        vm.running[task] = running
        vm.queue = None
        self.calendar.push(running.finish_s, Event.FINISHED, vm, running)

    def watch_credits(self, vm: RentedVm) -> None:
        """Without credits a burstable VM runs at its baseline; look again when they will have run out."""
        net_per_s = vm.update_credits(self.now_s, self.environment.burst_period_s)
        if net_per_s <= 0:
            return
        left_s = vm.credits / net_per_s
        if left_s > CREDITS_END_S:
            self.calendar.push(self.now_s + left_s, Event.NO_CREDITS, vm)
            return
        baseline = vm.vm.vm_type.baseline
        for running in vm.running.values():
            if running.speed > baseline:
                self._note(vm, running)
                running.pause(self.now_s)
                running.resume(self.now_s, baseline)
                self.calendar.push(running.finish_s, Event.FINISHED, vm, running)
        vm.queue = None

    def finish(self, vm: RentedVm, running: RunningTask) -> None:
        """A task ends."""
        vm.update_credits(self.now_s, self.environment.burst_period_s)
        del vm.running[running.task]
        self.counts.checkpoints += running.checkpoints
        self.unfinished -= 1
        self._leave_core(vm, running)
        self.start_tasks(vm)

    def take_away(self, task: int, vm: RentedVm) -> None:
        """A task leaves a VM unfinished; of a running one, the latest checkpoint remains."""
        vm.queue = None
        if task in vm.waiting:
            vm.waiting.remove(task)
            return
        vm.update_credits(self.now_s, self.environment.burst_period_s)
        running = vm.running.pop(task)
        completed, saved_s = running.saved(self.now_s)
        self.counts.checkpoints += completed
        self.counts.recoveries += saved_s > 0
        self._left[task] -= saved_s / vm.runtimes_s[task]
        self._leave_core(vm, running)

    def _leave_core(self, vm: RentedVm, running: RunningTask) -> None:
        if vm.state != VmState.HIBERNATED:
            self._note(vm, running)
        vm.free_cores.append(running.core)
        vm.free_mb += self.memory_mb[running.task]
        vm.queue = None

    def _note(self, vm: RentedVm, running: RunningTask) -> None:
        if self.now_s > running.start_s:
            self.ran.append(TaskSpan(vm.index, running.core, running.task, running.start_s, self.now_s))

    def hibernate(self, vm: RentedVm) -> None:
        """Every task of a VM stops at its break-point."""
        self.counts.hibernations += 1
        for running in vm.running.values():
            self._note(vm, running)
            running.pause(self.now_s)
        vm.enter(VmState.HIBERNATED, self.now_s)
        vm.idle_until_s = vm.limit_s = math.inf
        vm.queue = None

    def resume(self, vm: RentedVm) -> None:
        """Every task of a VM goes on from its break-point."""
        self.counts.resumes += 1
        vm.enter(VmState.BUSY if vm.has_tasks else VmState.IDLE, self.now_s)
        vm.queue = None
        for running in vm.running.values():
            running.resume(self.now_s, running.speed)
            self.calendar.push(running.finish_s, Event.FINISHED, vm, running)
        self.start_tasks(vm)

    def get_ready(self, vm: RentedVm) -> None:
        """A VM that was starting can run tasks."""
        vm.update_credits(self.now_s, self.environment.burst_period_s)
        vm.enter(VmState.IDLE, self.now_s)
        self.start_tasks(vm)

    def stand_by(self, vm: RentedVm) -> None:
        """An idle VM is given back at the end of its allocation cycle."""
        vm.idle_until_s = vm.cycle_end_s(self.now_s, self.environment.allocation_cycle_s)
        self.calendar.push(vm.idle_until_s, Event.CYCLE_ENDED, vm)

    def terminate(self, vm: RentedVm) -> None:
        """Give a VM back, if it has not been."""
        if vm.state != VmState.TERMINATED:
            vm.enter(VmState.TERMINATED, self.now_s)
        vm.idle_until_s = math.inf


# Places for the VMs of an execution: as many per type and market as may run at once.


class Slots:
    """Numbers the VMs that may be rented: spot, regular on-demand, then burstable ones.

    The VMs of a type and market that are rented take its first places in the order of renting; a new one
    would take the next.

    Args:
        environment: what may be rented.

    Attributes:
        vms: (C,) what each place is for.
    """

    def __init__(self, environment: Environment) -> None:
        self.vms: tuple[Vm, ...] = (
            *environment.spot(),
            *environment.on_demand(),
            *environment.burstable(),
        )
        self._first: dict[tuple[str, Market], int] = {}
        for number, vm in enumerate(self.vms):
            self._first.setdefault((vm.vm_type.name, vm.market), number)

    def taken(self, fleet: Fleet) -> dict[int, RentedVm]:
        """The VMs that are rented now, by place."""
        places = dict(self._first)
        found = {}
        for rented in fleet.vms:
            if rented.state != VmState.TERMINATED:
                kind = rented.vm.vm_type.name, rented.vm.market
                found[places[kind]] = rented
                places[kind] += 1
        return found

    def next(self, fleet: Fleet, vm_type: VmType, market: Market) -> int:
        """The place of a new VM, if one more may run."""
        return self._first[vm_type.name, market] + fleet.alive(vm_type, market)

    def history(self, fleet: Fleet) -> list[int]:
        """[VMs ever rented] a place for each, for pictures; later ones come again to places given back."""
        most, count = fleet.environment.max_per_type_and_market, dict.fromkeys(self._first, 0)
        places = []
        for rented in fleet.vms:
            kind = rented.vm.vm_type.name, rented.vm.market
            places.append(self._first[kind] + count[kind] % most)
            count[kind] += 1
        return places
