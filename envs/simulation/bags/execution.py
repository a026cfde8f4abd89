"""One execution of a bag of tasks on VMs that hibernate and resume (Teylo 2021, chapters 4, 6.2 and 8.2)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from enum import IntEnum

from envs.simulation.bags.decisions import (
    Answer,
    BagScheduler,
    Cause,
    InvalidAnswerError,
    Move,
    Question,
    Rent,
    Wait,
)
from envs.simulation.bags.ledger import Ledger
from envs.simulation.bags.model import Environment, Market, Mode, Vm, VmType
from envs.simulation.bags.outcome import Counts, Outcome
from envs.simulation.bags.plan import Plan
from envs.simulation.bags.queueing import Queue
from envs.simulation.bags.rented import RentedVm, VmState
from envs.simulation.bags.running import RunningTask
from envs.simulation.bags.scenarios import Scenario, changes_s

Due = tuple[float, int, int, "RentedVm | RunningTask | str", "RentedVm | None"]


class Event(IntEnum):
    """What happens, in the order in which events of the same time are handled.

    A task that ends when its VM hibernates has ended; a VM that hibernates at the end of its allocation cycle
    is kept.
    """

    FINISHED = 0
    NO_CREDITS = 1
    READY = 2
    CHANGED = 3
    LIMIT = 4
    CYCLE_ENDED = 5


class Execution:
    """Carries out a plan, event by event, and asks a scheduler where tasks go.

    The plan's VMs are ready at time 0; VMs that are rented later need alpha. Every VM runs its queue first
    come, first served. Idle VMs are given back at the end of their allocation cycle, all VMs with the last
    task.

    Args:
        plan: the primary scheduling map.
        environment: limits and parameters.
        scenario: when spot VMs hibernate and resume.
        seed: of the scenario's calendar.
        scheduler: whom to ask.
    """

    def __init__(
        self, plan: Plan, environment: Environment, scenario: Scenario, seed: int, scheduler: BagScheduler
    ) -> None:
        self.now_s, self.deadline_s = 0.0, plan.deadline_s
        self.environment, self.bag = environment, plan.bag
        self.memory_mb = [task.memory_mb for task in plan.bag.tasks]
        self.counts = Counts()
        self.vms: list[RentedVm] = []
        self._scheduler, self._scenario, self._seed = scheduler, scenario, seed
        self._dump_s = [environment.checkpoint_s(task) for task in plan.bag.tasks]
        self._interval_s = [math.inf] * len(plan.bag.tasks)
        self._runtimes_s: dict[str, list[float]] = {}
        self._left = [1.0] * len(plan.bag.tasks)
        self._unfinished = len(plan.bag.tasks)
        self._ledger = Ledger()
        self._due: list[Due] = []
        self._order = 0
        self._calendars: dict[str, Iterator[float]] = {}
        self._hibernated_types: set[str] = set()
        self._carry_out(plan)

    def run(self) -> Outcome:
        """Go on until the last task has ended, or until nothing will happen any more."""
        due = self._due
        while due and self._unfinished:
            self.now_s, event, _, what, vm = heapq.heappop(due)
            if event == Event.FINISHED:
                assert isinstance(what, RunningTask)
                assert vm is not None
                # The task may have been moved, paused or slowed since.
                if vm.running.get(what.task) is what and what.finish_s == self.now_s:
                    self._finish(vm, what)
            elif event == Event.CHANGED:
                assert isinstance(what, str)
                self._change(what)
            else:
                assert isinstance(what, RentedVm)
                self._vm_event(Event(event), what)
        end_s = math.inf if self._unfinished else self.now_s
        for rented in self.vms:
            self._terminate(rented)
        return self._ledger.outcome(self._scheduler.name, self.deadline_s, end_s, self.counts, self.vms)

    def remaining_s(self, task: int, vm: RentedVm, mode: Mode = Mode.FULL) -> float:
        """Seconds that a task would take on a VM from its latest checkpoint, with the checkpoints to come."""
        work_s = self._left[task] * vm.runtimes_s[task]
        if vm.spot and work_s > self._interval_s[task]:
            return work_s + (math.ceil(work_s / self._interval_s[task]) - 1) * self._dump_s[task]
        return work_s / vm.vm.vm_type.baseline if mode == Mode.BASELINE else work_s

    def queue(self, vm: RentedVm) -> Queue:
        """When a VM will have run all that is on it; also fills in its `starts_s`. Not for a hibernated VM."""
        if vm.queue is None:
            running = [(task.finish_s, self.memory_mb[task.task]) for task in vm.running.values()]
            vm_type = vm.vm.vm_type
            start_s = max(self.now_s, vm.ready_s)
            vm.queue = Queue(vm_type.vcpus, vm_type.memory_mb, start_s, running)
            vm.starts_s = {
                task: vm.queue.append(self.remaining_s(task, vm, vm.modes[task]), self.memory_mb[task])
                for task in vm.waiting
            }
        return vm.queue

    def credits(self, vm: RentedVm) -> float:
        """CPU credits that a burstable VM holds now."""
        vm.update_credits(self.now_s, self.environment.burst_period_s)
        return vm.credits

    def unsaved_s(self, task: int, vm: RentedVm, vm_type: VmType) -> float:
        """Seconds of work on a VM of a type, at full speed, that no checkpoint holds yet."""
        left, running = self._left[task], vm.running.get(task)
        if running is not None:
            left -= running.saved(self.now_s)[1] / vm.runtimes_s[task]
        return left * self.runtimes_s(vm_type)[task]

    def runtimes_s(self, vm_type: VmType) -> list[float]:
        """[tasks] e_ij on a type of VM."""
        if vm_type.name not in self._runtimes_s:
            tasks = self.bag.tasks
            self._runtimes_s[vm_type.name] = [task.runtime_s[vm_type.name] for task in tasks]
        return self._runtimes_s[vm_type.name]

    def alive(self, vm_type: VmType | None, market: Market) -> int:
        """VMs of a type (of all types if None) and market that are rented now."""
        return sum(
            rented.state != VmState.TERMINATED
            and rented.vm.market == market
            and (vm_type is None or rented.vm.vm_type is vm_type)
            for rented in self.vms
        )

    def _carry_out(self, plan: Plan) -> None:
        index = {task.name: number for number, task in enumerate(plan.bag.tasks)}
        for planned in plan.vms:
            rented = self._rent(planned.vm, planned.mode, ready_s=0.0)
            for placed in sorted(planned.tasks, key=lambda placed: (placed.start_s, placed.core)):
                task = index[placed.task.name]
                self._interval_s[task] = placed.checkpoint_interval_s or math.inf
                rented.waiting.append(task)
                rented.modes[task] = planned.mode
            self._start_tasks(rented)
            if not rented.has_tasks:
                # It stands by (Algorithm 9, part 2): it has not become idle, so it steals nothing.
                self._stand_by(rented)

    def _rent(self, vm: Vm, mode: Mode, ready_s: float) -> RentedVm:
        rented = RentedVm(len(self.vms), vm, mode, self.runtimes_s(vm.vm_type), self.now_s, ready_s)
        self.vms.append(rented)
        if ready_s > self.now_s:
            self._push(ready_s, Event.READY, rented)
        name = vm.vm_type.name
        if rented.spot and name not in self._calendars:
            self._calendars[name] = changes_s(self._scenario, name, self._seed)
            self._next_change(name)
        return rented

    def _push(
        self, time_s: float, event: Event, what: RentedVm | RunningTask | str, vm: RentedVm | None = None
    ) -> None:
        self._order += 1
        heapq.heappush(self._due, (time_s, event, self._order, what, vm))

    def _next_change(self, vm_type: str) -> None:
        time_s = next(self._calendars[vm_type], math.inf)
        if time_s < math.inf:
            self._push(time_s, Event.CHANGED, vm_type)

    def _vm_event(self, event: Event, rented: RentedVm) -> None:
        if event == Event.READY and rented.state == VmState.STARTING:
            if rented.spot and rented.vm.vm_type.name in self._hibernated_types:
                self._hibernate([rented])
            else:
                rented.update_credits(self.now_s, self.environment.burst_period_s)
                rented.enter(VmState.IDLE, self.now_s)
                self._start_tasks(rented)
                self._settle(rented)
        elif event == Event.LIMIT and rented.limit_s == self.now_s and rented.has_tasks:
            rented.limit_s = math.inf
            self._ask_all(rented, Cause.LIMIT)
        elif event == Event.CYCLE_ENDED and rented.idle_until_s == self.now_s:
            self._terminate(rented)
        elif event == Event.NO_CREDITS and rented.state == VmState.BUSY:
            self._watch_credits(rented)

    def _change(self, vm_type: str) -> None:
        """All VMs of a type hibernate, or resume."""
        mine = [rented for rented in self.vms if rented.spot and rented.vm.vm_type.name == vm_type]
        if vm_type in self._hibernated_types:
            self._hibernated_types.remove(vm_type)
            self._resume([rented for rented in mine if rented.state == VmState.HIBERNATED])
        else:
            self._hibernated_types.add(vm_type)
            self._hibernate([rented for rented in mine if rented.state in (VmState.BUSY, VmState.IDLE)])
        self._next_change(vm_type)

    def _hibernate(self, hit: list[RentedVm]) -> None:
        for rented in hit:
            self.counts.hibernations += 1
            for running in rented.running.values():
                self._ledger.ran(rented, running, self.now_s)
                running.pause(self.now_s)
            rented.enter(VmState.HIBERNATED, self.now_s)
            rented.idle_until_s = rented.limit_s = math.inf
            rented.queue = None
        # All of them first: none of them may receive the tasks of another.
        for rented in hit:
            self._ask_all(rented, Cause.HIBERNATED)

    def _resume(self, hit: list[RentedVm]) -> None:
        for rented in hit:
            self.counts.resumes += 1
            rented.enter(VmState.BUSY if rented.has_tasks else VmState.IDLE, self.now_s)
            rented.queue = None
            for running in rented.running.values():
                running.resume(self.now_s, running.speed)
                self._push(running.finish_s, Event.FINISHED, running, rented)
            self._start_tasks(rented)
        for rented in hit:
            self._settle(rented)

    def _ask_all(self, rented: RentedVm, cause: Cause) -> None:
        """Ask about each task of a VM, those with a checkpoint first (Algorithm 11, line 1)."""
        saved = {task: running.saved(self.now_s)[1] > 0 for task, running in rented.running.items()}
        for task in [*sorted(saved, key=lambda task: not saved[task]), *rented.waiting]:
            answer = self._scheduler.decide(Question(cause, task, rented), self)
            if isinstance(answer, Wait):
                if cause == Cause.LIMIT and answer.until_s <= self.now_s:
                    raise InvalidAnswerError(f"{self._scheduler.name} waits for a limit that has passed")
                rented.limit_s = min(rented.limit_s, max(answer.until_s, self.now_s))
            else:
                self.counts.migrations += 1
                self._move(task, rented, answer)
        if rented.limit_s < math.inf:
            self._push(rented.limit_s, Event.LIMIT, rented)
        if rented.state != VmState.HIBERNATED:
            self._start_tasks(rented)
            self._settle(rented)

    def _settle(self, rented: RentedVm) -> None:
        """Without tasks a VM is idle: it may take waiting tasks of others, or ends with its cycle."""
        if rented.state not in (VmState.BUSY, VmState.IDLE) or rented.has_tasks:
            return
        if rented.state == VmState.BUSY:
            rented.enter(VmState.IDLE, self.now_s)
        self._offer_work(rented)
        if not rented.has_tasks:
            self._stand_by(rented)

    def _stand_by(self, rented: RentedVm) -> None:
        rented.idle_until_s = rented.cycle_end_s(self.now_s, self.environment.allocation_cycle_s)
        self._push(rented.idle_until_s, Event.CYCLE_ENDED, rented)

    def _offer_work(self, idle: RentedVm) -> None:
        """Ask about the waiting tasks of other VMs, on-demand VMs first (Algorithms 8 and 12)."""
        for rented in sorted(self.vms, key=lambda rented: rented.spot):
            if rented.state in (VmState.BUSY, VmState.STARTING) and rented is not idle:
                for task in tuple(rented.waiting):
                    answer = self._scheduler.decide(Question(Cause.IDLE, task, rented, idle), self)
                    if not isinstance(answer, Wait):
                        self.counts.steals += 1
                        self._move(task, rented, answer)

    def _move(self, task: int, source: RentedVm, answer: Answer) -> None:
        target, mode = self._target(task, answer)
        if target is source:
            raise InvalidAnswerError(f"{self._scheduler.name} moves a task to where it is: answer Wait")
        running = source.running.pop(task, None)
        if running is None:
            source.waiting.remove(task)
        else:
            completed, saved_s = running.saved(self.now_s)
            self.counts.checkpoints += completed
            self._left[task] -= saved_s / source.runtimes_s[task]
            self.counts.recoveries += saved_s > 0
            self._free(source, running)
        source.queue = target.queue = None
        target.waiting.append(task)
        target.modes[task] = mode
        self._start_tasks(target)

    def _target(self, task: int, answer: Answer) -> tuple[RentedVm, Mode]:
        """The VM that an answer names. Raises InvalidAnswerError where the task cannot go there."""
        name = self._scheduler.name
        if isinstance(answer, Move):
            if answer.vm.state in (VmState.HIBERNATED, VmState.TERMINATED):
                raise InvalidAnswerError(f"{name} moves a task to a VM that is {answer.vm.state}")
            target, mode = answer.vm, answer.mode
        else:
            assert isinstance(answer, Rent)
            target, mode = self._rent_new(answer), Mode.FULL
        if self.memory_mb[task] > target.vm.vm_type.memory_mb:
            raise InvalidAnswerError(
                f"{name} moves a task to {target.vm.name}, which lacks the memory for it"
            )
        if mode == Mode.BASELINE and not target.vm.vm_type.burstable:
            raise InvalidAnswerError(f"{name} asks {target.vm.name} for baseline mode; it is not burstable")
        return target, mode

    def _rent_new(self, answer: Rent) -> RentedVm:
        vm_type, market = answer
        limits = self.environment
        on_demand = market == Market.ON_DEMAND
        if market not in vm_type.markets or (not on_demand and vm_type.name in self._hibernated_types):
            raise InvalidAnswerError(f"{self._scheduler.name} rents {vm_type.name} {market}: there is none")
        if self.alive(vm_type, market) >= limits.max_per_type_and_market or (
            on_demand and self.alive(None, market) >= limits.max_on_demand
        ):
            raise InvalidAnswerError(f"{self._scheduler.name} rents {vm_type.name} {market}: no more may run")
        self.counts.on_demand += on_demand
        taken = sum(rented.vm.vm_type is vm_type and rented.vm.market == market for rented in self.vms)
        vm = Vm(vm_type, market, taken + 1)
        return self._rent(vm, Mode.FULL, self.now_s + limits.migration_overhead_s)

    def _start_tasks(self, rented: RentedVm) -> None:
        """Start waiting tasks in order while there are cores and memory."""
        if rented.state not in (VmState.BUSY, VmState.IDLE):
            return
        while rented.waiting and rented.free_cores:
            task = rented.waiting[0]
            # The sum of what was taken and given back is not exact.
            if self.memory_mb[task] > rented.free_mb + 1e-6:
                break
            rented.waiting.pop(0)
            rented.update_credits(self.now_s, self.environment.burst_period_s)
            rented.free_mb -= self.memory_mb[task]
            mode = rented.modes[task]
            running = RunningTask(
                task,
                rented.free_cores.pop(),
                self._left[task] * rented.runtimes_s[task],
                self._interval_s[task] if rented.spot else math.inf,
                self._dump_s[task],
                rented.speed(mode),
                self.now_s,
            )
            rented.running[task] = running
            rented.queue = None
            self._push(running.finish_s, Event.FINISHED, running, rented)
        if rented.running and rented.state == VmState.IDLE:
            rented.enter(VmState.BUSY, self.now_s)
            rented.idle_until_s = math.inf
        if rented.vm.vm_type.burstable:
            self._watch_credits(rented)

    def _watch_credits(self, rented: RentedVm) -> None:
        """Without credits a burstable VM runs at its baseline; look again when they will have run out."""
        net_per_s = rented.update_credits(self.now_s, self.environment.burst_period_s)
        if net_per_s <= 0:
            return
        # Below the resolution of the clock nothing is left.
        left_s = rented.credits / net_per_s
        if left_s > 1e-6:
            self._push(self.now_s + left_s, Event.NO_CREDITS, rented)
            return
        for running in rented.running.values():
            if running.speed > rented.vm.vm_type.baseline:
                self._ledger.ran(rented, running, self.now_s)
                running.pause(self.now_s)
                running.resume(self.now_s, rented.vm.vm_type.baseline)
                self._push(running.finish_s, Event.FINISHED, running, rented)
        rented.queue = None

    def _finish(self, rented: RentedVm, running: RunningTask) -> None:
        rented.update_credits(self.now_s, self.environment.burst_period_s)
        del rented.running[running.task]
        self.counts.checkpoints += running.checkpoints
        self._free(rented, running)
        self._unfinished -= 1
        self._start_tasks(rented)
        if self._unfinished:
            self._settle(rented)

    def _free(self, rented: RentedVm, running: RunningTask) -> None:
        """A task leaves its core."""
        if rented.state != VmState.HIBERNATED:
            self._ledger.ran(rented, running, self.now_s)
        rented.free_cores.append(running.core)
        rented.free_mb += self.memory_mb[running.task]
        rented.queue = None

    def _terminate(self, rented: RentedVm) -> None:
        rented.enter(VmState.TERMINATED, self.now_s)
        rented.idle_until_s = math.inf
