"""A VM while it is rented: its state, its tasks, its bill and its CPU credits."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from spotweave.envs.simulation.bags.model import SECONDS_PER_HOUR, Market, Mode, Vm
from spotweave.envs.simulation.bags.plan import MEMORY_TOLERANCE_MB

# A task on a core: how far it is, what its checkpoints have saved, and when it ends.


@dataclass(eq=False, slots=True)
class RunningTask:
    """One task from its start on a VM until it ends there or is moved away.

    After each `interval_s` of work a checkpoint stops the task for `dump_s`, unless it ends there anyway.
    """

    task: int  # index in the bag
    core: int  # where it runs
    work_s: float  # seconds of work left when it starts, at full speed
    interval_s: float  # seconds of work between two checkpoints; math.inf for none
    dump_s: float  # seconds that a checkpoint takes
    speed: float  # share of a core, 0 to 1
    start_s: float  # when it started or was resumed
    checkpoints: int = field(init=False)
    duration_s: float = field(init=False)  # of the work and its checkpoints, at full speed
    finish_s: float = field(init=False)  # infinite while it is paused
    _elapsed_s: float = 0.0

    def __post_init__(self) -> None:
        self.checkpoints = checkpoints_of(self.work_s, self.interval_s)
        self.duration_s = self.work_s + self.checkpoints * self.dump_s
        self.finish_s = self.start_s + self.duration_s / self.speed

    def pause(self, now_s: float) -> None:
        """Set the break-point of a task whose VM hibernates."""
        self._elapsed_s += (now_s - self.start_s) * self.speed
        self.finish_s = math.inf

    def resume(self, now_s: float, speed: float) -> None:
        """Go on from the break-point at some speed."""
        self.start_s, self.speed = now_s, speed
        self.finish_s = now_s + (self.duration_s - self._elapsed_s) / speed

    def left_s(self, now_s: float) -> float:
        """Seconds that it goes on running from now, or from when it resumes."""
        if self.finish_s != math.inf:
            return self.finish_s - now_s
        return (self.duration_s - self._elapsed_s) / self.speed

    def saved(self, now_s: float) -> tuple[int, float]:
        """Checkpoints completed so far, and the seconds of work that the latest one holds."""
        elapsed_s = self._elapsed_s
        if self.finish_s != math.inf:
            elapsed_s += (now_s - self.start_s) * self.speed
        if self.checkpoints == 0:
            return 0, 0.0
        completed = min(int(elapsed_s / (self.interval_s + self.dump_s)), self.checkpoints)
        return completed, completed * self.interval_s


def checkpoints_of(work_s: float, interval_s: float) -> int:
    """How many checkpoints are taken in so much work, none at its very end."""
    return max(math.ceil(work_s / interval_s) - 1, 0)


# First come, first served on the cores and the memory of one VM.


class Queue:
    """When tasks end that a VM takes in order: each waits for a core and for its memory (Figure 4.1).

    Args:
        cores: tasks that run at once.
        memory_mb: for all of them.
        start_s: no task starts earlier.
        running: (end in s, memory in MB) of the tasks that run already.
    """

    __slots__ = ("_busy", "_cores", "_free_mb", "end_s", "start_s")

    def __init__(
        self, cores: int, memory_mb: float, start_s: float, running: list[tuple[float, float]]
    ) -> None:
        self._cores = cores
        self._busy = running
        self._free_mb = memory_mb + MEMORY_TOLERANCE_MB - sum(used_mb for _, used_mb in running)
        self.start_s = start_s
        self.end_s = max((end_s for end_s, _ in running), default=start_s)
        heapq.heapify(self._busy)

    def append(self, duration_s: float, memory_mb: float, now_s: float = 0.0) -> float:
        """Take one more task, now or later; its start in s. It must fit in the VM's memory alone."""
        busy, start_s = self._busy, max(self.start_s, now_s)
        while len(busy) >= self._cores or memory_mb > self._free_mb:
            end_s, used_mb = heapq.heappop(busy)
            self._free_mb += used_mb
            start_s = max(start_s, end_s)
        heapq.heappush(busy, (start_s + duration_s, memory_mb))
        self._free_mb -= memory_mb
        self.start_s = start_s
        self.end_s = max(self.end_s, start_s + duration_s)
        return start_s

    def copy(self) -> Queue:
        """An independent one in the same state."""
        other = Queue.__new__(Queue)
        other._cores, other._free_mb, other._busy = self._cores, self._free_mb, self._busy.copy()
        other.start_s, other.end_s = self.start_s, self.end_s
        return other


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


@dataclass(eq=False, slots=True)
class RentedVm:
    """One VM from the moment it is rented."""

    index: int  # its place in `Fleet.vms`
    vm: Vm  # what is rented
    runtimes_s: list[float]  # e_ij on this VM by task index
    rented_s: float  # when it is rented; it is billed from here
    ready_s: float  # when it can run tasks
    spot: bool = field(init=False)
    state: VmState = field(init=False)
    running: dict[int, RunningTask] = field(default_factory=dict)  # by task
    waiting: list[int] = field(default_factory=list)  # tasks, in the order in which they start
    modes: dict[int, Mode] = field(default_factory=dict)  # by task
    free_cores: list[int] = field(init=False)
    free_mb: float = field(init=False)
    queue: Queue | None = None
    starts_s: dict[int, float] = field(default_factory=dict)
    limit_s: float = math.inf
    idle_until_s: float = math.inf
    spans: list[Span] = field(default_factory=list)
    credits: float = 0.0
    _credited_s: float = field(init=False)
    _since_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.spot = self.vm.market == Market.SPOT
        self.state = VmState.STARTING if self.ready_s > self.rented_s else VmState.IDLE
        self.free_cores = list(range(self.vm.vm_type.vcpus - 1, -1, -1))
        self.free_mb = self.vm.vm_type.memory_mb
        self._credited_s = self._since_s = self.rented_s

    @property
    def has_tasks(self) -> bool:
        """Whether Q_j is not empty."""
        return bool(self.running or self.waiting)

    @property
    def longest_s(self) -> float:
        """e_ij of the longest of its tasks; 0 without any."""
        return max((self.runtimes_s[task] for task in (*self.running, *self.waiting)), default=0.0)

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
        """Bill of all finished spans in USD."""
        return self.billed_s * self.vm.usd_hour / SECONDS_PER_HOUR

    def spent_usd(self, now_s: float) -> float:
        """Bill so far in USD."""
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
