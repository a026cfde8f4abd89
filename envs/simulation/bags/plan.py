"""A primary scheduling map: which VM runs which task when, its cost, and whether it can be carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from spotweave.envs.simulation.bags.model import (
    SECONDS_PER_HOUR,
    Bag,
    BagError,
    Environment,
    Market,
    Mode,
    Task,
    Vm,
    VmType,
)

# Cores and memory of one VM over time, filled task by task.

MEMORY_TOLERANCE_MB = 1e-6


class Occupancy:
    """What is placed on a VM of some type. Each core runs its tasks in the order of placing.

    Attributes:
        free_s: [cores] when each core has run all that was placed on it.
    """

    def __init__(self, vm_type: VmType, from_s: float = 0.0) -> None:
        self._memory_mb = vm_type.memory_mb + MEMORY_TOLERANCE_MB
        self._placed: list[tuple[float, float, float]] = []
        self._largest_mb = 0.0
        self.free_s = [from_s] * vm_type.vcpus

    @property
    def end_s(self) -> float:
        """When the last task ends."""
        return max(self.free_s)

    def earliest(self, memory_mb: float, duration_s: float) -> tuple[int, float] | None:
        """The core and the earliest start of one more task behind those placed.

        A core waits where memory lacks, as core 0 for task 5 in Figure 4.1.

        Returns:
            (core, start in s), or None if the VM never has so much memory.
        """
        if memory_mb > self._memory_mb:
            return None
        free = min(self.free_s)
        core = self.free_s.index(free)
        if (len(self.free_s) - 1) * self._largest_mb + memory_mb <= self._memory_mb:
            return core, free
        # Memory becomes free only when a task ends.
        starts = sorted({free, *(end for _, end, _ in self._placed if end > free)})
        start = next(at for at in starts if self._peak_mb(at, at + duration_s) + memory_mb <= self._memory_mb)
        return core, start

    def place(self, core: int, memory_mb: float, start_s: float, end_s: float) -> None:
        """Run a task on a core from `start_s` to `end_s`; it is not checked again."""
        self._placed.append((start_s, end_s, memory_mb))
        self._largest_mb = max(self._largest_mb, memory_mb)
        self.free_s[core] = end_s

    def _peak_mb(self, start_s: float, end_s: float) -> float:
        """The most memory in use at once between two times."""
        during = [placed for placed in self._placed if placed[0] < end_s and placed[1] > start_s]
        # Use grows only where a task starts.
        at = [start_s, *(start for start, _, _ in during if start > start_s)]
        return max(sum(mb for start, end, mb in during if start <= now < end) for now in at)


TIME_TOLERANCE_S = 1e-6


@dataclass(frozen=True)
class PlannedTask:
    """A task's place on a VM."""

    task: Task  # what runs
    core: int  # 0, 1, ... of the VM
    start_s: float  # seconds after the bag was started
    end_s: float  # seconds after the bag was started
    # seconds of work between two checkpoints (Eq. 6.2); None where none are taken
    checkpoint_interval_s: float | None = None


@dataclass(frozen=True)
class PlannedVm:
    """A rented VM and its tasks."""

    vm: Vm  # which one
    tasks: tuple[PlannedTask, ...]  # ordered by start; none for a burstable VM that only stands by
    mode: Mode = Mode.FULL  # BASELINE only for a burstable VM

    @property
    def end_s(self) -> float:
        """When its last task ends: Z_j."""
        return max((placed.end_s for placed in self.tasks), default=0.0)


@dataclass(frozen=True)
class Plan:
    """A primary scheduling map."""

    bag: Bag  # what runs
    vms: tuple[PlannedVm, ...]  # the rented VMs
    deadline_s: float  # D; no task ends later
    d_spot_s: float  # D_spot; no task on a spot VM ends later
    allocation_cycle_s: float  # for so long a VM without tasks is rented

    @property
    def makespan_s(self) -> float:
        """When the last task ends: ZT."""
        return max((vm.end_s for vm in self.vms), default=0.0)

    @property
    def slack_s(self) -> float:
        """Seconds between the last end and the deadline."""
        return self.deadline_s - self.makespan_s

    @property
    def cost_usd(self) -> float:
        """USD of all VMs, billed by the second (sum of Z_j * c_j in Eq. 8.1)."""
        return sum(self.rented_s(vm) * vm.vm.usd_hour for vm in self.vms) / SECONDS_PER_HOUR

    def rented_s(self, vm: PlannedVm) -> float:
        """Seconds that a VM is rented: until its last task ends, one allocation cycle if it has none."""
        return vm.end_s if vm.tasks else self.allocation_cycle_s


