"""Bags of tasks as a `QuestionWorld`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.bags.cases import Case, CaseSource, Scenario
from spotweave.envs.simulation.bags.execution import Asking, Cause, Execution, Question, timeline_of
from spotweave.envs.simulation.bags.fleet import Fleet, Outcome, Slots, fitness_scales
from spotweave.envs.simulation.bags.model import Bag, Environment, Market
from spotweave.envs.simulation.bags.options import Options
from spotweave.envs.simulation.bags.rented import RentedVm, VmState
from spotweave.envs.simulation.questions import NO_TASK, QuestionLane, QuestionWorld
from spotweave.envs.simulation.snapshot import (
    FULLY_SENSITIVE,
    N_CLUSTER_FIELDS,
    N_PAIR_FIELDS,
    REFERENCE_HETERO,
    RENTED,
    Category,
    FloatArray,
    Observation,
    derive_into,
    request_beyond,
)
from spotweave.envs.simulation.world import EpisodeKey, Timeline

_NOW = (
    col.CAPACITY_NORMAL,
    col.CAPACITY_NOW,
    col.USED,
    col.HALTED,
    col.AVAILABLE,
    col.LAUNCH_S,
)


class Picture:
    """The columns of one execution.

    A place whose VM is rented has `CAPACITY_NORMAL`; one at which a new VM could be rented has none, and
    waits for its `LAUNCH_S`. `MEAN_UP_S` and `UP_RATIO` of spot VMs are the rates of the scenario.

    Args:
        bag: what runs.
        environment: what may be rented.
        scenario: its rates.
        slots: numbers the VMs.
        launch_s: until VMs that are rented before the start are ready.
    """

    def __init__(
        self, bag: Bag, environment: Environment, scenario: Scenario, slots: Slots, launch_s: float
    ) -> None:
        self._slots = slots
        self._longest_s = [max(task.runtime_s.values()) for task in bag.tasks]
        mean_s = {
            vm_type.name: sum(task.runtime_s[vm_type.name] for task in bag.tasks) / len(bag.tasks)
            for vm_type in environment.types
        }
        self._fixed = np.zeros((len(slots.vms), N_CLUSTER_FIELDS), np.float32)
        self._absent = np.zeros((len(slots.vms), N_PAIR_FIELDS), np.float32)
        names = [vm_type.name for vm_type in environment.types]
        down, up = scenario.hibernations_per_s, scenario.resumes_per_s
        for row, absent, vm in zip(self._fixed, self._absent, slots.vms, strict=True):
            vm_type, spot = vm.vm_type, vm.market == Market.SPOT
            row[col.CAPACITY_MAX] = vm_type.vcpus
            row[col.HETERO_FACTOR] = REFERENCE_HETERO * max(mean_s.values()) / mean_s[vm_type.name]
            row[col.PRICE_USD_HOUR] = vm.usd_hour / vm_type.vcpus
            if Market.ON_DEMAND in vm_type.markets:
                row[col.ON_DEMAND_USD_HOUR] = vm_type.usd_hour(Market.ON_DEMAND) / vm_type.vcpus
            row[col.IS_SPOT] = spot
            row[col.UP_RATIO] = up / (up + down) if spot and down > 0 else 1.0
            row[col.MEAN_UP_S] = 1 / down if spot and down > 0 else 0.0
            row[col.PROVIDER], row[col.QUEUES] = RENTED, 1.0
            row[col.REGION] = names.index(vm_type.name)
            absent[col.REQUEST] = request_beyond(vm_type.vcpus)
        self._fixed[:, col.SEQUENCE] = np.arange(1, len(slots.vms) + 1)
        # If all spot VMs shared the bag evenly: before the start, what it takes at least.
        share = sum(vm.vm_type.vcpus / mean_s[vm.vm_type.name] for vm in environment.spot())
        work_s = len(bag.tasks) / share if share > 0 else sum(self._longest_s)
        self._even_s = launch_s + work_s * (1 + environment.checkpoint_overhead)

    def show(self, question: Question, options: Options, fleet: Fleet, into: Observation, lane: int) -> None:
        """Overwrite the row `lane` of a batch of observations with a question."""
        clusters, pairs = into["clusters"][lane], into["pairs"][lane, 0]
        clusters[:], pairs[:] = self._fixed, self._absent
        for slot, vm in options.taken.items():
            clusters[slot, _NOW] = _state(vm, fleet.now_s)
        slack_s = fleet.deadline_s - fleet.now_s
        pairs[:, col.DEADLINE_S] = slack_s
        for slot, option in options.by_slot.items():
            if slot not in options.taken:
                clusters[slot, _NOW] = (
                    0.0,
                    self._slots.vms[slot].vm_type.vcpus,
                    0.0,
                    0.0,
                    1.0,
                    option.start_s,
                )
            row = pairs[slot]
            row[col.REQUEST], row[col.EXECUTION_S] = 1.0, option.work_s
            row[col.TRANSFER_S] = max(0.0, option.start_s - float(clusters[slot, col.LAUNCH_S]))
        if options.here >= 0:
            self._show_here(question, options, fleet, pairs[options.here])
        jobs = into["jobs"][lane]
        jobs[0] = 0.0
        self._show_task(question, fleet, slack_s, jobs[0])
        derive_into(clusters, jobs, into["pairs"][lane], options.none, into["action_mask"][lane])

    def _show_here(self, question: Question, options: Options, fleet: Fleet, row: FloatArray) -> None:
        cause, task, vm, _ = question
        assert vm is not None
        row[col.HERE] = 1.0
        if cause == Cause.EMPTY:
            cycle_s = fleet.environment.allocation_cycle_s
            row[col.EXECUTION_S] = vm.cycle_end_s(fleet.now_s, cycle_s) - fleet.now_s
            return
        running = vm.running.get(task)
        if running is not None:
            row[col.EXECUTION_S] = running.left_s(fleet.now_s)
            return
        row[col.EXECUTION_S] = options.work_s(vm.vm.vm_type, vm.vm.market, vm.modes[task])
        if vm.state != VmState.HIBERNATED:
            fleet.queue(vm)
            row[col.TRANSFER_S] = vm.starts_s[task] - fleet.now_s

    def _show_task(self, question: Question, fleet: Fleet, slack_s: float, row: FloatArray) -> None:
        cause, task, vm, _ = question
        row[col.PRESENT], row[col.CATEGORY] = 1.0, Category.GENERAL
        row[col.EXPECTED_HETERO], row[col.SENSITIVITY] = REFERENCE_HETERO, FULLY_SENSITIVE
        row[col.EXECUTIONS], row[col.HAS_DEADLINE] = 1.0, 1.0
        row[col.AGE_S], row[col.SLACK_S] = fleet.now_s, slack_s
        row[col.INTERRUPTIONS] = fleet.counts.hibernations
        row[col.IDLE] = cause == Cause.EMPTY
        if task != NO_TASK:
            row[col.STANDARD_S] = row[col.DURATION_S] = self._longest_s[task]
            running = None if vm is None else vm.running.get(task)
            if running is not None and vm is not None:
                row[col.PROGRESS] = running.saved(fleet.now_s)[1] / vm.runtimes_s[task]
                row[col.DURATION_S] *= 1 - row[col.PROGRESS]
        end_s = max((_end_s(one, task, fleet) for one in fleet.vms), default=fleet.now_s)
        if cause == Cause.START:
            end_s = max(end_s, self._even_s)
        row[col.ROUND_LEFT_S] = max(0.0, end_s - fleet.now_s)
        paying = (VmState.STARTING, VmState.BUSY, VmState.IDLE)
        row[col.OTHERS_USD_HOUR] = sum(
            one.vm.usd_hour for one in fleet.vms if one is not vm and one.state in paying
        )


def _state(vm: RentedVm, now_s: float) -> tuple[float, ...]:
    """The columns `_NOW` of a rented VM."""
    cores, there = float(vm.vm.vm_type.vcpus), vm.state != VmState.HIBERNATED
    launch_s = max(0.0, vm.ready_s - now_s)
    return cores, cores if there else 0.0, len(vm.running), len(vm.waiting), float(there), launch_s


def _end_s(vm: RentedVm, task: int, fleet: Fleet) -> float:
    """When a VM that is not hibernated will have run all it has but one task."""
    if vm.state not in (VmState.STARTING, VmState.BUSY):
        return fleet.now_s
    queue = fleet.queue(vm)
    if task not in vm.modes or (task not in vm.waiting and task not in vm.running):
        return queue.end_s
    ends_s = [one.finish_s for one in vm.running.values() if one.task != task]
    ends_s += [
        vm.starts_s[one] + fleet.remaining_s(one, vm, vm.modes[one]) for one in vm.waiting if one != task
    ]
    return max(ends_s, default=fleet.now_s)


MISSED_POINTS = 100.0
"""What a missed deadline adds to the objective, in its per cent."""
METRICS = (
    "objective",
    "cost_percent",
    "cost_usd",
    "makespan_s",
    "missed",
    "hibernations",
    "migrations",
    "steals",
    "on_demand",
)
COMPONENTS = ("cost", "makespan")
CHANGES_SHOWN = 1000
"""Changes of each type that identify an episode."""


@dataclass(kw_only=True)
class _Lane(QuestionLane):
    """One episode."""

    case: Case
    execution: Execution
    asking: Asking
    picture: Picture
    question: Question | None = None
    options: Options | None = None


class BagWorld(QuestionWorld[_Lane]):
    """N copies of bags; each question of an `Execution` that has more than one answer is one decision.

    Args:
        source: gives every episode its case.
        n_lanes: copies.
        omega: weight of money in the objective, 1 - omega that of the makespan (Eq. 8.1).
    """

    def __init__(self, source: CaseSource, n_lanes: int, omega: float = 0.5) -> None:
        self.source, self.omega = source, omega
        self.slots = Slots(source.environment)
        super().__init__(
            n_lanes,
            [vm.name for vm in self.slots.vms],
            (100 * omega, 100 * (1 - omega)),
            name="bags",
            components=COMPONENTS,
            scales=(0.1, 0.1),
            metrics=METRICS,
        )

    def metrics(self, lane: int) -> Mapping[str, float]:
        """Metrics of the finished episode."""
        state = self._lane(lane)
        counts = state.execution.fleet.counts
        return {
            "objective": self._objective(state),
            "cost_percent": 100 * self._components(state)[0],
            "cost_usd": self._spent_usd(state),
            "makespan_s": state.execution.fleet.now_s,
            "missed": float(self._missed(state)),
            "hibernations": float(counts.hibernations),
            "migrations": float(counts.migrations),
            "steals": float(counts.steals),
            "on_demand": float(counts.on_demand),
        }

    def question(self, lane: int) -> tuple[Question, Options]:
        """What a lane is asked now, for schedulers that know more than observations tell."""
        state = self._lane(lane)
        if state.question is None or state.options is None:
            raise ValueError(f"the episode in lane {lane} has ended: reset it first")
        return state.question, state.options

    def execution(self, lane: int) -> Execution:
        """The execution in a lane."""
        return self._lane(lane).execution

    def outcome(self, lane: int) -> Outcome:
        """What a finished episode came to."""
        return self._lane(lane).execution.outcome()

    def timeline(self, lane: int = 0) -> Timeline:
        """What happened in a lane so far."""
        state = self._lane(lane)
        return timeline_of(state.execution, self.slots)

    def fingerprint(self, key: EpisodeKey) -> str:
        """SHA-256 of the bag, the parameters and the calendars of an episode."""
        case = self.source.case(key)
        digest = hashlib.sha256(
            repr((case.plan, case.environment, case.scenario, case.d_spot_s, case.launch_s)).encode()
        )
        for vm_type in case.environment.types:
            digest.update(repr(list(islice(case.changes(vm_type.name), CHANGES_SHOWN))).encode())
        return digest.hexdigest()

    def _begin(self, key: EpisodeKey, number: int) -> _Lane:
        case = self.source.case(key)
        execution = Execution(case.plan, case.environment, case.changes, None, case.launch_s)
        picture = Picture(case.plan.bag, case.environment, case.scenario, self.slots, case.launch_s)
        return _Lane(key=key, case=case, execution=execution, asking=execution.questions(), picture=picture)

    def _advance(self, lane: _Lane, number: int, action: int | None) -> int | None:
        """Go on to the next question that leaves a choice."""
        answer = None
        if action is not None:
            assert lane.options is not None
            answer = lane.options.answer(action)
        while True:
            try:
                lane.question = next(lane.asking) if answer is None else lane.asking.send(answer)
            except StopIteration:
                lane.question = lane.options = None
                return None
            lane.options = Options(lane.question, lane.execution, self.slots)
            if lane.options.by_slot:
                lane.picture.show(lane.question, lane.options, lane.execution.fleet, self.observation, number)
                return lane.question.task
            answer = lane.options.answer(self.spec.n_clusters)

    def reward_of_usd(self, lane: int) -> float:
        """See `QuestionWorld`."""
        return 100.0 * self.omega * self._shares(self._lane(lane))[0]

    def _spent_usd(self, lane: _Lane) -> float:
        fleet = lane.execution.fleet
        return sum(vm.spent_usd(fleet.now_s) for vm in fleet.vms)

    def _missed(self, lane: _Lane) -> bool:
        fleet = lane.execution.fleet
        return lane.asked is None and (fleet.unfinished > 0 or fleet.now_s > fleet.deadline_s + 1e-6)

    def _components(self, lane: _Lane) -> tuple[float, float]:
        """Cost and time so far, each as a share of what section 8.1 divides it by."""
        of_usd, of_s = self._shares(lane)
        return of_usd * self._spent_usd(lane), of_s * lane.execution.fleet.now_s

    def _shares(self, lane: _Lane) -> tuple[float, float]:
        """What shares a USD and a second are."""
        environment = lane.case.environment
        # Without any D_spot the thesis plans no spot VM and has no measure; the deadline takes its place.
        measure_s = lane.case.d_spot_s or lane.case.plan.deadline_s
        cost_scale, time_scale = fitness_scales(environment, measure_s)
        return cost_scale / environment.omega, time_scale / (1 - environment.omega)

    def _objective(self, lane: _Lane) -> float:
        cost, time = self._components(lane)
        total = 100 * (self.omega * cost + (1 - self.omega) * time)
        return total + MISSED_POINTS * self._missed(lane)
