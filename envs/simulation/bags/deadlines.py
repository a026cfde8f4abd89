"""D_spot: until when a spot VM may work so that its tasks can run elsewhere (Teylo 2021, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence

from envs.simulation.bags.errors import BagError
from envs.simulation.bags.model import Environment, Task, VmType
from envs.simulation.bags.occupancy import Occupancy


class ImpossibleDeadlineError(BagError):
    """A planner found no plan that keeps the deadline."""


def compute_d_spot(tasks: Sequence[Task], environment: Environment, deadline_s: float) -> float:
    """D_spot = max(D - (mkp_w + alpha), 0) in seconds.

    mkp_w is the makespan of the ceil(|B| / max_ondemand) longest tasks on the slowest VM: the worst case that
    an on-demand VM may have to take over. The slowest is the regular type on which they take longest.
    """
    count = -(-len(tasks) // environment.max_on_demand)
    longest = sorted(tasks, key=lambda task: -max(task.runtime_s.values()))[:count]
    types = [vm_type for vm_type in environment.types if not vm_type.burstable]
    worst_s = max((_makespan_s(longest, vm_type) for vm_type in types), default=0.0)
    return max(deadline_s - (worst_s + environment.migration_overhead_s), 0.0)


def _makespan_s(tasks: Sequence[Task], vm_type: VmType) -> float:
    """Seconds that tasks take on one VM, longest first; a task too large for its memory is left out."""
    occupancy = Occupancy(vm_type)
    for task in sorted(tasks, key=lambda task: -task.runtime_s[vm_type.name]):
        runtime_s = task.runtime_s[vm_type.name]
        slot = occupancy.earliest(task.memory_mb, runtime_s)
        if slot is not None:
            core, start_s = slot
            occupancy.place(core, task.memory_mb, start_s, start_s + runtime_s)
    return occupancy.end_s
