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
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from agents.bags.draft import Draft
from agents.bags.heuristics import plan_min_min
from agents.bags.ils import plan_by_search
from envs.simulation.bags.model import SECONDS_PER_HOUR, Bag, BagError, Environment, Market
from envs.simulation.bags.options import ImpossibleDeadlineError, compute_d_spot
from envs.simulation.bags.outcome import fitness_scales
from envs.simulation.bags.plan import Plan

MAX_VARIABLES = 500_000
_OPTIMAL, _TIME_OUT, _INFEASIBLE = 0, 1, 2


def plan_exactly(
    bag: Bag,
    environment: Environment,
    deadline_s: float,
    period_s: float = 1.0,
    time_limit_s: float = 600.0,
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
        self._costs = np.concatenate([np.zeros(total), weights])
        self._rows: list[NDArray[np.int64]] = []
        self._columns: list[NDArray[np.int64]] = []
        self._values: list[NDArray[np.float64]] = []
        self._low: list[NDArray[np.float64]] = []
        self._high: list[NDArray[np.float64]] = []
        self._height = 0
        self._constrain()

    def solve(self, time_limit_s: float) -> list[tuple[int, int, int]]:
        """(start period, task, VM) of each task. Raises ImpossibleDeadlineError and BagError."""
        total, width = len(self._task), len(self._costs)
        matrix = coo_array(
            (np.concatenate(self._values), (np.concatenate(self._rows), np.concatenate(self._columns))),
            shape=(self._height, width),
        ).tocsc()
        integrality = np.zeros(width)
        integrality[:total] = 1
        upper = np.full(width, float(self.periods))
        upper[:total] = 1
        found = milp(
            self._costs,
            integrality=integrality,
            bounds=Bounds(0, upper),
            constraints=LinearConstraint(matrix, np.concatenate(self._low), np.concatenate(self._high)),
            options={"time_limit": time_limit_s, "mip_rel_gap": 0.0},
        )
        if found.status == _INFEASIBLE:
            raise ImpossibleDeadlineError(f"no plan on spot VMs ends within {self.periods} periods")
        if found.status == _TIME_OUT:
            raise BagError(
                f"the exact model was not solved in {time_limit_s:g} s: use fewer tasks or another planner"
            )
        if found.status != _OPTIMAL:
            raise BagError(f"HiGHS failed on the exact model: {found.message}")
        chosen = np.flatnonzero(found.x[:total] > 0.5)
        return [(int(self._start[k]), int(self._task[k]), int(self._vm[k])) for k in chosen]

    def _constrain(self) -> None:
        tasks, vms = self._length.shape
        total = len(self._task)
        columns = np.arange(total)
        length = self._length[self._task, self._vm]
        ones = np.ones(total)
        # Eq. 8.2: each task starts once
        self._add(self._task, columns, ones, tasks, 1.0, 1.0)
        # Eq. 8.4 and 8.3: a column takes a core and memory in each period that it runs
        runs = np.repeat(columns, length)
        when = np.concatenate([np.arange(s, s + n) for s, n in zip(self._start, length, strict=True)])
        vcpus = np.array([vm.vm_type.vcpus for vm in self.vms], float)
        place = self._vm[runs] * self.periods + when
        self._add(place, runs, ones[runs], vms * self.periods, -np.inf, np.repeat(vcpus, self.periods))
        memory_mb = np.array([vm.vm_type.memory_mb for vm in self.vms])
        together = np.sort(self._memory_mb)[::-1]
        binds = np.array([together[: vm.vm_type.vcpus].sum() for vm in self.vms]) > memory_mb
        scarce = binds[self._vm[runs]]
        self._add(
            place[scarce],
            runs[scarce],
            self._memory_mb[self._task[runs[scarce]]],
            vms * self.periods,
            -np.inf,
            np.repeat(memory_mb, self.periods),
        )
        # Eq. 8.5: the end of a task on a VM is not after Z_j
        pair = self._task * vms + self._vm
        every = np.arange(tasks * vms)
        self._add(
            np.concatenate([pair, every]),
            np.concatenate([columns, total + every % vms]),
            np.concatenate([(self._start + length).astype(float), -np.ones(tasks * vms)]),
            tasks * vms,
            -np.inf,
            0.0,
        )
        # The work on a VM is at most its cores times Z_j
        each = np.arange(vms)
        self._add(
            np.concatenate([self._vm, each]),
            np.concatenate([columns, total + each]),
            np.concatenate([length.astype(float), -vcpus]),
            vms,
            -np.inf,
            0.0,
        )
        # Eq. 8.6: Z_j <= ZT; Eq. 8.7 is the bound of Z_j
        signs = np.concatenate([np.ones(vms), -np.ones(vms)])
        ends = np.concatenate([total + each, np.full(vms, total + vms)])
        self._add(np.concatenate([each, each]), ends, signs, vms, -np.inf, 0.0)
        # The later of two VMs of one type ends first
        same = np.array([k for k in each[1:] if self.vms[k].vm_type == self.vms[k - 1].vm_type], int)
        order = np.arange(len(same))
        ends = np.concatenate([total + same, total + same - 1])
        signs = np.concatenate([np.ones(len(same)), -np.ones(len(same))])
        self._add(np.concatenate([order, order]), ends, signs, len(same), -np.inf, 0.0)

    def _add(
        self,
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        values: NDArray[np.float64],
        count: int,
        low: float,
        high: float | NDArray[np.float64],
    ) -> None:
        """Add `count` rows with these entries: low <= row <= high."""
        self._rows.append(rows + self._height)
        self._columns.append(columns)
        self._values.append(values)
        self._low.append(np.full(count, low))
        self._high.append(np.broadcast_to(high, (count,)).astype(float))
        self._height += count
