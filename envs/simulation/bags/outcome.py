"""What an execution of a bag came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from envs.simulation.bags.model import Vm
from envs.simulation.bags.plan import TIME_TOLERANCE_S
from envs.simulation.bags.rented import Span


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
