"""Small bags and environments: by hand, and drawn."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from envs.simulation.bags.model import Bag, Environment, Task, VmType

SLOW = VmType("slow", 1, 4.0, 0.9, 0.3)
FAST = VmType("fast", 1, 4.0, 1.8, 0.6)
BURST = VmType("burst", 2, 4.0, 0.8, None, burstable=True, cpu_credit_rate_hour=24.0, baseline=0.5)


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
            Task(
                str(number),
                "true",
                memory_mb,
                {name: runtime_s / speed for name, speed in speeds.items()},
            )
            for number, (memory_mb, runtime_s) in enumerate(tasks)
        ),
    )


@st.composite
def environments(draw: st.DrawFn, most_vms: int = 3) -> Environment:
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
        types.append(BURST)
    return Environment(
        tuple(types),
        max_per_type_and_market=draw(st.integers(1, most_vms)),
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
