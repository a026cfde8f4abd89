"""A VM while it is rented: its state, its tasks, its bill and its CPU credits."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple

from envs.simulation.bags.model import SECONDS_PER_HOUR, Market, Mode, Vm
from envs.simulation.bags.queueing import Queue
from envs.simulation.bags.running import RunningTask


class VmState(StrEnum):
    """What a VM is doing (Teylo 2021, section 6.2.2), and the time before it can."""

    STARTING = "starting"
    BUSY = "busy"
    IDLE = "idle"
    HIBERNATED = "hibernated"
    TERMINATED = "terminated"


class Span(NamedTuple):
    """A VM's time in one state."""

    state: VmState
    start_s: float
    end_s: float


HOURS_OF_CREDITS = 24.0


class RentedVm:
    """One VM from the moment it is rented.

    Args:
        index: its place in `Fleet.vms`.
        vm: what is rented.
        runtimes_s: e_ij on this VM by task index.
        now_s: when it is rented; it is billed from here.
        ready_s: when it can run tasks.
    """

    __slots__ = (
        "_credited_s",
        "_since_s",
        "credits",
        "free_cores",
        "free_mb",
        "idle_until_s",
        "index",
        "limit_s",
        "modes",
        "queue",
        "ready_s",
        "rented_s",
        "running",
        "runtimes_s",
        "spans",
        "spot",
        "starts_s",
        "state",
        "vm",
        "waiting",
    )

    def __init__(self, index: int, vm: Vm, runtimes_s: list[float], now_s: float, ready_s: float) -> None:
        self.index, self.vm, self.runtimes_s = index, vm, runtimes_s
        self.spot = vm.market == Market.SPOT
        self.rented_s, self.ready_s = now_s, ready_s
        self.state = VmState.STARTING if ready_s > now_s else VmState.IDLE
        self.running: dict[int, RunningTask] = {}
        self.waiting: list[int] = []
        self.modes: dict[int, Mode] = {}
        self.free_cores = list(range(vm.vm_type.vcpus - 1, -1, -1))
        self.free_mb = vm.vm_type.memory_mb
        self.queue: Queue | None = None
        self.starts_s: dict[int, float] = {}
        self.limit_s = self.idle_until_s = math.inf
        self.spans: list[Span] = []
        self.credits, self._credited_s, self._since_s = 0.0, now_s, now_s

    @property
    def has_tasks(self) -> bool:
        """Whether Q_j is not empty."""
        return bool(self.running or self.waiting)

    def enter(self, state: VmState, now_s: float) -> None:
        """Change its state."""
        if now_s > self._since_s:
            self.spans.append(Span(self.state, self._since_s, now_s))
        self.state, self._since_s = state, now_s

    def cycle_end_s(self, now_s: float, cycle_s: float) -> float:
        """End of the current allocation cycle, later than now; cycles count from when it was rented."""
        return self.rented_s + (math.floor((now_s - self.rented_s) / cycle_s) + 1) * cycle_s

    @property
    def billed_s(self) -> float:
        """Seconds on the bill: all but those hibernated (section 7.2; disks are not billed)."""
        return sum(span.end_s - span.start_s for span in self.spans if span.state != VmState.HIBERNATED)

    @property
    def cost_usd(self) -> float:
        """Its bill."""
        return self.billed_s * self.vm.usd_hour / SECONDS_PER_HOUR

    def spent_usd(self, now_s: float) -> float:
        """Its bill so far."""
        if self.state in (VmState.HIBERNATED, VmState.TERMINATED):
            return self.cost_usd
        return self.cost_usd + (now_s - self._since_s) * self.vm.usd_hour / SECONDS_PER_HOUR

    def speed(self, mode: Mode) -> float:
        """Share of a core that a task gets."""
        return self.vm.vm_type.baseline if mode == Mode.BASELINE else 1.0

    def update_credits(self, now_s: float, burst_period_s: float) -> float:
        """Earn and burn CPU credits up to now.

        Returns:
            Credits burnt per second from now on, less those earned.
        """
        if not self.vm.vm_type.burstable:
            return 0.0
        earned = self.vm.vm_type.cpu_credit_rate_hour / SECONDS_PER_HOUR
        if self.state in (VmState.STARTING, VmState.TERMINATED):
            earned = 0.0
        burnt = sum(task.speed for task in self.running.values()) / burst_period_s
        held = self.credits + (now_s - self._credited_s) * (earned - burnt)
        most = self.vm.vm_type.cpu_credit_rate_hour * HOURS_OF_CREDITS
        self.credits, self._credited_s = min(max(held, 0.0), most), now_s
        return burnt - earned