def violations(plan: Plan, environment: Environment) -> list[str]:
    """What makes a plan impossible, one line each; empty if it can be carried out.

    Checks that every task runs once and for its duration, one task per core at a time, memory, deadlines and
    how many VMs may run.
    """
    found = []
    runs = Counter(placed.task.name for vm in plan.vms for placed in vm.tasks)
    names = [task.name for task in plan.bag.tasks]
    found += [f"task {name} runs {runs[name]} times, expected once" for name in names if runs[name] != 1]
    found += [f"task {name} is not in the bag" for name in runs.keys() - set(names)]
    found += _crowds(plan.vms, environment)
    for planned in plan.vms:
        limit_s = plan.d_spot_s if planned.vm.market == Market.SPOT else plan.deadline_s
        for placed in planned.tasks:
            found += _misplaced(planned, placed, environment, limit_s)
        found += _overlaps(planned)
    return found


def require_possible(plan: Plan, environment: Environment) -> Plan:
    """The plan itself. Raises BagError with the first violation if it cannot be carried out."""
    found = violations(plan, environment)
    if found:
        raise BagError(f"the plan cannot be carried out: {found[0]}")
    return plan


def _crowds(vms: Iterable[PlannedVm], environment: Environment) -> list[str]:
    rented = [planned.vm for planned in vms]
    found = [f"{vm.name} is rented {n} times" for vm, n in Counter(rented).items() if n > 1]
    most = environment.max_per_type_and_market
    for (name, market), n in Counter((vm.vm_type.name, vm.market) for vm in rented).items():
        if n > most:
            found.append(f"{n} {market} VMs of type {name}, at most {most} may run")
    on_demand = sum(vm.market == Market.ON_DEMAND for vm in rented)
    if on_demand > environment.max_on_demand:
        found.append(f"{on_demand} on-demand VMs, at most {environment.max_on_demand} may run")
    return found


def _misplaced(
    planned: PlannedVm, placed: PlannedTask, environment: Environment, limit_s: float
) -> list[str]:
    vm, where = planned.vm, f"task {placed.task.name} on {planned.vm.name}"
    found = []
    if not 0 <= placed.core < vm.vm_type.vcpus:
        found.append(f"{where}: core {placed.core}, expected 0 to {vm.vm_type.vcpus - 1}")
    if placed.start_s < 0:
        found.append(f"{where}: starts at {placed.start_s:g} s, expected 0 s or later")
    duration_s = environment.duration_s(placed.task, vm, planned.mode)
    if abs(placed.end_s - placed.start_s - duration_s) > TIME_TOLERANCE_S:
        found.append(f"{where}: runs {placed.end_s - placed.start_s:g} s, expected {duration_s:g} s")
    if placed.end_s > limit_s + TIME_TOLERANCE_S:
        found.append(f"{where}: ends at {placed.end_s:g} s, expected {limit_s:g} s at the latest")
    return found


def _overlaps(planned: PlannedVm) -> list[str]:
    """Two tasks at once on a core, or more memory than the VM has."""
    vm = planned.vm
    found = []
    for one in planned.tasks:
        # Both the tasks on a core and the memory in use grow only where a task starts.
        running = [
            other for other in planned.tasks if other.start_s <= one.start_s + TIME_TOLERANCE_S < other.end_s
        ]
        if sum(other.core == one.core for other in running) > 1:
            found.append(f"core {one.core} of {vm.name} runs two tasks at {one.start_s:g} s")
        used_mb = sum(other.task.memory_mb for other in running)
        if used_mb > vm.vm_type.memory_mb + MEMORY_TOLERANCE_MB:
            found.append(
                f"{vm.name}: {used_mb:g} MB in use at {one.start_s:g} s, it has {vm.vm_type.memory_mb:g} MB"
            )
    return found
