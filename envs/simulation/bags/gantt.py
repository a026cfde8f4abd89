"""An execution as a timeline for pictures: which task ran on which VM, and when VMs hibernated."""

from __future__ import annotations

import numpy as np

from envs.simulation.bags.execution import Execution
from envs.simulation.bags.rented import RentedVm, VmState
from envs.simulation.bags.slots import Slots
from envs.simulation.series import StepSeries
from envs.simulation.snapshot import Category
from envs.simulation.timeline import Segment, Timeline


def timeline_of(execution: Execution, slots: Slots) -> Timeline:
    """What happened so far. Jobs are the tasks, clusters the places of VMs; whole seconds."""
    fleet = execution.fleet
    places, now_s = slots.history(fleet), fleet.now_s
    ran = [(span.task, places[span.vm], span.start_s, span.end_s) for span in fleet.ledger.tasks]
    for vm in fleet.vms:
        if vm.state == VmState.BUSY:
            ran += [(task, places[vm.index], one.start_s, now_s) for task, one in vm.running.items()]
    segments = [
        Segment(task, place, start_s, end_s, 1, int(Category.GENERAL), end_s > fleet.deadline_s)
        for task, place, start_s, end_s in ran
        if end_s > start_s
    ]
    rows = range(len(slots.vms))
    cores = [float(vm.vm_type.vcpus) for vm in slots.vms]
    prices = [vm.usd_hour / vm.vm_type.vcpus for vm in slots.vms]
    return Timeline(
        cluster_names=tuple(vm.name for vm in slots.vms),
        time_unit="s",
        end=max(1.0, now_s),
        segments=tuple(sorted(segments, key=lambda segment: segment.start)),
        capacity=tuple(_constant(cores[row]) for row in rows),
        used=tuple(_used([one for one in segments if one.cluster == row]) for row in rows),
        price_usd_hour=tuple(_constant(prices[row]) for row in rows),
        interruptions=tuple(sorted(_hibernations(fleet.vms, places))),
    )


def _constant(value: float) -> StepSeries:
    return StepSeries(np.zeros(1, np.int64), np.full(1, value))


def _used(segments: list[Segment]) -> StepSeries:
    """Cores in use over time."""
    changes: dict[int, int] = {0: 0}
    for segment in segments:
        for time_s, change in ((int(segment.start), 1), (int(segment.end), -1)):
            changes[time_s] = changes.get(time_s, 0) + change
    times = sorted(changes)
    return StepSeries(np.array(times, np.int64), np.cumsum([changes[time] for time in times]).astype(float))


def _hibernations(vms: list[RentedVm], places: list[int]) -> list[tuple[float, int]]:
    return [
        (span.end_s, places[vm.index])
        for vm in vms
        for span, following in zip(vm.spans, [*(one.state for one in vm.spans[1:]), vm.state], strict=True)
        if following == VmState.HIBERNATED and span.state != VmState.HIBERNATED
    ]
