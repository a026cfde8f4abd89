"""Iterated local search for the primary scheduling map (Teylo 2021, Algorithms 9 and 10)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from spotweave.agents.bags.heuristics import Draft, by_memory, plan_primarily
from spotweave.envs.simulation.bags.fleet import fitness_scales
from spotweave.envs.simulation.bags.model import SECONDS_PER_HOUR, Bag, Environment, Market, Mode, Vm
from spotweave.envs.simulation.bags.options import ImpossibleDeadlineError
from spotweave.envs.simulation.bags.plan import MEMORY_TOLERANCE_MB, TIME_TOLERANCE_S, Plan, PlannedTask
from spotweave.envs.simulation.compiled import linked
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.streams import Streams

# The inner loop of the local search: tasks move to one VM, the best plan on the way is kept. Compiled.

_TOLERANCE = 1e-12


class Fleet(NamedTuple):
    """A bag and V VMs as arrays; T tasks in the order in which each VM starts them."""

    duration_s: Floats  # [T, V]
    memory_mb: Floats  # [T]
    cores: Ints  # [V]
    capacity_mb: Floats  # [V]
    usd_s: Floats  # [V] price per second
    cost_scale: float  # weight of USD in the fitness
    time_scale: float  # weight of a second of makespan in the fitness


@njit(cache=True, error_model="numpy")
def end_s(fleet: Fleet, vm: int, allocation: Ints) -> float:
    """When a VM has run the tasks allocated to it, each on the core free first; inf if one is too large.

    As `envs.simulation.bags.plan.Occupancy` does it.
    """
    free = np.zeros(fleet.cores[vm])
    placed = np.empty((len(allocation), 3))
    count = 0
    largest = 0.0
    for task in range(len(allocation)):
        if allocation[task] != vm:
            continue
        memory = fleet.memory_mb[task]
        duration = fleet.duration_s[task, vm]
        if memory > fleet.capacity_mb[vm]:
            return np.inf
        core = np.argmin(free)
        start = free[core]
        if (len(free) - 1) * largest + memory > fleet.capacity_mb[vm]:
            start = _start_s(placed[:count], start, duration, memory, fleet.capacity_mb[vm])
        free[core] = start + duration
        placed[count] = start, start + duration, memory
        count += 1
        largest = max(largest, memory)
    return float(free.max())


@linked()
def _start_s(placed: Floats, free: float, duration: float, memory: float, capacity: float) -> float:
    """The earliest start from `free` on at which memory suffices throughout; it frees as tasks end."""
    best = np.inf
    for k in range(-1, len(placed)):
        at = free if k < 0 else placed[k, 1]
        if at >= free and at < best and _peak_mb(placed, at, at + duration) + memory <= capacity:
            best = at
    return best


@linked()
def _peak_mb(placed: Floats, start: float, end: float) -> float:
    """The most memory in use at once between two times; it grows only where a task starts."""
    peak = 0.0
    for k in range(-1, len(placed)):
        at = start if k < 0 else placed[k, 0]
        if at < start or at >= end:
            continue
        used = 0.0
        for other in range(len(placed)):
            if placed[other, 0] <= at < placed[other, 1]:
                used += placed[other, 2]
        peak = max(peak, used)
    return peak


@njit(cache=True, error_model="numpy")
def fitness(fleet: Fleet, ends: Floats, limit_s: Floats) -> float:
    """Eq. 8.8: inf if a VM ends at its limit or later, else weighted cost and makespan.

    Args:
        fleet: the VMs.
        ends: [V] when each VM ends.
        limit_s: [V] what each must stay below.
    """
    cost = 0.0
    makespan = 0.0
    for vm in range(len(ends)):
        if ends[vm] > 0.0 and not ends[vm] < limit_s[vm]:
            return np.inf
        cost += ends[vm] * fleet.usd_s[vm]
        makespan = max(makespan, ends[vm])
    return fleet.cost_scale * cost + fleet.time_scale * makespan


@njit(cache=True, error_model="numpy")
def walk(fleet: Fleet, allocation: Ints, moves: Ints, destination: int, limit_s: Floats) -> Ints:
    """Lines 4 to 15 of Algorithm 10: the best allocation among the given one and those after each move.

    Args:
        fleet: the VMs.
        allocation: [T] the VM of each task at the start; left as it is.
        moves: the task that is moved next, one after the other.
        destination: the VM that they move to.
        limit_s: [V] what each VM must stay below.

    Returns:
        [T] the best allocation.
    """
    current = allocation.copy()
    ends = np.empty(len(fleet.cores))
    for vm in range(len(ends)):
        ends[vm] = end_s(fleet, vm, current)
    best = current.copy()
    best_fitness = fitness(fleet, ends, limit_s)
    for task in moves:
        source = current[task]
        if source == destination:
            continue
        current[task] = destination
        ends[source] = end_s(fleet, source, current)
        ends[destination] = end_s(fleet, destination, current)
        found = fitness(fleet, ends, limit_s)
        if found < best_fitness - _TOLERANCE:
            best_fitness = found
            best[:] = current
    return best


@dataclass(frozen=True)
class SearchSettings:
    """Parameters of the search as section 9.1 sets them."""

    max_iteration: int = 200  # VMs added, each followed by a local search
    max_attempt: int = 50  # rounds of moves in a local search
    swap_rate: float = 0.10  # share of the tasks that a round moves, rounded up
    max_failed: int = 20  # iterations without a better plan before D_spot is relaxed
    relaxed_rate: float = 0.25  # how much D_spot grows then, in each iteration


PUBLISHED = SearchSettings()


def plan_by_search(
    bag: Bag, environment: Environment, deadline_s: float, seed: int = 0, settings: SearchSettings = PUBLISHED
) -> Plan:
    """Part 1 of Algorithm 9 without its relaxing perturbation: every task on a spot VM ends by D_spot.

    Args:
        bag: what runs.
        environment: what may be rented; without spot VMs the search adds on-demand ones.
        deadline_s: D.
        seed: of the random choices.
        settings: parameters of the search.

    Raises:
        ImpossibleDeadlineError: if the primary heuristic, from whose plan the search starts, finds none.
    """
    return Search(bag, environment, deadline_s, seed, settings).run(relaxing=False)


class Search:
    """One search. Arguments as `plan_by_search`."""

    def __init__(
        self, bag: Bag, environment: Environment, deadline_s: float, seed: int, settings: SearchSettings
    ) -> None:
        self._environment = environment
        self._settings = settings
        self._random = Streams(seed).generator("policy")
        self._start = plan_primarily(bag, environment, deadline_s)
        # Without spot VMs nothing can hibernate, and D is the only limit.
        self._on_spot = bool(environment.spot())
        rented = [planned.vm for planned in self._start.vms]
        others = [vm for vm in environment.spot() or environment.on_demand() if vm not in rented]
        most = len(others) if self._on_spot else environment.max_on_demand - len(rented)
        self._vms: list[Vm] = [*rented, *others[:most]]
        self._tasks = by_memory(bag.tasks)

    def run(self, *, relaxing: bool) -> Plan:
        """Lines 2 to 20 of Algorithm 9.

        Args:
            relaxing: whether D_spot may be relaxed, up to D; then tasks on spot VMs may end after D_spot.
        """
        start, settings = self._start, self._settings
        if start.d_spot_s == 0:
            return start  # only on-demand VMs can be used (section 6.1.1), and Eq. 8.8 is not defined
        self._fleet = self._arrays()
        where = {placed.task.name: k for k, vm in enumerate(start.vms) for placed in vm.tasks}
        allocation = np.array([where[task.name] for task in self._tasks])
        selected = list(range(len(start.vms)))
        unselected = list(range(len(start.vms), len(self._vms)))
        relaxed_s = start.d_spot_s
        limit_s = self._limits(relaxed_s)
        allocation = self._local_search(allocation, selected, limit_s)
        best, best_at = allocation, 0
        for iteration in range(settings.max_iteration):
            if unselected:
                selected.append(unselected.pop(int(self._random.integers(len(unselected)))))
            if relaxing and iteration - best_at > settings.max_failed:
                relaxed_s = min(relaxed_s * (1 + settings.relaxed_rate), start.deadline_s)
                limit_s = self._limits(relaxed_s)
            allocation = self._local_search(allocation, selected, limit_s)
            if self._fitness(allocation, limit_s) < self._fitness(best, limit_s):
                best, best_at = allocation, iteration
        return self._plan(best)

    def _local_search(self, allocation: Ints, selected: list[int], limit_s: Floats) -> Ints:
        """Algorithm 10. Where swap_rate * |B| is no whole number, it is rounded up."""
        settings = self._settings
        count = math.ceil(settings.swap_rate * len(self._tasks))
        destination = int(self._random.choice(selected))
        moves = self._random.integers(len(self._tasks), size=settings.max_attempt * count)
        best: Ints = walk(self._fleet, allocation, moves, destination, limit_s)
        return best

    def _arrays(self) -> Fleet:
        tasks, vms, environment = self._tasks, self._vms, self._environment
        cost_scale, time_scale = fitness_scales(environment, self._start.d_spot_s)
        return Fleet(
            duration_s=np.array(
                [[environment.duration_s(task, vm) for vm in vms] for task in tasks], np.float64
            ),
            memory_mb=np.array([task.memory_mb for task in tasks], np.float64),
            cores=np.array([vm.vm_type.vcpus for vm in vms]),
            capacity_mb=np.array([vm.vm_type.memory_mb + MEMORY_TOLERANCE_MB for vm in vms]),
            usd_s=np.array([vm.usd_hour / SECONDS_PER_HOUR for vm in vms]),
            cost_scale=cost_scale,
            time_scale=time_scale,
        )

    def _limits(self, d_spot_s: float) -> Floats:
        """[V] what each VM must stay below."""
        deadline_s = self._start.deadline_s
        return np.array([d_spot_s if vm.market == Market.SPOT else deadline_s for vm in self._vms])

    def _fitness(self, allocation: Ints, limit_s: Floats) -> float:
        ends = np.array([end_s(self._fleet, vm, allocation) for vm in range(len(self._vms))])
        return float(fitness(self._fleet, ends, limit_s))

    def _plan(self, allocation: Ints) -> Plan:
        start = self._start
        draft = Draft(start.bag, self._environment, start.deadline_s, start.d_spot_s)
        for task, vm in zip(self._tasks, allocation.tolist(), strict=True):
            slot = draft.slot(task, self._vms[vm])
            assert slot is not None
            draft.schedule(task, self._vms[vm], slot)
        return draft.plan()


# Burst-HADS' primary scheduling map: a search's plan and burstable VMs (Teylo 2021, Algorithm 9, part 2).

BURST_RATE = 0.2  # burstable VMs per spot VM that the search selected (burst_rate, section 9.1)


def plan_with_bursts(
    bag: Bag,
    environment: Environment,
    deadline_s: float,
    seed: int = 0,
    burst_rate: float = BURST_RATE,
    settings: SearchSettings = PUBLISHED,
) -> Plan:
    """Burst-HADS' whole planner (Algorithm 9): iterated local search, then burstable VMs.

    Where the relaxed search leaves tasks after D_spot for which no burstable or on-demand VM is left, the
    plan of the search that was not relaxed takes its place.

    Args:
        bag: what runs.
        environment: what may be rented.
        deadline_s: D.
        seed: of the random choices.
        burst_rate: burstable VMs per spot VM.
        settings: parameters of the search.

    Raises:
        ImpossibleDeadlineError: if the primary heuristic, from whose plan the search starts, finds none.
    """
    found = Search(bag, environment, deadline_s, seed, settings).run(relaxing=True)
    try:
        return allocate_bursts(found, environment, burst_rate)
    except ImpossibleDeadlineError:
        strict = Search(bag, environment, deadline_s, seed, settings).run(relaxing=False)
        return allocate_bursts(strict, environment, burst_rate)


def allocate_bursts(plan: Plan, environment: Environment, burst_rate: float = BURST_RATE) -> Plan:
    """The plan with n' = ceil(burst_rate * spot VMs) burstable VMs (burst_allocation).

    Tasks that end after D_spot on a spot VM move first: one to each burstable VM in baseline mode, the others
    to the cheapest regular on-demand VM. Then each burstable VM that is still idle takes the task that ends
    last of those that it can end by the deadline; if there is none, it stands by.

    Raises:
        ImpossibleDeadlineError: if a task that must leave finds no VM.
    """
    draft = Draft(plan.bag, environment, plan.deadline_s, plan.d_spot_s)
    stay, leave = _parted(plan)
    spot = {vm for vm, _ in stay + leave if vm.market == Market.SPOT}
    # The others keep their times: what leaves ran last on its core.
    for vm, placed in stay:
        draft.keep(vm, placed)
    idle = list(environment.burstable()[: math.ceil(burst_rate * len(spot))])
    idle = idle[: draft.on_demand_left()]
    standby = tuple(idle)
    for vm in idle:
        draft.rent(vm, Mode.BASELINE)
    for _, placed in leave:
        taken = _take(placed, idle, draft)
        if not taken:
            draft.schedule_on_demand(placed.task)
    last_first = sorted(stay, key=lambda pair: -pair[1].end_s)
    for vm, placed in last_first:
        if not idle:
            break
        if _take(placed, idle, draft):
            draft.remove(vm, placed)
    return draft.plan(standby)


def _parted(plan: Plan) -> tuple[list[tuple[Vm, PlannedTask]], list[tuple[Vm, PlannedTask]]]:
    """What stays where it is, and what ends after D_spot on a spot VM, the latest first."""
    stay: list[tuple[Vm, PlannedTask]] = []
    leave: list[tuple[Vm, PlannedTask]] = []
    for planned in plan.vms:
        for placed in planned.tasks:
            late = planned.vm.market == Market.SPOT and placed.end_s > plan.d_spot_s + TIME_TOLERANCE_S
            (leave if late else stay).append((planned.vm, placed))
    return stay, sorted(leave, key=lambda pair: -pair[1].end_s)


def _take(placed: PlannedTask, idle: list[Vm], draft: Draft) -> bool:
    """Whether an idle burstable VM takes the task in baseline mode; it is idle no longer then."""
    for vm in idle:
        slot = draft.fits(placed.task, vm, Mode.BASELINE)
        if slot is not None:
            draft.schedule(placed.task, vm, slot, Mode.BASELINE)
            idle.remove(vm)
            return True
    return False
