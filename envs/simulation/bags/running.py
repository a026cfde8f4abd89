"""A task on a core: how far it is, what its checkpoints have saved, and when it ends."""

from __future__ import annotations

import math


class RunningTask:
    """One task from its start on a VM until it ends there or is moved away.

    After each `interval_s` of work a checkpoint stops the task for `dump_s`, unless it ends there anyway.

    Args:
        task: index in the bag.
        core: where it runs.
        work_s: seconds of work left when it starts, at full speed.
        interval_s: seconds of work between two checkpoints; math.inf for none.
        dump_s: seconds that a checkpoint takes.
        speed: share of a core, 0 to 1.
        now_s: when it starts.
    """

    __slots__ = (
        "_dump_s",
        "_elapsed_s",
        "_interval_s",
        "_since_s",
        "checkpoints",
        "core",
        "duration_s",
        "finish_s",
        "speed",
        "start_s",
        "task",
        "work_s",
    )

    def __init__(
        self,
        task: int,
        core: int,
        work_s: float,
        interval_s: float,
        dump_s: float,
        speed: float,
        now_s: float,
    ) -> None:
        self.task, self.core, self.work_s, self.speed = task, core, work_s, speed
        self._interval_s, self._dump_s = interval_s, dump_s
        self.checkpoints = checkpoints_of(work_s, interval_s)
        self.duration_s = work_s + self.checkpoints * dump_s
        self._elapsed_s, self._since_s, self.start_s = 0.0, now_s, now_s
        self.finish_s = now_s + self.duration_s / speed

    def pause(self, now_s: float) -> None:
        """Its VM hibernates: this is its break-point."""
        self._elapsed_s += (now_s - self._since_s) * self.speed
        self.finish_s = math.inf

    def resume(self, now_s: float, speed: float) -> None:
        """Go on from the break-point at some speed."""
        self._since_s, self.start_s, self.speed = now_s, now_s, speed
        self.finish_s = now_s + (self.duration_s - self._elapsed_s) / speed

    def left_s(self, now_s: float) -> float:
        """Seconds that it goes on running from now, or from when it resumes."""
        if self.finish_s != math.inf:
            return self.finish_s - now_s
        return (self.duration_s - self._elapsed_s) / self.speed

    def saved(self, now_s: float) -> tuple[int, float]:
        """Checkpoints completed so far, and the seconds of work that the latest one holds."""
        elapsed_s = self._elapsed_s
        if self.finish_s != math.inf:
            elapsed_s += (now_s - self._since_s) * self.speed
        if self.checkpoints == 0:
            return 0, 0.0
        completed = min(int(elapsed_s / (self._interval_s + self._dump_s)), self.checkpoints)
        return completed, completed * self._interval_s


def checkpoints_of(work_s: float, interval_s: float) -> int:
    """How many checkpoints are taken in so much work, none at its very end."""
    return max(math.ceil(work_s / interval_s) - 1, 0)
