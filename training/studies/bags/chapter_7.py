"""What Tables 7.4 and 7.5 of Teylo 2021 start from, and what they print."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from agents.bags.draft import Draft
from envs.simulation.bags.cases import published_job
from envs.simulation.bags.model import TABLE_7_1, Environment, Market, Vm
from envs.simulation.bags.options import compute_d_spot
from envs.simulation.bags.plan import Plan

ENVIRONMENT = Environment(TABLE_7_1)
DEADLINE_S = 2100.0
SEEDS = 30


class Published(NamedTuple):
    """A row of Table 7.5: one scenario. `saving` is the per cent less than on demand."""

    hibernations: float
    on_demand: float
    makespan: str
    usd: float
    saving: float


@dataclass(frozen=True)
class Job:
    """A job of both tables.

    Attributes:
        vms: c3.large, c4.large, c3.xlarge, c4.xlarge: how many of each (Table 7.4).
        makespan: without hibernation, minutes and seconds.
        spot_usd: without hibernation.
        on_demand_usd: of the same VMs on demand.
        scenarios: sc_1 to sc_7.
    """

    vms: tuple[int, int, int, int]
    makespan: str
    spot_usd: float
    on_demand_usd: float
    scenarios: tuple[Published, ...]


JOBS = {
    "J60": Job(
        (2, 2, 0, 2),
        "20:08",
        0.08,
        0.32,
        (
            Published(1.33, 1.33, "25:13", 0.146, 54.52),
            Published(4.33, 3.33, "34:24", 0.256, 19.79),
            Published(1.67, 1.00, "24:39", 0.087, 72.92),
            Published(2.02, 1.33, "30:40", 0.145, 54.69),
            Published(2.00, 0.67, "24:31", 0.090, 71.77),
            Published(2.00, 1.00, "30:45", 0.097, 69.79),
            Published(2.00, 1.67, "32:02", 0.093, 70.94),
        ),
    ),
    "J80": Job(
        (2, 3, 1, 2),
        "19:49",
        0.10,
        0.37,
        (
            Published(2.57, 1.00, "27:11", 0.197, 46.82),
            Published(6.33, 4.67, "34:56", 0.284, 23.12),
            Published(2.67, 1.30, "31:53", 0.117, 68.47),
            Published(4.00, 2.33, "32:41", 0.140, 62.09),
            Published(4.33, 3.33, "33:26", 0.213, 42.34),
            Published(2.67, 1.33, "26:58", 0.153, 58.56),
            Published(2.67, 1.33, "29:13", 0.123, 66.67),
        ),
    ),
    "J100": Job(
        (2, 4, 1, 3),
        "18:43",
        0.13,
        0.43,
        (
            Published(2.33, 0.67, "26:42", 0.167, 61.77),
            Published(7.67, 3.67, "30:14", 0.302, 30.66),
            Published(1.33, 1.00, "26:08", 0.150, 65.61),
            Published(3.40, 1.89, "34:12", 0.189, 56.64),
            Published(3.00, 2.70, "32:59", 0.223, 48.78),
            Published(4.67, 2.00, "28:54", 0.177, 59.48),
            Published(3.67, 1.33, "32:31", 0.160, 63.30),
        ),
    ),
    "ED200": Job(
        (5, 5, 2, 4),
        "31:27",
        0.33,
        0.98,
        (
            Published(3.00, 3.33, "32:19", 0.430, 56.12),
            Published(8.33, 7.67, "33:03", 0.657, 32.99),
            Published(2.33, 4.00, "34:43", 0.353, 63.95),
            Published(5.33, 4.93, "34:22", 0.413, 57.82),
            Published(4.67, 5.00, "33:00", 0.442, 54.84),
            Published(4.00, 4.67, "34:01", 0.523, 46.60),
            Published(4.33, 3.00, "33:15", 0.410, 58.16),
        ),
    ),
}


def starting_plan(name: str) -> Plan:
    """A job on the spot VMs that Table 7.4 prints, each task where it ends soonest.

    All types run a task as long as Table 7.2 says, which names no type: only so do the printed VMs need about
    the printed makespan.
    """
    bag = published_job(name, TABLE_7_1)
    tasks = [
        replace(task, runtime_s=dict.fromkeys(task.runtime_s, task.runtime_s["c3.large"]))
        for task in bag.tasks
    ]
    bag = replace(bag, tasks=tuple(tasks))
    draft = Draft(bag, ENVIRONMENT, DEADLINE_S, compute_d_spot(bag.tasks, ENVIRONMENT, DEADLINE_S))
    by_name = {vm_type.name: vm_type for vm_type in TABLE_7_1}
    order = ("c3.large", "c4.large", "c3.xlarge", "c4.xlarge")
    vms = [
        Vm(by_name[vm_type], Market.SPOT, number)
        for vm_type, count in zip(order, JOBS[name].vms, strict=True)
        for number in range(1, count + 1)
    ]
    for task in bag.tasks:
        slots = [(slot, vm) for vm in vms if (slot := draft.slot(task, vm)) is not None]
        slot, vm = min(slots, key=lambda found: found[0].end_s)
        draft.schedule(task, vm, slot)
    return draft.plan()


def clock(seconds: float) -> str:
    """Minutes and seconds, as the tables print them."""
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"
