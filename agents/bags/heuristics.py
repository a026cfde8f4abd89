"""MinMin, MaxMin and Greedy on spot VMs (Teylo 2021, section 9.2; after Maheswaran et al. 1999)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from agents.bags.draft import Draft
from envs.simulation.bags.deadlines import ImpossibleDeadlineError
from envs.simulation.bags.model import Bag, Environment, Task, Vm
from envs.simulation.bags.plan import Plan


def plan_min_min(bag: Bag, environment: Environment, deadline_s: float, d_spot_s: float) -> Plan:
    """Again and again the task and the VM with the smallest completion time of all.

    Args:
        bag: what runs.
        environment: what may be rented.
        deadline_s: D.
        d_spot_s: when all tasks must have ended.

    Raises:
        ImpossibleDeadlineError: if a task cannot end in time.
    """
    return _by_completion(Draft(bag, environment, deadline_s, d_spot_s), np.nanargmin)


def plan_max_min(bag: Bag, environment: Environment, deadline_s: float, d_spot_s: float) -> Plan:
    """Again and again the task and the VM with the largest completion time that is still in time.

    "Priority to VMs with the maximum earliest completion time": one VM is filled before the next. Arguments
    and errors as `plan_min_min`.
    """
    return _by_completion(Draft(bag, environment, deadline_s, d_spot_s), np.nanargmax)


def plan_greedily(bag: Bag, environment: Environment, deadline_s: float, d_spot_s: float) -> Plan:
    """The shortest task on the cheapest VM that ends it in time. Arguments and errors as `plan_min_min`."""
    draft = Draft(bag, environment, deadline_s, d_spot_s)
    vms = sorted(environment.spot(), key=lambda vm: vm.usd_hour)
    for task in sorted(bag.tasks, key=lambda task: max(task.runtime_s.values())):
        fitting = ((vm, slot) for vm in vms if (slot := draft.fits(task, vm)) is not None)
        vm, slot = next(fitting, (None, None))
        if vm is None or slot is None:
            raise _too_late(task, d_spot_s)
        draft.schedule(task, vm, slot)
    return draft.plan()


def _by_completion(draft: Draft, best: Callable[[NDArray[np.float64]], np.intp]) -> Plan:
    """Among equal completion times the first task takes its cheapest VM."""
    tasks = draft.bag.tasks
    vms = sorted(draft.environment.spot(), key=lambda vm: vm.usd_hour)
    # [tasks, vms] completion time in s; NaN where it is too late, the memory too small, or the task placed
    end_s = np.array([[_end_s(draft, task, vm) for vm in vms] for task in tasks]).reshape(
        len(tasks), len(vms)
    )
    left = set(range(len(tasks)))
    while left:
        stranded = left - set(np.flatnonzero(np.isfinite(end_s).any(axis=1)).tolist())
        if stranded:
            raise _too_late(tasks[min(stranded)], draft.d_spot_s)
        row, column = np.unravel_index(best(end_s), end_s.shape)
        task, vm = tasks[row], vms[column]
        slot = draft.fits(task, vm)
        assert slot is not None
        draft.schedule(task, vm, slot)
        left.remove(int(row))
        end_s[row] = np.nan
        for other in left:
            if np.isfinite(end_s[other, column]):
                end_s[other, column] = _end_s(draft, tasks[other], vm)
    return draft.plan()


def _end_s(draft: Draft, task: Task, vm: Vm) -> float:
    slot = draft.fits(task, vm)
    return np.nan if slot is None else slot.end_s


def _too_late(task: Task, d_spot_s: float) -> ImpossibleDeadlineError:
    return ImpossibleDeadlineError(f"no spot VM is left that ends task {task.name} by {d_spot_s:g} s")
