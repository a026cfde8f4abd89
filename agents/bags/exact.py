"""The optimal plan on spot VMs: the time-indexed model of Teylo 2021, Eq. 8.1 to 8.7, solved by HiGHS.

Differences from the print, none of which changes the optimum:

- Periods are counted from 0, and a task that starts in period v runs in periods v to v + e - 1. The windows
  of Eq. 8.3 and 8.4 reach one period further, which would keep a core idle between two tasks.
- Eq. 8.5 is one row for each task and VM, and Eq. 8.6, a product of variables, is Z_j <= ZT.
- T ends where the makespan alone costs as much as the best plan of MinMin and the local search.
- The work on a VM takes no more than its cores until Z_j, which the relaxed model would not know.
- VMs of one type are equal: the first of them is taken to end last.
- Eq. 8.3 is left out for VMs on which any tasks fit together.
"""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from spotweave.agents.bags.heuristics import Draft, plan_min_min
from spotweave.agents.bags.ils import plan_by_search
from spotweave.agents.linear_program import LinearProgram, UnsolvedError
from spotweave.envs.simulation.bags.fleet import fitness_scales
from spotweave.envs.simulation.bags.model import SECONDS_PER_HOUR, Bag, BagError, Environment, Market
from spotweave.envs.simulation.bags.options import ImpossibleDeadlineError, compute_d_spot
from spotweave.envs.simulation.bags.plan import Plan
from spotweave.envs.simulation.series import Ints

MAX_VARIABLES = 500_000


def plan_exactly(
    bag: Bag, environment: Environment, deadline_s: float, period_s: float = 1.0, time_limit_s: float = 600.0
) -> Plan:
    """The plan with the least weighted cost and makespan among those that use spot VMs only.

    Args:
        bag: what runs.
        environment: what may be rented.
        deadline_s: D.
        period_s: length of a period; run times are rounded up to whole periods, and the plan is optimal for
            these. Its tasks then start as early as their true run times let them.
        time_limit_s: give up after so long.

    Raises:
        ImpossibleDeadlineError: if no plan on spot VMs ends by D_spot.
        BagError: if the model is too large, or not solved in time.
    """
    d_spot_s = compute_d_spot(bag.tasks, environment, deadline_s)
    if not environment.spot() or d_spot_s < period_s:
        raise ImpossibleDeadlineError(f"no plan on spot VMs ends by D_spot = {d_spot_s:g} s")
    model = _Model(bag, environment, d_spot_s, period_s, _horizon_s(bag, environment, deadline_s, d_spot_s))
    starts = model.solve(time_limit_s)
    draft = Draft(bag, environment, deadline_s, d_spot_s)
    for _, task, vm in sorted(starts):
        slot = draft.slot(bag.tasks[task], model.vms[vm])
        assert slot is not None
        draft.schedule(bag.tasks[task], model.vms[vm], slot)
    return draft.plan()


def objective(plan: Plan, environment: Environment) -> float:
    """Eq. 8.1 of a plan, with cost and makespan normalised."""
    cost_scale, time_scale = fitness_scales(environment, plan.d_spot_s)
    return cost_scale * plan.cost_usd + time_scale * plan.makespan_s


def _horizon_s(bag: Bag, environment: Environment, deadline_s: float, d_spot_s: float) -> float:
    """No optimal plan ends later."""
    if environment.omega == 1:
        return d_spot_s
    _, time_scale = fitness_scales(environment, d_spot_s)
    known_s = [d_spot_s]
    with suppress(ImpossibleDeadlineError):
        plan = plan_min_min(bag, environment, deadline_s, d_spot_s)
        known_s.append(objective(plan, environment) / time_scale)
    with suppress(ImpossibleDeadlineError):
        plan = plan_by_search(bag, environment, deadline_s)
        if all(planned.vm.market == Market.SPOT for planned in plan.vms):
            known_s.append(objective(plan, environment) / time_scale)
    return min(known_s)


