"""Small bags, VMs and worlds whose executions can be worked by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from spotweave.envs.simulation.bags.cases import Changes
from spotweave.envs.simulation.bags.execution import Answer, Execution, Question, Wait
from spotweave.envs.simulation.bags.fleet import Fleet
from spotweave.envs.simulation.bags.model import Bag, Environment, Market, Mode, Task, Vm, VmType
from spotweave.envs.simulation.bags.plan import Plan, PlannedTask, PlannedVm

# 0.36 USD per hour is 0.0001 USD per second.
ONE_CORE = VmType("one", 1, 10 / 1024, 0.36, 0.036)
TWO_CORES = VmType("two", 2, 10 / 1024, 0.72, 0.072)
# Baseline 20 %; 24 credits per hour are 1/150 per second.
BURST = VmType("burst", 2, 10 / 1024, 0.36, None, burstable=True, cpu_credit_rate_hour=24.0, baseline=0.2)
TYPES = (ONE_CORE, TWO_CORES, BURST)


def environment(**parameters: float) -> Environment:
    """alpha 100 s, allocation cycles of 1,000 s and checkpoints of 5 s, unless told otherwise."""
    usual = {"migration_overhead_s": 100.0, "allocation_cycle_s": 1000.0, "dump_s": 5.0, "dump_s_per_mb": 0.0}
    return Environment(TYPES, **{**usual, **parameters})  # type: ignore[arg-type]


def tasks_of(*runtimes_s: float, memory_mb: float = 1.0) -> tuple[Task, ...]:
    """Tasks "0", "1", ... that take as long on every type."""
    return tuple(
        Task(str(number), "run", memory_mb, {vm_type.name: runtime_s for vm_type in TYPES})
        for number, runtime_s in enumerate(runtimes_s)
    )


def plan_of(
    tasks: Sequence[Task],
    vms: Mapping[Vm, Sequence[int]],
    deadline_s: float = 10_000.0,
    interval_s: float | None = None,
) -> Plan:
    """Each VM runs its tasks in this order; those on spot VMs with a checkpoint after each interval."""
    planned = []
    for vm, numbers in vms.items():
        mode = Mode.BASELINE if vm.vm_type.burstable else Mode.FULL
        placed = tuple(
            PlannedTask(tasks[number], 0, float(place), float(place + 1), interval_s)
            for place, number in enumerate(numbers)
        )
        planned.append(PlannedVm(vm, placed, mode))
    return Plan(Bag(1, "case", "", tuple(tasks)), tuple(planned), deadline_s, deadline_s, 1000.0)


def spot(vm_type: VmType, number: int = 1) -> Vm:
    return Vm(vm_type, Market.SPOT, number)


def on_demand(vm_type: VmType) -> Vm:
    """The first on-demand VM of a type."""
    return Vm(vm_type, Market.ON_DEMAND, 1)


def at(**times_s: Sequence[float]) -> Changes:
    """The VMs of a type hibernate at its first time, resume at the second, and so on."""

    def changes_s(vm_type: str) -> Iterator[float]:
        return iter(times_s.get(vm_type, ()))

    return changes_s


class Told:
    """A scheduler that answers what a function says, and keeps the questions."""

    name = "told"

    def __init__(self, answer: Callable[[Question, Fleet], Answer] = lambda question, fleet: Wait()) -> None:
        self._answer = answer
        self.asked: list[tuple[float, Question]] = []

    def decide(self, question: Question, fleet: Fleet) -> Answer:
        self.asked.append((fleet.now_s, question))
        return self._answer(question, fleet)


def ends_s(execution: Execution) -> dict[int, float]:
    """When each task stopped running for the last time, by its index."""
    outcome = execution.run()
    return {span.task: span.end_s for span in sorted(outcome.tasks, key=lambda span: span.end_s)}


# Small bags and environments: by hand, and drawn.


SLOW = VmType("slow", 1, 4.0, 0.9, 0.3)
FAST = VmType("fast", 1, 4.0, 1.8, 0.6)
SMALL_BURST = VmType("burst", 2, 4.0, 0.8, None, burstable=True, cpu_credit_rate_hour=24.0, baseline=0.5)


DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "count": st.integers(4, 40),
    "longest_s": st.integers(20, 400),
    "stretch": st.floats(1.1, 6.0),
    "rates": st.tuples(st.floats(0, 30), st.floats(0, 30)),
    "seed": st.integers(0, 10_000),
}
"""A bag's tasks, a deadline, and how often spot VMs hibernate and resume."""


def bag_of(*tasks: tuple[float, float], speeds: dict[str, float] | None = None) -> Bag:
    """A bag of (memory in MB, run time in s on "slow"); "fast" is twice as fast unless `speeds` says else."""
    speeds = speeds or {"slow": 1.0, "fast": 2.0, "burst": 1.0}
    return Bag(
        1,
        "by hand",
        "",
        tuple(
            Task(str(number), "true", memory_mb, {name: runtime_s / speed for name, speed in speeds.items()})
            for number, (memory_mb, runtime_s) in enumerate(tasks)
        ),
    )


@st.composite
def environments(draw: st.DrawFn) -> Environment:
    """One to three types: spot and on-demand, of which one may be burstable; memory is often scarce."""
    types = [
        VmType(
            name,
            draw(st.integers(1, 3)),
            draw(st.sampled_from((1.0, 2.0, 4.0))),
            draw(st.floats(0.5, 2.0)),
            draw(st.floats(0.1, 0.5)),
        )
        for name in draw(st.sampled_from((("slow",), ("slow", "fast"))))
    ]
    if draw(st.booleans()):
        types.append(SMALL_BURST)
    return Environment(
        tuple(types),
        max_per_type_and_market=draw(st.integers(1, 3)),
        max_on_demand=draw(st.integers(1, 4)),
        migration_overhead_s=draw(st.sampled_from((0.0, 30.0))),
        checkpoint_overhead=draw(st.sampled_from((0.1, 0.25))),
    )


@st.composite
def bags(draw: st.DrawFn, most_tasks: int = 8) -> Bag:
    """Tasks of 1 to 60 s and 0 to 1000 MB: each fits on every VM, two at once often do not."""
    tasks = draw(
        st.lists(
            st.tuples(st.integers(0, 1000).map(float), st.integers(1, 60).map(float)),
            min_size=1,
            max_size=most_tasks,
        )
    )
    return bag_of(*tasks)
