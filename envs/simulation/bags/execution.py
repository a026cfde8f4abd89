"""One execution of a bag of tasks on VMs that hibernate and resume (Teylo 2021, chapters 6.2 and 8.2)."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from enum import StrEnum
from typing import NamedTuple, Protocol

from spotweave.envs.simulation.bags.cases import Changes, Due, Event
from spotweave.envs.simulation.bags.fleet import Fleet, Outcome, Slots
from spotweave.envs.simulation.bags.model import BagError, Environment, Market, Mode, Vm, VmType
from spotweave.envs.simulation.bags.plan import Plan
from spotweave.envs.simulation.bags.rented import RentedVm, VmState
from spotweave.envs.simulation.questions import NO_TASK
from spotweave.envs.simulation.snapshot import Category
from spotweave.envs.simulation.world import Segment, Timeline, constant, used

# What an execution asks of a scheduler, and what it may answer: always about one task.
#
# Which VM shall it be on: one that is rented, a new one, or none for now? Migration (Teylo 2021, Algorithms
# 6 and 11), waiting for a hibernated VM (Eq. 6.4) and work stealing (Algorithms 8 and 12) ask just this.


class Cause(StrEnum):
    """Why a task is asked about."""

    HIBERNATED = "hibernated"
    """The task's VM has just hibernated."""
    LIMIT = "limit"
    """The time is up that an earlier `Wait` named; its VM is hibernated still, or has resumed."""
    IDLE = "idle"
    """The task waits for a core of its VM while another VM (`Question.idle`) is idle."""
    EMPTY = "empty"
    """A VM has no task and may be given back before its allocation cycle ends (not in the thesis)."""
    START = "start"
    """No plan has placed it, and the bag is about to start (not in the thesis, which plans all tasks)."""


class Question(NamedTuple):
    """One task that is not finished, or a VM without any."""

    cause: Cause  # why it is asked about
    task: int  # its index in the bag; `NO_TASK` if the cause is EMPTY
    vm: RentedVm | None  # the VM that it is on, or that is empty; None if the cause is START
    idle: RentedVm | None = None  # the idle VM that could take it; None unless the cause is IDLE


class Move(NamedTuple):
    """The task goes to the end of the queue of a rented VM that is not hibernated.

    A task that was running goes on from its latest checkpoint. `mode` matters on burstable VMs only.
    """

    vm: RentedVm
    mode: Mode = Mode.FULL


class Rent(NamedTuple):
    """The task goes to a new VM, which is rented now."""

    vm_type: VmType
    market: Market


class Wait(NamedTuple):
    """The task stays where it is; ask again (`Cause.LIMIT`) at a time, seconds after the bag was started."""

    until_s: float = math.inf


class Release(NamedTuple):
    """The empty VM is given back now. `Wait` keeps it until its allocation cycle ends."""


Answer = Move | Rent | Wait | Release


class BagScheduler(Protocol):
    """Decides where the tasks of a bag go while it is carried out."""

    @property
    def name(self) -> str:
        """As tables show it."""

    def decide(self, question: Question, fleet: Fleet) -> Answer:
        """Answer one question. The fleet is for reading only."""


class InvalidAnswerError(BagError):
    """A scheduler answered what cannot be done; the message says why."""


Asking = Generator[Question, Answer, None]
"""Yields questions and is sent their answers."""


