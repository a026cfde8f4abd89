"""The inner loop of the local search: tasks move to one VM, the best plan on the way is kept. Compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

_TOLERANCE = 1e-12


class Fleet(NamedTuple):
    """A bag and V VMs as arrays; T tasks in the order in which each VM starts them.

    Attributes:
        duration_s: [T, V].
        memory_mb: [T].
        cores: [V].
        capacity_mb: [V].
        usd_s: [V] price per second.
        cost_scale: weight of USD in the fitness.
        time_scale: weight of a second of makespan in the fitness.
    """

    duration_s: NDArray[np.float64]
    memory_mb: NDArray[np.float64]
    cores: NDArray[np.int64]
    capacity_mb: NDArray[np.float64]
    usd_s: NDArray[np.float64]
    cost_scale: float
    time_scale: float


@njit(cache=True, error_model="numpy")
def end_s(fleet: Fleet, vm: int, allocation: NDArray[np.int64]) -> float:
    """When a VM has run the tasks allocated to it, each on the core free first; inf if one is too large.

    As `envs.simulation.bags.occupancy.Occupancy` does it.
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


@njit(cache=True, error_model="numpy")
def _start_s(
    placed: NDArray[np.float64], free: float, duration: float, memory: float, capacity: float
) -> float:
    """The earliest start from `free` on at which memory suffices throughout; it frees as tasks end."""
    best = np.inf
    for k in range(-1, len(placed)):
        at = free if k < 0 else placed[k, 1]
        if at >= free and at < best and _peak_mb(placed, at, at + duration) + memory <= capacity:
            best = at
    return best


@njit(cache=True, error_model="numpy")
def _peak_mb(placed: NDArray[np.float64], start: float, end: float) -> float:
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
def fitness(fleet: Fleet, ends: NDArray[np.float64], limit_s: NDArray[np.float64]) -> float:
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
def walk(
    fleet: Fleet,
    allocation: NDArray[np.int64],
    moves: NDArray[np.int64],
    destination: int,
    limit_s: NDArray[np.float64],
) -> NDArray[np.int64]:
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
