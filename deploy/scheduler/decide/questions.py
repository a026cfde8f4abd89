"""Which tasks are asked about now, and when again."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from deploy.model.jobs import TaskKey
from deploy.model.tasks import Phase
from deploy.store.instances import Instance
from deploy.store.tasks import Task


class Questions:
    """When each task is asked about next. A scheduler that was restarted asks all who wait at once.

    Args:
        reconsider_s: tasks that are reconsidered while they run are asked about this often (0: never);
            streams at the end of a batch then.
            Every task is asked about at once when its provider advises to leave or announces the end of one
            of its instances, which no training does.
    """

    def __init__(self, reconsider_s: float) -> None:
        self._reconsider_s = reconsider_s
        self._next_s: dict[TaskKey, float] = {}
        self._running_s: dict[TaskKey, float] = {}
        self._batches: dict[TaskKey, int] = {}
        self._warned: dict[TaskKey, frozenset[str]] = {}

    def waits_due(self, key: TaskKey, not_before_s: float, now_s: float) -> bool:
        """Whether a task without a place, or that waits for others, is asked about now."""
        self._stopped(key)
        self._warned.pop(key, None)
        return not_before_s <= now_s and self._next_s.get(key, -math.inf) <= now_s

    def runs_due(
        self, task: Task, held: Sequence[Instance], reconsidered: bool, streams: bool, now_s: float
    ) -> bool:
        """Whether a task that runs, and is reconsidered now and then or not, is asked about now."""
        if task.phase is not Phase.RUNNING or not held:
            self._stopped(task.key)
            return False
        batches = self._batches.get(task.key, task.executions_done)
        self._batches[task.key] = task.executions_done
        if doomed(held):
            return self._next_s.get(task.key, -math.inf) <= now_s
        warned = _warned(held)
        if warned - self._warned.get(task.key, frozenset()):
            self._warned[task.key] = warned
            return True
        if self._reconsider_s <= 0 or not reconsidered:
            return False
        if self._running_s.setdefault(task.key, now_s + self._reconsider_s) > now_s:
            return False
        return not streams or task.executions_done > batches

    def _stopped(self, key: TaskKey) -> None:
        """It does not run now: what it was told while it ran does not count any more."""
        if self._running_s.pop(key, None) is not None:
            self._next_s.pop(key, None)
        self._batches.pop(key, None)

    def again(self, key: TaskKey, now_s: float, wait_s: float) -> None:
        """It was asked about, and is asked again after this, if it waits then."""
        self._next_s[key] = now_s + wait_s
        if key in self._running_s:
            self._running_s[key] = now_s + self._reconsider_s

    def last_due_s(self, key: TaskKey) -> float:
        """Since when it may be asked about; the earliest time for one that never was."""
        return self._next_s.get(key, -math.inf)

    def placed(self, key: TaskKey) -> None:
        """It has a place: when it loses that it is asked about at once."""
        self._next_s.pop(key, None)

    def keep_only(self, keys: Collection[TaskKey]) -> None:
        """Forget all others."""
        for known in (self._next_s, self._running_s, self._batches, self._warned):
            for key in known.keys() - keys:
                del known[key]


def doomed(held: Sequence[Instance]) -> bool:
    """Whether the end of all of them has been announced: the place is as good as lost."""
    return bool(held) and all(one.notice_s is not None for one in held)


def _warned(held: Sequence[Instance]) -> frozenset[str]:
    return frozenset(
        f"{one.instance_id}:{one.notice_s is not None}"
        for one in held
        if one.rebalance or one.notice_s is not None
    )
