"""First come, first served on the cores and the memory of one VM."""

from __future__ import annotations

import heapq

from envs.simulation.bags.plan import MEMORY_TOLERANCE_MB


class Queue:
    """When tasks end that a VM takes in order: each waits for a core and for its memory (Figure 4.1).

    Args:
        cores: tasks that run at once.
        memory_mb: for all of them.
        start_s: no task starts earlier.
        running: (end in s, memory in MB) of the tasks that run already.
    """

    __slots__ = ("_busy", "_cores", "_free_mb", "end_s", "start_s")

    def __init__(
        self, cores: int, memory_mb: float, start_s: float, running: list[tuple[float, float]]
    ) -> None:
        self._cores = cores
        self._busy = running
        self._free_mb = memory_mb + MEMORY_TOLERANCE_MB - sum(used_mb for _, used_mb in running)
        self.start_s = start_s
        self.end_s = max((end_s for end_s, _ in running), default=start_s)
        heapq.heapify(self._busy)

    def append(self, duration_s: float, memory_mb: float, now_s: float = 0.0) -> float:
        """Take one more task, now or later; its start in s. It must fit in the VM's memory alone."""
        busy, start_s = self._busy, max(self.start_s, now_s)
        while len(busy) >= self._cores or memory_mb > self._free_mb:
            end_s, used_mb = heapq.heappop(busy)
            self._free_mb += used_mb
            start_s = max(start_s, end_s)
        heapq.heappush(busy, (start_s + duration_s, memory_mb))
        self._free_mb -= memory_mb
        self.start_s = start_s
        self.end_s = max(self.end_s, start_s + duration_s)
        return start_s

    def copy(self) -> Queue:
        """An independent one in the same state."""
        other = Queue.__new__(Queue)
        other._cores, other._free_mb, other._busy = self._cores, self._free_mb, self._busy.copy()
        other.start_s, other.end_s = self.start_s, self.end_s
        return other
