"""What ran where during an execution, kept for its bill and its picture."""

from __future__ import annotations

from collections.abc import Sequence

from envs.simulation.bags.outcome import Counts, Outcome, TaskSpan
from envs.simulation.bags.rented import RentedVm
from envs.simulation.bags.running import RunningTask


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