class _Model:
    """X_ijv as one column for each task, VM and start that is possible, then Z_j, then ZT."""

    def __init__(
        self, bag: Bag, environment: Environment, d_spot_s: float, period_s: float, horizon_s: float
    ) -> None:
        self.vms = environment.spot()
        # What the horizon rounds off, the rounded run times may need.
        last = math.floor(d_spot_s / period_s + 1e-9)
        self.periods = min(last, math.ceil(horizon_s / period_s - 1e-9) + 1)
        self._memory_mb = np.array([task.memory_mb for task in bag.tasks])
        self._length = np.array(
            [
                [math.ceil(environment.duration_s(task, vm) / period_s - 1e-9) for vm in self.vms]
                for task in bag.tasks
            ]
        )
        fits = self._memory_mb[:, None] <= np.array([vm.vm_type.memory_mb for vm in self.vms])
        starts = np.where(fits, np.maximum(self.periods - self._length + 1, 0), 0)
        if not starts.any(axis=1).all():
            raise ImpossibleDeadlineError(f"a task fits on no spot VM within {self.periods} periods")
        total = int(starts.sum())
        if total > MAX_VARIABLES:
            raise BagError(
                f"the exact model would have {total} variables, at most {MAX_VARIABLES} are practical: use "
                f"fewer tasks, a nearer deadline or another planner"
            )
        # [X] task, VM and start of each column
        self._task, self._vm = (
            np.repeat(index.ravel(), starts.ravel()) for index in np.indices(starts.shape)
        )
        self._start = np.concatenate([np.arange(n) for n in starts.ravel()])
        cost_scale, time_scale = fitness_scales(environment, d_spot_s)
        usd_period = np.array([vm.usd_hour / SECONDS_PER_HOUR * period_s for vm in self.vms])
        # In units of a period of makespan, as HiGHS stops at an absolute gap of 1e-6.
        unit = time_scale * period_s if time_scale > 0 else cost_scale * usd_period.min()
        weights = np.append(cost_scale * usd_period, time_scale * period_s) / unit
        self._program = LinearProgram()
        self._program.add_columns(total, whole=True)
        self._program.add_columns(len(weights), high=self.periods, cost=weights)
        self._constrain()

    def solve(self, time_limit_s: float) -> list[tuple[int, int, int]]:
        """(start period, task, VM) of each task. Raises ImpossibleDeadlineError and BagError."""
        try:
            values = self._program.solve(time_limit_s)
        except UnsolvedError as error:
            raise BagError(f"{error}: use fewer tasks or another planner") from None
        if values is None:
            raise ImpossibleDeadlineError(f"no plan on spot VMs ends within {self.periods} periods")
        chosen = np.flatnonzero(values[: len(self._task)] > 0.5)
        return [(int(self._start[k]), int(self._task[k]), int(self._vm[k])) for k in chosen]

    def _constrain(self) -> None:
        tasks, vms = self._length.shape
        total, add = len(self._task), self._program.add_rows
        columns, each = np.arange(total), np.arange(vms)
        length = self._length[self._task, self._vm]
        # Eq. 8.2: each task starts once
        add(tasks, self._task, columns, 1.0, low=1.0, high=1.0)
        # Eq. 8.4 and 8.3: a column takes a core and memory in each period that it runs
        runs = np.repeat(columns, length)
        when = np.concatenate([np.arange(s, s + n) for s, n in zip(self._start, length, strict=True)])
        vcpus = np.array([vm.vm_type.vcpus for vm in self.vms], float)
        place = self._vm[runs] * self.periods + when
        add(vms * self.periods, place, runs, 1.0, high=np.repeat(vcpus, self.periods))
        memory_mb = np.array([vm.vm_type.memory_mb for vm in self.vms])
        together = np.sort(self._memory_mb)[::-1]
        binds = np.array([together[: vm.vm_type.vcpus].sum() for vm in self.vms]) > memory_mb
        scarce = binds[self._vm[runs]]
        needs_mb = self._memory_mb[self._task[runs[scarce]]]
        memory_mb = np.repeat(memory_mb, self.periods)
        add(vms * self.periods, place[scarce], runs[scarce], needs_mb, high=memory_mb)
        # Eq. 8.5: the end of a task on a VM is not after Z_j
        pair, every = self._task * vms + self._vm, np.arange(tasks * vms)
        ends = np.concatenate([self._start + length, -np.ones(tasks * vms)])
        add(tasks * vms, np.append(pair, every), np.append(columns, total + every % vms), ends, high=0.0)
        # The work on a VM is at most its cores times Z_j
        needs = np.append(length, -vcpus)
        add(vms, np.append(self._vm, each), np.append(columns, total + each), needs, high=0.0)
        # Eq. 8.6: Z_j <= ZT; Eq. 8.7 is the bound of Z_j
        self._precede(total + each, np.full(vms, total + vms))
        # The later of two VMs of one type ends first
        same = np.array([k for k in each[1:] if self.vms[k].vm_type == self.vms[k - 1].vm_type], int)
        self._precede(total + same, total + same - 1)

    def _precede(self, first: Ints, second: Ints) -> None:
        """Each of the first columns is at most its second."""
        n = len(first)
        signs = np.append(np.ones(n), -np.ones(n))
        self._program.add_rows(n, np.tile(np.arange(n), 2), np.append(first, second), signs, high=0.0)
