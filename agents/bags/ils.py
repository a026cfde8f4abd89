"""Iterated local search for the primary scheduling map (Teylo 2021, Algorithms 9 and 10)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.bags.draft import Draft
from agents.bags.primary import by_memory, plan_primarily
from agents.bags.walk import Fleet, end_s, fitness, walk
from envs.simulation.bags.model import SECONDS_PER_HOUR, Bag, Environment, Market, Vm
from envs.simulation.bags.objective import fitness_scales
from envs.simulation.bags.occupancy import MEMORY_TOLERANCE_MB
from envs.simulation.bags.plan import Plan
from envs.simulation.streams import Streams


@dataclass(frozen=True)
class SearchSettings:
    """Parameters of the search as section 9.1 sets them.

    Attributes:
        max_iteration: VMs added, each followed by a local search.
        max_attempt: rounds of moves in a local search.
        swap_rate: share of the tasks that a round moves, rounded up.
        max_failed: iterations without a better plan before D_spot is relaxed.
        relaxed_rate: how much D_spot grows then, in each iteration.
    """

    max_iteration: int = 200
    max_attempt: int = 50
    swap_rate: float = 0.10
    max_failed: int = 20
    relaxed_rate: float = 0.25


PUBLISHED = SearchSettings()


def plan_by_search(
    bag: Bag,
    environment: Environment,
    deadline_s: float,
    seed: int = 0,
    settings: SearchSettings = PUBLISHED,
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

    def _local_search(
        self, allocation: NDArray[np.int64], selected: list[int], limit_s: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Algorithm 10. Where swap_rate * |B| is no whole number, it is rounded up."""
        settings = self._settings
        count = math.ceil(settings.swap_rate * len(self._tasks))
        destination = int(self._random.choice(selected))
        moves = self._random.integers(len(self._tasks), size=settings.max_attempt * count)
        best: NDArray[np.int64] = walk(self._fleet, allocation, moves, destination, limit_s)
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

    def _limits(self, d_spot_s: float) -> NDArray[np.float64]:
        """[V] what each VM must stay below."""
        deadline_s = self._start.deadline_s
        return np.array([d_spot_s if vm.market == Market.SPOT else deadline_s for vm in self._vms])

    def _fitness(self, allocation: NDArray[np.int64], limit_s: NDArray[np.float64]) -> float:
        ends = np.array([end_s(self._fleet, vm, allocation) for vm in range(len(self._vms))])
        return float(fitness(self._fleet, ends, limit_s))

    def _plan(self, allocation: NDArray[np.int64]) -> Plan:
        start = self._start
        draft = Draft(start.bag, self._environment, start.deadline_s, start.d_spot_s)
        for task, vm in zip(self._tasks, allocation.tolist(), strict=True):
            slot = draft.slot(task, self._vms[vm])
            assert slot is not None
            draft.schedule(task, self._vms[vm], slot)
        return draft.plan()
