"""HADS' primary scheduling heuristic (Teylo 2021, Algorithm 3)."""

from __future__ import annotations

from collections.abc import Sequence

from agents.bags.draft import Draft
from agents.bags.round_robin import WeightedRoundRobin
from envs.simulation.bags.deadlines import compute_d_spot
from envs.simulation.bags.model import Bag, Environment, Market, Task
from envs.simulation.bags.plan import Plan


def by_memory(tasks: Sequence[Task]) -> list[Task]:
    """Largest memory first (sort_by_memory); among equals the longest task."""
    return sorted(tasks, key=lambda task: (-task.memory_mb, -max(task.runtime_s.values())))


def plan_primarily(bag: Bag, environment: Environment, deadline_s: float) -> Plan:
    """The cheapest VMs first: those rented, then new spot VMs in turn, then on-demand ones.

    Phase 3 differs from the print: it also asks whether the on-demand VM ends the task by the deadline, and
    passes to the next dearer one if not.

    Args:
        bag: what runs.
        environment: what may be rented.
        deadline_s: D.

    Raises:
        ImpossibleDeadlineError: if a task finds no VM that ends it by the deadline.
    """
    draft = Draft(bag, environment, deadline_s, compute_d_spot(bag.tasks, environment, deadline_s))
    spot = WeightedRoundRobin(environment.spot(), bag)
    for task in by_memory(bag.tasks):
        if not (_on_rented(task, draft) or _on_new_spot(task, draft, spot)):
            draft.schedule_on_demand(task)
    return draft.plan()


def _on_rented(task: Task, draft: Draft) -> bool:
    """Phase 1: a VM that is already rented, spot before on-demand, cheapest first."""
    for vm in sorted(draft.rented, key=lambda vm: (vm.market != Market.SPOT, vm.usd_hour)):
        slot = draft.fits(task, vm)
        if slot is not None:
            draft.schedule(task, vm, slot)
            return True
    return False


def _on_new_spot(task: Task, draft: Draft, spot: WeightedRoundRobin) -> bool:
    """Phase 2: the spot VM whose turn it is, if the task fits there."""
    vm = spot.next()
    if vm is None:
        return False
    slot = draft.fits(task, vm)
    if slot is None:
        return False
    draft.schedule(task, vm, slot)
    spot.take(vm)
    return True
