"""One execution of a bag of tasks on VMs that hibernate and resume (Teylo 2021, chapters 6.2 and 8.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from envs.simulation.bags.calendar import Due, Event
from envs.simulation.bags.decisions import (
    BagScheduler,
    Cause,
    InvalidAnswerError,
    Move,
    Question,
    Rent,
    Wait,
)
from envs.simulation.bags.fleet import Fleet
from envs.simulation.bags.model import Environment, Market, Mode, Vm
from envs.simulation.bags.outcome import Outcome
from envs.simulation.bags.plan import Plan
from envs.simulation.bags.rented import RentedVm, VmState
from envs.simulation.bags.scenarios import Changes


class Execution:
    """Carries out a plan, event by event, and asks a scheduler where tasks go.

    VMs that are rented later than the plan's need alpha. Idle VMs are given back at the end of their
    allocation cycle, all VMs with the last task.

    Args:
        plan: the primary scheduling map.
        environment: limits and parameters.
        changes: when spot VMs hibernate and resume.
        scheduler: whom to ask.
        launch_s: until the plan's VMs are ready; they are billed from the start.
    """

    def __init__(
        self,
        plan: Plan,
        environment: Environment,
        changes: Changes,
        scheduler: BagScheduler,
        launch_s: float = 0.0,
    ) -> None:
        self.fleet = Fleet(plan, environment)
        self._scheduler, self._changes = scheduler, changes
        self._changes_s: dict[str, Iterator[float]] = {}
        self._hibernated_types: set[str] = set()
        self._carry_out(plan, launch_s)

    def run(self) -> Outcome:
        """Go on until the last task has ended, or until nothing will happen any more.

        Raises:
            InvalidAnswerError: if the scheduler answers what cannot be done.
        """
        fleet = self.fleet
        while fleet.calendar and fleet.unfinished:
            due = fleet.calendar.pop()
            fleet.now_s = due.time_s
            self._handle(due)
        makespan_s = math.inf if fleet.unfinished else fleet.now_s
        for vm in fleet.vms:
            fleet.terminate(vm)
        return fleet.ledger.outcome(
            self._scheduler.name, fleet.deadline_s, makespan_s, fleet.counts, fleet.vms
        )

    def _carry_out(self, plan: Plan, launch_s: float) -> None:
        fleet, index = self.fleet, {task.name: number for number, task in enumerate(plan.bag.tasks)}
        for planned in plan.vms:
            vm = fleet.rent(planned.vm, launch_s)
            self._follow(vm)
            for placed in sorted(planned.tasks, key=lambda placed: (placed.start_s, placed.core)):
                fleet.enqueue(index[placed.task.name], vm, planned.mode)
            fleet.start_tasks(vm)
            if not vm.has_tasks and vm.state == VmState.IDLE:
                # It stands by (Algorithm 9, part 2): it has not become idle, so it steals nothing.
                fleet.stand_by(vm)

    def _follow(self, vm: RentedVm) -> None:
        """The calendar of a type of spot VM, once it is needed."""
        name = vm.vm.vm_type.name
        if vm.spot and name not in self._changes_s:
            self._changes_s[name] = self._changes(name)
            self._next_change(name)

    def _next_change(self, vm_type: str) -> None:
        time_s = next(self._changes_s[vm_type], math.inf)
        if time_s < math.inf:
            self.fleet.calendar.push(time_s, Event.CHANGED, vm_type=vm_type)

    def _handle(self, due: Due) -> None:
        fleet, event, vm, running = self.fleet, due.event, due.vm, due.running
        now_s = due.time_s
        if vm is None:
            self._change(due.vm_type)
        elif running is not None:
            # The task may have been moved, paused or slowed since.
            if vm.running.get(running.task) is running and running.finish_s == now_s:
                fleet.finish(vm, running)
                self._settle(vm)
        elif event == Event.READY and vm.state == VmState.STARTING:
            if vm.spot and vm.vm.vm_type.name in self._hibernated_types:
                self._hibernate([vm])
            else:
                fleet.get_ready(vm)
                self._settle(vm)
        elif event == Event.LIMIT and vm.limit_s == now_s and vm.has_tasks:
            vm.limit_s = math.inf
            self._ask_all(vm, Cause.LIMIT)
        elif event == Event.CYCLE_ENDED and vm.idle_until_s == now_s:
            fleet.terminate(vm)
        elif event == Event.NO_CREDITS and vm.state == VmState.BUSY:
            fleet.watch_credits(vm)

    def _change(self, vm_type: str) -> None:
        """All VMs of a type hibernate, or resume."""
        mine = [vm for vm in self.fleet.vms if vm.spot and vm.vm.vm_type.name == vm_type]
        if vm_type in self._hibernated_types:
            self._hibernated_types.remove(vm_type)
            resumed = [vm for vm in mine if vm.state == VmState.HIBERNATED]
            for vm in resumed:
                self.fleet.resume(vm)
            for vm in resumed:
                self._settle(vm)
        else:
            self._hibernated_types.add(vm_type)
            self._hibernate([vm for vm in mine if vm.state in (VmState.BUSY, VmState.IDLE)])
        self._next_change(vm_type)

    def _hibernate(self, hit: list[RentedVm]) -> None:
        # All of them first: none of them may receive the tasks of another.
        for vm in hit:
            self.fleet.hibernate(vm)
        for vm in hit:
            self._ask_all(vm, Cause.HIBERNATED)

    def _ask_all(self, vm: RentedVm, cause: Cause) -> None:
        """Ask about each task of a VM, those with a checkpoint first (Algorithm 11, line 1).

        On a VM that has resumed the last of the queue comes first: what runs would lose most.
        """
        now_s = self.fleet.now_s
        saved = {task: running.saved(now_s)[1] > 0 for task, running in vm.running.items()}
        tasks = [*sorted(saved, key=lambda task: not saved[task]), *vm.waiting]
        for task in tasks if vm.state == VmState.HIBERNATED else reversed(tasks):
            answer = self._scheduler.decide(Question(cause, task, vm), self.fleet)
            if isinstance(answer, Wait):
                if cause == Cause.LIMIT and answer.until_s <= now_s:
                    raise InvalidAnswerError(f"{self._scheduler.name} waits for a limit that has passed")
                vm.limit_s = min(vm.limit_s, max(answer.until_s, now_s))
            else:
                self.fleet.counts.migrations += 1
                self._move(task, vm, answer)
        if vm.limit_s < math.inf:
            self.fleet.calendar.push(vm.limit_s, Event.LIMIT, vm)
        if vm.state != VmState.HIBERNATED:
            self.fleet.start_tasks(vm)
            self._settle(vm)

    def _settle(self, vm: RentedVm) -> None:
        """Without tasks a VM is idle: it may take waiting tasks of others, or ends with its cycle."""
        if vm.state not in (VmState.BUSY, VmState.IDLE) or vm.has_tasks or not self.fleet.unfinished:
            return
        if vm.state == VmState.BUSY:
            vm.enter(VmState.IDLE, self.fleet.now_s)
        self._offer_work(vm)
        if not vm.has_tasks:
            self.fleet.stand_by(vm)

    def _offer_work(self, idle: RentedVm) -> None:
        """Ask about the waiting tasks of other VMs, on-demand VMs first (Algorithms 8 and 12)."""
        for vm in sorted(self.fleet.vms, key=lambda vm: vm.spot):
            if vm.state in (VmState.BUSY, VmState.STARTING) and vm is not idle:
                for task in tuple(vm.waiting):
                    answer = self._scheduler.decide(Question(Cause.IDLE, task, vm, idle), self.fleet)
                    if not isinstance(answer, Wait):
                        self.fleet.counts.steals += 1
                        self._move(task, vm, answer)

    def _move(self, task: int, source: RentedVm, answer: Move | Rent) -> None:
        target, mode = self._target(task, answer)
        if target is source:
            raise InvalidAnswerError(f"{self._scheduler.name} moves a task to where it is: answer Wait")
        self.fleet.take_away(task, source)
        self.fleet.enqueue(task, target, mode)
        self.fleet.start_tasks(target)

    def _target(self, task: int, answer: Move | Rent) -> tuple[RentedVm, Mode]:
        """The VM that an answer names. Raises InvalidAnswerError where the task cannot go there."""
        name = self._scheduler.name
        vm_type = answer.vm.vm.vm_type if isinstance(answer, Move) else answer.vm_type
        if self.fleet.memory_mb[task] > vm_type.memory_mb:
            raise InvalidAnswerError(f"{name} moves a task to {vm_type.name}, which lacks the memory for it")
        if isinstance(answer, Rent):
            return self._rent(answer), Mode.FULL
        if answer.vm.state in (VmState.HIBERNATED, VmState.TERMINATED):
            raise InvalidAnswerError(f"{name} moves a task to a VM that is {answer.vm.state}")
        if answer.mode == Mode.BASELINE and not vm_type.burstable:
            raise InvalidAnswerError(f"{name} asks {vm_type.name} for baseline mode; it is not burstable")
        return answer.vm, answer.mode

    def _rent(self, answer: Rent) -> RentedVm:
        vm_type, market = answer
        fleet, limits = self.fleet, self.fleet.environment
        on_demand = market == Market.ON_DEMAND
        if market not in vm_type.markets or (not on_demand and vm_type.name in self._hibernated_types):
            raise InvalidAnswerError(f"{self._scheduler.name} rents {vm_type.name} {market}: there is none")
        if fleet.alive(vm_type, market) >= limits.max_per_type_and_market or (
            on_demand and fleet.alive(None, market) >= limits.max_on_demand
        ):
            raise InvalidAnswerError(f"{self._scheduler.name} rents {vm_type.name} {market}: no more may run")
        fleet.counts.on_demand += on_demand and not vm_type.burstable
        taken = sum(vm.vm.vm_type is vm_type and vm.vm.market == market for vm in fleet.vms)
        vm = fleet.rent(Vm(vm_type, market, taken + 1), fleet.now_s + limits.migration_overhead_s)
        self._follow(vm)
        return vm