class Execution:
    """Carries out a plan, event by event, and asks a scheduler where tasks go.

    VMs that are rented later than the plan's need alpha. An empty VM is given back when the scheduler says so
    or its allocation cycle ends, all VMs with the last task.

    Args:
        plan: the primary scheduling map; of one without VMs the scheduler places each task, the longest
            first, before anything starts.
        environment: limits and parameters.
        changes: when spot VMs hibernate and resume.
        scheduler: whom `run` asks; None where the caller answers `questions`.
        launch_s: until the plan's VMs are ready; they are billed from the start.

    Attributes:
        fleet: what a scheduler may read.
        launch_s: until VMs that are rented before the start are ready.
    """

    def __init__(
        self,
        plan: Plan,
        environment: Environment,
        changes: Changes,
        scheduler: BagScheduler | None,
        launch_s: float = 0.0,
    ) -> None:
        self.fleet, self.launch_s = Fleet(plan, environment), launch_s
        self._scheduler, self._changes = scheduler, changes
        self._name = "the caller" if scheduler is None else scheduler.name
        self._changes_s: dict[str, Iterator[float]] = {}
        self._hibernated_types: set[str] = set()
        self._planned = bool(plan.vms)
        self._carry_out(plan)

    def run(self) -> Outcome:
        """Go on until the last task has ended, or until nothing will happen any more.

        Raises:
            InvalidAnswerError: if the scheduler answers what cannot be done.
        """
        assert self._scheduler is not None
        asking = self.questions()
        question = next(asking, None)
        while question is not None:
            try:
                question = asking.send(self._scheduler.decide(question, self.fleet))
            except StopIteration:
                question = None
        return self.outcome()

    def questions(self) -> Asking:
        """What `run` asks, for callers that answer themselves; at its end all VMs have been given back.

        Raises:
            InvalidAnswerError: at an answer that cannot be carried out.
        """
        fleet = self.fleet
        if not self._planned:
            yield from self._start()
        while fleet.calendar and fleet.unfinished:
            due = fleet.calendar.pop()
            fleet.now_s = due.time_s
            yield from self._handle(due)
        for vm in fleet.vms:
            fleet.terminate(vm)

    def outcome(self) -> Outcome:
        """What it came to, once there are no more questions."""
        fleet = self.fleet
        return Outcome(
            scheduler=self._name,
            deadline_s=fleet.deadline_s,
            makespan_s=math.inf if fleet.unfinished else fleet.now_s,
            cost_usd=sum(rented.cost_usd for rented in fleet.vms),
            counts=fleet.counts,
            vms=tuple(rented.vm for rented in fleet.vms),
            states=tuple(tuple(rented.spans) for rented in fleet.vms),
            tasks=tuple(fleet.ran),
        )

    def hibernated(self, vm_type: str) -> bool:
        """Whether the spot VMs of a type are hibernated now, so that none can be rented."""
        self._follow(vm_type)
        return vm_type in self._hibernated_types

    def _carry_out(self, plan: Plan) -> None:
        fleet, index = self.fleet, {task.name: number for number, task in enumerate(plan.bag.tasks)}
        for planned in plan.vms:
            vm = fleet.rent(planned.vm, self.launch_s)
            if vm.spot:
                self._follow(vm.vm.vm_type.name)
            for placed in sorted(planned.tasks, key=lambda placed: (placed.start_s, placed.core)):
                fleet.enqueue(index[placed.task.name], vm, planned.mode)
            fleet.start_tasks(vm)
            if not vm.has_tasks and vm.state == VmState.IDLE:
                # It stands by (Algorithm 9, part 2): it has not become idle, so it steals nothing.
                fleet.stand_by(vm)

    def _start(self) -> Asking:
        """Ask where each task begins, the longest first: they are ended soonest so."""
        tasks = self.fleet.bag.tasks
        for task in sorted(range(len(tasks)), key=lambda task: -max(tasks[task].runtime_s.values())):
            answer = yield Question(Cause.START, task, None)
            if isinstance(answer, Wait | Release):
                raise InvalidAnswerError(f"{self._name} places a task nowhere: answer Move or Rent")
            target, mode = self._target(task, answer, self.launch_s)
            self.fleet.enqueue(task, target, mode)
            self.fleet.start_tasks(target)

    def _follow(self, vm_type: str) -> None:
        """The calendar of a type of spot VM, once it is needed, as it is by then."""
        if vm_type not in self._changes_s:
            self._changes_s[vm_type] = self._changes(vm_type)
            while not self._next_change(vm_type):
                self._hibernated_types ^= {vm_type}

    def _next_change(self, vm_type: str) -> bool:
        """Enter the next change of a type; False if it has passed already."""
        time_s = next(self._changes_s[vm_type], math.inf)
        if time_s < self.fleet.now_s:
            return False
        if time_s < math.inf:
            self.fleet.calendar.push(time_s, Event.CHANGED, vm_type=vm_type)
        return True

    def _handle(self, due: Due) -> Asking:
        fleet, event, vm, running = self.fleet, due.event, due.vm, due.running
        now_s = due.time_s
        if vm is None:
            yield from self._change(due.vm_type)
        elif running is not None:
            # The task may have been moved, paused or slowed since.
            if vm.running.get(running.task) is running and running.finish_s == now_s:
                fleet.finish(vm, running)
                yield from self._settle(vm)
        elif event == Event.READY and vm.state == VmState.STARTING:
            if vm.spot and vm.vm.vm_type.name in self._hibernated_types:
                yield from self._hibernate([vm])
            else:
                fleet.get_ready(vm)
                yield from self._settle(vm)
        elif event == Event.LIMIT and vm.limit_s == now_s and vm.has_tasks:
            vm.limit_s = math.inf
            yield from self._ask_all(vm, Cause.LIMIT)
        elif event == Event.CYCLE_ENDED and vm.idle_until_s == now_s:
            fleet.terminate(vm)
        elif event == Event.NO_CREDITS and vm.state == VmState.BUSY:
            fleet.watch_credits(vm)

    def _change(self, vm_type: str) -> Asking:
        """All VMs of a type hibernate, or resume."""
        mine = [vm for vm in self.fleet.vms if vm.spot and vm.vm.vm_type.name == vm_type]
        if vm_type in self._hibernated_types:
            self._hibernated_types.remove(vm_type)
            resumed = [vm for vm in mine if vm.state == VmState.HIBERNATED]
            for vm in resumed:
                self.fleet.resume(vm)
            for vm in resumed:
                yield from self._settle(vm)
        else:
            self._hibernated_types.add(vm_type)
            yield from self._hibernate([vm for vm in mine if vm.state in (VmState.BUSY, VmState.IDLE)])
        self._next_change(vm_type)

    def _hibernate(self, hit: list[RentedVm]) -> Asking:
        # All of them first: none of them may receive the tasks of another.
        for vm in hit:
            self.fleet.hibernate(vm)
        for vm in hit:
            yield from self._ask_all(vm, Cause.HIBERNATED)

    def _ask_all(self, vm: RentedVm, cause: Cause) -> Asking:
        """Ask about each task of a VM, those with a checkpoint first (Algorithm 11, line 1).

        On a VM that has resumed the last of the queue comes first: what runs would lose most.
        """
        now_s = self.fleet.now_s
        saved = {task: running.saved(now_s)[1] > 0 for task, running in vm.running.items()}
        tasks = [*sorted(saved, key=lambda task: not saved[task]), *vm.waiting]
        for task in tasks if vm.state == VmState.HIBERNATED else reversed(tasks):
            answer = yield Question(cause, task, vm)
            if isinstance(answer, Wait):
                if cause == Cause.LIMIT and answer.until_s <= now_s:
                    raise InvalidAnswerError(f"{self._name} waits for a limit that has passed")
                vm.limit_s = min(vm.limit_s, max(answer.until_s, now_s))
            else:
                self.fleet.counts.migrations += 1
                self._move(task, vm, answer)
        if vm.limit_s < math.inf:
            self.fleet.calendar.push(vm.limit_s, Event.LIMIT, vm)
        if vm.state != VmState.HIBERNATED:
            self.fleet.start_tasks(vm)
            yield from self._settle(vm)

    def _settle(self, vm: RentedVm) -> Asking:
        """Without tasks a VM is idle: it may take waiting tasks of others, or is given back."""
        if vm.state not in (VmState.BUSY, VmState.IDLE) or vm.has_tasks or not self.fleet.unfinished:
            return
        if vm.state == VmState.BUSY:
            vm.enter(VmState.IDLE, self.fleet.now_s)
        yield from self._offer_work(vm)
        if not vm.has_tasks:
            answer = yield Question(Cause.EMPTY, NO_TASK, vm)
            if isinstance(answer, Move | Rent):
                raise InvalidAnswerError(f"{self._name} moves no task: answer Wait or Release")
            if isinstance(answer, Release):
                self.fleet.terminate(vm)
            else:
                self.fleet.stand_by(vm)

    def _offer_work(self, idle: RentedVm) -> Asking:
        """Ask about the waiting tasks of other VMs, on-demand VMs first (Algorithms 8 and 12)."""
        for vm in sorted(self.fleet.vms, key=lambda vm: vm.spot):
            if vm.state in (VmState.BUSY, VmState.STARTING) and vm is not idle:
                for task in tuple(vm.waiting):
                    answer = yield Question(Cause.IDLE, task, vm, idle)
                    if not isinstance(answer, Wait):
                        self.fleet.counts.steals += 1
                        self._move(task, vm, answer)

    def _move(self, task: int, source: RentedVm, answer: Move | Rent | Release) -> None:
        if isinstance(answer, Release):
            raise InvalidAnswerError(f"{self._name} gives back a VM with tasks: it must be empty")
        target, mode = self._target(task, answer, self.fleet.environment.migration_overhead_s)
        if target is source:
            raise InvalidAnswerError(f"{self._name} moves a task to where it is: answer Wait")
        self.fleet.take_away(task, source)
        self.fleet.enqueue(task, target, mode)
        self.fleet.start_tasks(target)

    def _target(self, task: int, answer: Move | Rent, ready_in_s: float) -> tuple[RentedVm, Mode]:
        """The VM that an answer names, rented if it is new.

        Raises:
            InvalidAnswerError: where the task cannot go there.
        """
        name = self._name
        vm_type = answer.vm.vm.vm_type if isinstance(answer, Move) else answer.vm_type
        if self.fleet.memory_mb[task] > vm_type.memory_mb:
            raise InvalidAnswerError(f"{name} moves a task to {vm_type.name}, which lacks the memory for it")
        if isinstance(answer, Rent):
            return self._rent(answer, ready_in_s), Mode.FULL
        if answer.vm.state in (VmState.HIBERNATED, VmState.TERMINATED):
            raise InvalidAnswerError(f"{name} moves a task to a VM that is {answer.vm.state}")
        if answer.mode == Mode.BASELINE and not vm_type.burstable:
            raise InvalidAnswerError(f"{name} asks {vm_type.name} for baseline mode; it is not burstable")
        return answer.vm, answer.mode

    def _rent(self, answer: Rent, ready_in_s: float) -> RentedVm:
        vm_type, market = answer
        fleet, limits = self.fleet, self.fleet.environment
        on_demand = market == Market.ON_DEMAND
        if market not in vm_type.markets or (not on_demand and self.hibernated(vm_type.name)):
            raise InvalidAnswerError(f"{self._name} rents {vm_type.name} {market}: there is none")
        if fleet.alive(vm_type, market) >= limits.max_per_type_and_market or (
            on_demand and fleet.alive(None, market) >= limits.max_on_demand
        ):
            raise InvalidAnswerError(f"{self._name} rents {vm_type.name} {market}: no more may run")
        fleet.counts.on_demand += on_demand and not vm_type.burstable
        taken = sum(vm.vm.vm_type is vm_type and vm.vm.market == market for vm in fleet.vms)
        return fleet.rent(Vm(vm_type, market, taken + 1), fleet.now_s + ready_in_s)


