"""What an execution of a bag came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from envs.simulation.bags.model import SECONDS_PER_HOUR, Environment, Vm
from envs.simulation.bags.plan import TIME_TOLERANCE_S
from envs.simulation.bags.rented import RentedVm, RunningTask, Span


class TaskSpan(NamedTuple):
    """A task's time on a core, interrupted by nothing."""

    vm: int
    core: int
    task: int
    start_s: float
    end_s: float


@dataclass
class Counts:
    """How often something happened.

    Attributes:
        hibernations: VMs that hibernated.
        resumes: VMs that resumed.
        migrations: tasks that left a VM because it had hibernated.
        steals: waiting tasks that an idle VM took.
        on_demand: regular on-demand VMs that the scheduler rented.
        checkpoints: recorded.
        recoveries: running tasks that went on from a checkpoint on another VM.
    """

    hibernations: int = 0
    resumes: int = 0
    migrations: int = 0
    steals: int = 0
    on_demand: int = 0
    checkpoints: int = 0
    recoveries: int = 0


@dataclass(frozen=True)
class Outcome:
    """One execution of a bag.

    Attributes:
        scheduler: its name.
        deadline_s: D.
        makespan_s: when the last task ended; math.inf if some never did.
        cost_usd: of all VMs.
        counts: how often something happened.
        vms: what was rented, in the order of renting.
        states: what each VM did.
        tasks: what ran where.
    """

    scheduler: str
    deadline_s: float
    makespan_s: float
    cost_usd: float
    counts: Counts
    vms: tuple[Vm, ...]
    states: tuple[tuple[Span, ...], ...]
    tasks: tuple[TaskSpan, ...]

    @property
    def missed(self) -> bool:
        """Whether a task ended after the deadline, or never."""
        return self.makespan_s > self.deadline_s + TIME_TOLERANCE_S


# What ran where during an execution, kept for its bill and its picture.


class Ledger:
    """Collects the spans of tasks.

    Attributes:
        tasks: what ran where so far; not what runs now.
    """

    def __init__(self) -> None:
        self.tasks: list[TaskSpan] = []

    def ran(self, rented: RentedVm, running: RunningTask, now_s: float) -> None:
        """A task ran on a core since it started or resumed there."""
        if now_s > running.start_s:
            self.tasks.append(TaskSpan(rented.index, running.core, running.task, running.start_s, now_s))

    def outcome(
        self, scheduler: str, deadline_s: float, end_s: float, counts: Counts, vms: Sequence[RentedVm]
    ) -> Outcome:
        """What it all came to; every VM has been given back."""
        return Outcome(
            scheduler=scheduler,
            deadline_s=deadline_s,
            makespan_s=end_s,
            cost_usd=sum(rented.cost_usd for rented in vms),
            counts=counts,
            vms=tuple(rented.vm for rented in vms),
            states=tuple(tuple(rented.spans) for rented in vms),
            tasks=tuple(self.tasks),
        )


# The objective of Teylo 2021: money and makespan, weighted (Eq. 8.1 and 8.8).


def fitness_scales(environment: Environment, d_spot_s: float) -> tuple[float, float]:
    """Weights of one USD and of one second in Eq. 8.1 and 8.8.

    The cost is divided by that of all VMs, at the price of the dearest, during D_spot; the makespan by it.
    """
    vms = environment.spot() or environment.on_demand()
    most_usd = max(vm.usd_hour for vm in vms) / SECONDS_PER_HOUR * d_spot_s * len(vms)
    return environment.omega / most_usd, (1 - environment.omega) / d_spot_s
