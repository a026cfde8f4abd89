"""MinMin, MaxMin and Greedy on spot VMs (Teylo 2021, section 9.2; after Maheswaran et al. 1999)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from spotweave.envs.simulation.bags.model import Bag, Environment, Market, Mode, Task, Vm, VmType
from spotweave.envs.simulation.bags.options import ImpossibleDeadlineError, compute_d_spot
from spotweave.envs.simulation.bags.plan import Occupancy, Plan, PlannedTask, PlannedVm
from spotweave.envs.simulation.series import Floats


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


def _by_completion(draft: Draft, best: Callable[[Floats], np.intp]) -> Plan:
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


# Weighted round robin over VMs (Teylo 2021, Eq. 6.3).


def computing_power(vm_type: VmType, bag: Bag) -> float:
    """Tasks of the bag per second that all cores of a VM run.

    The thesis takes Gflops of a benchmark; env.json has none, and the bag's own run times say the same where
    they follow the benchmark.
    """
    return vm_type.vcpus * len(bag.tasks) / sum(task.runtime_s[vm_type.name] for task in bag.tasks)


class WeightedRoundRobin:
    """Takes types in turn, each as often as its weight says: power over price (Eq. 6.3).

    Each turn every type gains its weight; the one that gained most is taken and pays the sum of all weights.
    Over many turns each type is taken in proportion to its weight, and never twice in a row without need.

    Args:
        vms: those to take from.
        bag: whose run times give the power.
    """

    def __init__(self, vms: Iterable[Vm], bag: Bag) -> None:
        self._left: dict[VmType, list[Vm]] = {}
        for vm in vms:
            self._left.setdefault(vm.vm_type, []).append(vm)
        self._weight = {
            vm_type: computing_power(vm_type, bag) / left[0].usd_hour for vm_type, left in self._left.items()
        }
        self._gained = dict.fromkeys(self._left, 0.0)

    def next(self) -> Vm | None:
        """The next VM in turn, not yet taken away (get_wrr_VM); None if none is left."""
        types = [vm_type for vm_type, left in self._left.items() if left]
        if not types:
            return None
        for vm_type in types:
            self._gained[vm_type] += self._weight[vm_type]
        chosen = max(types, key=lambda vm_type: self._gained[vm_type])
        self._gained[chosen] -= sum(self._weight[vm_type] for vm_type in types)
        return self._left[chosen][0]

    def take(self, vm: Vm) -> None:
        """Take a VM away: it is rented now."""
        self._left[vm.vm_type].remove(vm)


# HADS' primary scheduling heuristic (Teylo 2021, Algorithm 3).


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


# A plan that a planner fills task by task.


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
