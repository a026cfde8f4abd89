"""HADS: wait for a hibernated VM as long as the deadline allows (Teylo 2021, section 6.2).

Algorithm 5 handles events; here each event is a question about one task.
"""

from __future__ import annotations

from agents.bags.schedulers.migration import migrate
from envs.simulation.bags.decisions import Answer, Cause, Move, Question, Wait
from envs.simulation.bags.fleet import Fleet
from envs.simulation.bags.model import Mode
from envs.simulation.bags.rented import RentedVm, VmState
from envs.simulation.bags.rescue import check_migration
from envs.simulation.bags.time_limit import last_call_s, migration_time_limit_s


class Hads:
    """Hibernation-Aware Dynamic Scheduler."""

    name = "HADS"

    def __init__(self) -> None:
        self._limit: tuple[Fleet, float, int] | None = None
        self._until_s = 0.0

    def decide(self, question: Question, fleet: Fleet) -> Answer:
        """Algorithm 5."""
        cause, task, vm, idle = question
        assert vm is not None
        if cause == Cause.EMPTY:
            return Wait()
        if cause == Cause.HIBERNATED:
            return Wait(self._limit_s(vm, fleet))
        if cause == Cause.LIMIT:
            if vm.state != VmState.HIBERNATED:
                # It resumed in time, yet may hibernate again: as long as its tasks could still be saved then,
                # they stay. Algorithm 5 forgets the limit here, and would then miss the deadline.
                limit_s = last_call_s(fleet, vm)
                if limit_s > fleet.now_s:
                    return Wait(limit_s)
            return migrate(fleet, task, vm)
        assert idle is not None
        # Section 6.2.6 steals for spot VMs only.
        return Move(idle) if idle.spot and may_steal(fleet, task, vm, idle) else Wait()

    def _limit_s(self, vm: RentedVm, fleet: Fleet) -> float:
        """mtt, once for all tasks of a VM that hibernates."""
        key = fleet, fleet.now_s, vm.index
        if self._limit != key:
            self._limit, self._until_s = key, migration_time_limit_s(fleet, vm)
        return self._until_s


def may_steal(fleet: Fleet, task: int, vm: RentedVm, idle: RentedVm, mode: Mode = Mode.FULL) -> bool:
    """Algorithm 8: a task that its VM would start only in a later allocation cycle, if it is in time."""
    fleet.queue(vm)
    cycle_end_s = vm.cycle_end_s(fleet.now_s, fleet.environment.allocation_cycle_s)
    return vm.starts_s[task] >= cycle_end_s and check_migration(fleet, task, idle, mode)
