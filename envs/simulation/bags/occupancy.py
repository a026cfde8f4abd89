"""Cores and memory of one VM over time, filled task by task."""

from __future__ import annotations

from envs.simulation.bags.model import VmType

MEMORY_TOLERANCE_MB = 1e-6


class Occupancy:
    """What is placed on a VM of some type. Each core runs its tasks in the order of placing.

    Attributes:
        free_s: [cores] when each core has run all that was placed on it.
    """

    def __init__(self, vm_type: VmType, from_s: float = 0.0) -> None:
        self._memory_mb = vm_type.memory_mb + MEMORY_TOLERANCE_MB
        self._placed: list[tuple[float, float, float]] = []
        self._largest_mb = 0.0
        self.free_s = [from_s] * vm_type.vcpus

    @property
    def end_s(self) -> float:
        """When the last task ends."""
        return max(self.free_s)

    def earliest(self, memory_mb: float, duration_s: float) -> tuple[int, float] | None:
        """The core and the earliest start of one more task behind those placed.

        A core waits where memory lacks, as core 0 for task 5 in Figure 4.1.

        Returns:
            (core, start in s), or None if the VM never has so much memory.
        """
        if memory_mb > self._memory_mb:
            return None
        free = min(self.free_s)
        core = self.free_s.index(free)
        if (len(self.free_s) - 1) * self._largest_mb + memory_mb <= self._memory_mb:
            return core, free
        # Memory becomes free only when a task ends.
        starts = sorted({free, *(end for _, end, _ in self._placed if end > free)})
        start = next(at for at in starts if self._peak_mb(at, at + duration_s) + memory_mb <= self._memory_mb)
        return core, start

    def place(self, core: int, memory_mb: float, start_s: float, end_s: float) -> None:
        """Run a task on a core from `start_s` to `end_s`; it is not checked again."""
        self._placed.append((start_s, end_s, memory_mb))
        self._largest_mb = max(self._largest_mb, memory_mb)
        self.free_s[core] = end_s

    def _peak_mb(self, start_s: float, end_s: float) -> float:
        """The most memory in use at once between two times."""
        during = [placed for placed in self._placed if placed[0] < end_s and placed[1] > start_s]
        # Use grows only where a task starts.
        at = [start_s, *(start for start, _, _ in during if start > start_s)]
        return max(sum(mb for start, end, mb in during if start <= now < end) for now in at)
