"""Burst-HADS: migrate at once, to burstable VMs in burst mode first (Teylo 2021, section 8.2)."""

from __future__ import annotations

import math

from agents.bags.schedulers.hads import may_steal
from agents.bags.schedulers.migration import rent
from envs.simulation.bags.decisions import Answer, Cause, Move, Question, Wait
from envs.simulation.bags.fleet import Fleet
from envs.simulation.bags.model import Mode
from envs.simulation.bags.rented import RentedVm
from envs.simulation.bags.rescue import busy_vms, check_migration, idle_vms


class BurstHads:
    """Burst Hibernation-Aware Dynamic Scheduler."""

    name = "Burst-HADS"

    def decide(self, question: Question, fleet: Fleet) -> Answer:
        """Algorithm 11 for a hibernated VM, Algorithm 12 for an idle one."""
        cause, task, vm, idle = question
        assert vm is not None
        if cause == Cause.EMPTY:
            return Wait()
        if cause == Cause.IDLE:
            assert idle is not None
            return _steal(fleet, task, vm, idle)
        return burst_migrate(fleet, task, vm)


def burst_migrate(fleet: Fleet, task: int, source: RentedVm) -> Answer:
    """Algorithm 11: an idle burstable VM with credits, an idle or busy other VM, or a new on-demand VM."""
    idle, busy = idle_vms(fleet), busy_vms(fleet)
    for vm in idle:
        if vm.vm.vm_type.burstable:
            needed = math.ceil(fleet.remaining_s(task, vm) / fleet.environment.burst_period_s)
            if fleet.credits(vm) > needed and check_migration(fleet, task, vm):
                return Move(vm, Mode.FULL)
    # sort_by_market: spot VMs first, idle ones first among equals.
    for vm in sorted((*idle, *busy), key=lambda vm: not vm.spot):
        if not vm.vm.vm_type.burstable and vm is not source and check_migration(fleet, task, vm):
            return Move(vm)
    return rent(fleet, task, source)


def _steal(fleet: Fleet, task: int, vm: RentedVm, idle: RentedVm) -> Answer:
    """Algorithm 12: no task of a burstable VM; a burstable VM takes one task, in baseline mode."""
    if vm.vm.vm_type.burstable:
        return Wait()
    if not idle.vm.vm_type.burstable:
        return Move(idle) if may_steal(fleet, task, vm, idle) else Wait()
    if idle.has_tasks or not may_steal(fleet, task, vm, idle, Mode.BASELINE):
        return Wait()
    return Move(idle, Mode.BASELINE)
