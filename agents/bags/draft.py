"""A plan that a planner fills task by task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from spotweave.envs.simulation.bags.model import Bag, Environment, Market, Mode, Task, Vm
from spotweave.envs.simulation.bags.options import ImpossibleDeadlineError
from spotweave.envs.simulation.bags.plan import Occupancy, Plan, PlannedTask, PlannedVm

# How often a task on a spot VM saves its state (Teylo 2021, section 6.1.2).


def checkpoint_count(task: Task, vm: Vm, environment: Environment) -> float:
    """n_ckp = e * ovh / dump (Eq. 6.1): checkpoints that the allowed overhead pays for; no whole number."""
    return task.runtime_s[vm.vm_type.name] * environment.checkpoint_overhead / environment.checkpoint_s(task)


def checkpoint_interval_s(task: Task, vm: Vm, environment: Environment) -> float | None:
    """intv_ckp = e / n_ckp (Eq. 6.2): seconds of work between two checkpoints; None where ovh is 0.

    It is dump / ovh for every type of VM. Where it is longer than the run, no checkpoint is taken.
    """
    count = checkpoint_count(task, vm, environment)
    return task.runtime_s[vm.vm_type.name] / count if count > 0 else None


class Slot(NamedTuple):
    """A VM and a time at which it could run a task."""

    core: int
    start_s: float
    end_s: float


@dataclass(eq=False)
class Draft:
    """A plan in the making."""

    bag: Bag  # what runs
    environment: Environment  # what may be rented
    deadline_s: float  # D
    d_spot_s: float  # D_spot
    rented: list[Vm] = field(default_factory=list)  # the selected VMs (A in Algorithm 3), in order of renting
    _occupancy: dict[Vm, Occupancy] = field(default_factory=dict)
    _placed: dict[Vm, list[PlannedTask]] = field(default_factory=dict)
    _mode: dict[Vm, Mode] = field(default_factory=dict)

    def limit_s(self, vm: Vm) -> float:
        """D_spot on a spot VM, else D."""
        return self.d_spot_s if vm.market == Market.SPOT else self.deadline_s

    def slot(self, task: Task, vm: Vm, mode: Mode = Mode.FULL) -> Slot | None:
        """The earliest slot behind what the VM already runs; None where its memory is too small."""
        duration_s = self.environment.duration_s(task, vm, mode)
        occupancy = self._occupancy.get(vm)
        earliest = (occupancy or Occupancy(vm.vm_type)).earliest(task.memory_mb, duration_s)
        return None if earliest is None else Slot(*earliest, earliest[1] + duration_s)

    def fits(self, task: Task, vm: Vm, mode: Mode = Mode.FULL) -> Slot | None:
        """The slot, if the task ends before the VM's limit (check_schedule, Algorithm 2)."""
        slot = self.slot(task, vm, mode)
        return slot if slot is not None and slot.end_s < self.limit_s(vm) else None

    def rent(self, vm: Vm, mode: Mode = Mode.FULL) -> None:
        """Rent a VM; one that is rented already stays as it is."""
        if vm not in self._occupancy:
            self.rented.append(vm)
            self._occupancy[vm] = Occupancy(vm.vm_type)
            self._placed[vm] = []
            self._mode[vm] = mode

    def schedule(self, task: Task, vm: Vm, slot: Slot, mode: Mode = Mode.FULL) -> None:
        """Run a task there, on a VM that is rented if it is not yet; on spot VMs with checkpoints."""
        self.rent(vm, mode)
        interval_s = checkpoint_interval_s(task, vm, self.environment) if vm.market == Market.SPOT else None
        self._occupancy[vm].place(slot.core, task.memory_mb, slot.start_s, slot.end_s)
        self._placed[vm].append(PlannedTask(task, *slot, interval_s))

    def keep(self, vm: Vm, placed: PlannedTask) -> None:
        """Take over a task as another plan has placed it."""
        self.rent(vm)
        self._occupancy[vm].place(placed.core, placed.task.memory_mb, placed.start_s, placed.end_s)
        self._placed[vm].append(placed)

    def remove(self, vm: Vm, placed: PlannedTask) -> None:
        """Take a task away; the others keep their times, and nothing more may be scheduled on the VM."""
        self._placed[vm].remove(placed)

    def schedule_on_demand(self, task: Task) -> None:
        """Run a task on the cheapest regular on-demand VM that ends it in time: a rented one, else a new one.

        Raises:
            ImpossibleDeadlineError: if there is none.
        """
        vms = sorted(self.environment.on_demand(), key=lambda vm: (vm not in self._occupancy, vm.usd_hour))
        for vm in vms:
            if vm not in self._occupancy and not self.on_demand_left():
                break
            slot = self.fits(task, vm)
            if slot is not None:
                self.schedule(task, vm, slot)
                return
        raise ImpossibleDeadlineError(f"no VM is left that ends task {task.name} by {self.deadline_s:g} s")

    def on_demand_left(self) -> int:
        """How many more on-demand VMs may run."""
        on_demand = sum(vm.market == Market.ON_DEMAND for vm in self.rented)
        return self.environment.max_on_demand - on_demand

    def plan(self, standby: Iterable[Vm] = ()) -> Plan:
        """The plan: all VMs with tasks, and those on standby; spot VMs first, burstable ones last."""
        kept = set(standby)
        kind = [(vm.market != Market.SPOT, vm.vm_type.burstable, vm.vm_type.name) for vm in self.rented]
        ordered = sorted(zip(kind, self.rented, strict=True), key=lambda pair: (pair[0], pair[1].number))
        vms = tuple(
            PlannedVm(vm, tuple(sorted(self._placed[vm], key=lambda p: (p.start_s, p.core))), self._mode[vm])
            for _, vm in ordered
            if self._placed[vm] or vm in kept
        )
        return Plan(self.bag, vms, self.deadline_s, self.d_spot_s, self.environment.allocation_cycle_s)
