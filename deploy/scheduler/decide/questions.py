"""Which tasks are asked about now, and when again."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence

from deploy.model.instances import Offer
from deploy.model.jobs import TaskKey
from deploy.model.tasks import Phase
from deploy.model.workflows import Workflow
from deploy.scheduler.retries.quarantine import Quarantine
from deploy.scheduler.settings import SchedulerSettings
from deploy.scheduler.snapshot.estimates import DEFAULT_STANDARD_S, Learned
from deploy.scheduler.snapshot.rounds import DEFAULT_EPOCH_S
from deploy.store.instances import Instance
from deploy.store.store import Store
from deploy.store.tasks import Task, Waiting
from envs.simulation.guards.safety import spare_s


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


# Which waiting tasks have a deadline that the safety net may have to see to now.


class Urgency:
    """Finds them among ten thousand without reading a spec twice.

    Args:
        store: of the deployment.
        settings: of the loop.
        learned: how long jobs of a name took.
        quarantine: guards what is read of each job.
    """

    def __init__(
        self, store: Store, settings: SchedulerSettings, learned: Learned, quarantine: Quarantine
    ) -> None:
        self._store, self._settings = store, settings
        self._learned, self._quarantine = learned, quarantine
        self._ends: dict[str, tuple[float, float] | None] = {}
        """By job: when its deadline is, and its standard time; None without a deadline."""
        self._safe_for = (0.0, 0.0)
        self._safe_s: dict[str, float] = {}
        """By job: until when it cannot be urgent while on-demand capacity starts so soon and is so fast."""
        self._patient: set[TaskKey] = set()
        """Those who had time left in the pass before and are not to be tried yet."""

    def urgent(self, rows: Sequence[Waiting], offers: Sequence[Offer], now_s: float) -> list[Waiting]:
        """Those whose last safe moment has come, the nearest deadline first."""
        self._look_up_ends({row.key.job_id for row in rows} - self._ends.keys())
        sure = [offer for offer in offers if offer.market != "spot"]
        start_s = max((offer.launch_s for offer in sure), default=0.0) + self._settings.set_up_s
        slowest = min((offer.speed for offer in sure), default=1.0)
        found = []
        for row in self._may_be_urgent(rows, start_s, slowest, now_s):
            end = self._ends[row.key.job_id]
            if end is not None and self._spare_s(end, row.saved, start_s, slowest, now_s) <= 0:
                found.append((end[0], row))
        return [row for _, row in sorted(found)]

    def cannot_wait(
        self, backing_off: Sequence[Waiting], offers: Sequence[Offer], now_s: float
    ) -> list[Waiting]:
        """Those whose last safe moment comes before their back-off ends: they are tried at that moment.

        If that fails too they wait like all others, lest a fault that lasts uses up all their attempts.
        """
        urgent = self.urgent(backing_off, offers, now_s) if backing_off else []
        found = [row for row in urgent if row.key in self._patient]
        self._patient = {row.key for row in backing_off} - {row.key for row in urgent}
        return found

    def keep_only(self, job_ids: Collection[str]) -> None:
        """Forget all others."""
        for job_id in self._ends.keys() - job_ids:
            del self._ends[job_id]
            self._safe_s.pop(job_id, None)

    def _may_be_urgent(
        self, rows: Sequence[Waiting], start_s: float, slowest: float, now_s: float
    ) -> list[Waiting]:
        """Those that would be if none of their work were done: that moment is computed once for each job."""
        if self._safe_for != (start_s, slowest):
            self._safe_for, self._safe_s = (start_s, slowest), {}
        for job_id in self._ends.keys() - self._safe_s.keys():
            end = self._ends[job_id]
            safe_s = math.inf if end is None else self._spare_s(end, 0.0, start_s, slowest, 0.0)
            self._safe_s[job_id] = safe_s - 1.0  # sooner by more than all rounding
        return [row for row in rows if self._safe_s[row.key.job_id] <= now_s]

    def _spare_s(
        self, end: tuple[float, float], saved: float, start_s: float, slowest: float, now_s: float
    ) -> float:
        """Seconds for which a task whose job ends so can be left to later passes."""
        needs_s = start_s + end[1] * (1 - saved) / slowest
        spare = spare_s(end[0] - now_s, needs_s, self._settings.guards.rules())
        return spare - 2 * self._settings.period_s

    def _look_up_ends(self, job_ids: Collection[str]) -> None:
        """Of jobs that were not looked at before, of which there may be ten thousand."""
        for job_id, submitted_s, spec in self._store.jobs.specs(job_ids):
            self._ends[job_id] = None
            with self._quarantine.guard(job_id, "looking up its deadline"):
                self._ends[job_id] = self._end_of(submitted_s, spec)

    def _end_of(self, submitted_s: float, text: str) -> tuple[float, float] | None:
        # Not as a `JobSpec`: that takes ten times as long.
        spec = json.loads(text)
        work = spec["work"]
        if work.get("deadline_s") is None:
            return None
        if work["kind"] == "flower":
            took_s = work["rounds"] * (work["epoch_s"] or DEFAULT_EPOCH_S)
        elif work["kind"] == "bag":
            took_s = 60.0 * max(task["minutes"] for task in work["tasks"])
        elif work["kind"] == "workflow":
            took_s = Workflow.model_validate_json(json.dumps(work)).standard_s
        else:
            learned_s = self._learned.standard_s(spec["name"], work["kind"], "main")
            took_s = work["standard_s"] or learned_s or DEFAULT_STANDARD_S
        return submitted_s + work["deadline_s"], took_s
