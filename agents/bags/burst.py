"""Burst-HADS' primary scheduling map: a search's plan and burstable VMs (Teylo 2021, Algorithm 9, part 2)."""

from __future__ import annotations

import math

from agents.bags.draft import Draft
from agents.bags.ils import PUBLISHED, Search, SearchSettings
from envs.simulation.bags.deadlines import ImpossibleDeadlineError
from envs.simulation.bags.model import Bag, Environment, Market, Mode, Vm
from envs.simulation.bags.plan import TIME_TOLERANCE_S, Plan, PlannedTask

BURST_RATE = 0.2
"""Burstable VMs per spot VM that the search selected (burst_rate, section 9.1)."""


def plan_with_bursts(
    bag: Bag,
    environment: Environment,
    deadline_s: float,
    seed: int = 0,
    burst_rate: float = BURST_RATE,
    settings: SearchSettings = PUBLISHED,
) -> Plan:
    """All of Algorithm 9.

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