# An execution as a timeline for pictures: which task ran on which VM, and when VMs hibernated.


def timeline_of(execution: Execution, slots: Slots) -> Timeline:
    """What happened so far. Jobs are the tasks, clusters the places of VMs; whole seconds."""
    fleet = execution.fleet
    places, now_s = slots.history(fleet), fleet.now_s
    ran = [(span.task, places[span.vm], span.start_s, span.end_s) for span in fleet.ran]
    for vm in fleet.vms:
        if vm.state == VmState.BUSY:
            ran += [(task, places[vm.index], one.start_s, now_s) for task, one in vm.running.items()]
    segments = [
        Segment(task, place, start_s, end_s, 1, int(Category.GENERAL), end_s > fleet.deadline_s)
        for task, place, start_s, end_s in ran
        if end_s > start_s
    ]
    return Timeline(
        cluster_names=tuple(vm.name for vm in slots.vms),
        time_unit="s",
        end=max(1.0, now_s),
        segments=tuple(sorted(segments, key=lambda segment: segment.start)),
        capacity=tuple(constant(vm.vm_type.vcpus) for vm in slots.vms),
        used=used(segments, len(slots.vms)),
        price_usd_hour=tuple(constant(vm.usd_hour / vm.vm_type.vcpus) for vm in slots.vms),
        interruptions=tuple(sorted(_hibernations(fleet.vms, places))),
    )


def _hibernations(vms: list[RentedVm], places: list[int]) -> list[tuple[float, int]]:
    return [
        (span.end_s, places[vm.index])
        for vm in vms
        # A VM that was only just rented has no span yet.
        for span, following in zip(vm.spans, [*(one.state for one in vm.spans[1:]), vm.state], strict=False)
        if following == VmState.HIBERNATED and span.state != VmState.HIBERNATED
    ]
