"""How long jobs of a name took before: the standard time of those that do not say theirs."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from statistics import median

from deploy.model.jobs import Flower, JobState, SparkBatch, TaskKey
from deploy.store.instances import Instance
from deploy.store.jobs import Job
from deploy.store.store import Store
from deploy.store.tasks import Task

LOOK_S = 60.0
"""So often the store is asked for jobs that have ended since."""
LOOK_BACK = 200
"""This many of the latest jobs that succeeded are looked at."""
NAMES = 10_000
"""This many names are remembered: those whose jobs succeeded last."""
RUNS = 20
"""The median is that of this many latest runs."""


class Learned:
    """Standard times by the job's name, the kind of its work and the task's name, from runs that succeeded.

    Of a batch job a run counts if its only attempt was not interrupted: the seconds from its ready nodes to
    its end. Of a stream and of a federated client the latest batch or epoch of each run counts. All are
    multiplied by the speed of the instances they ran on.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: deque[str] = deque(maxlen=2 * LOOK_BACK)
        self._runs: dict[tuple[str, str, str], deque[float]] = {}
        """The name that was heard of last comes last."""
        self._next_s = 0.0

    def look(self, now_s: float) -> None:
        """Take in the jobs that have succeeded since the last look, if that was long enough ago."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_S
        latest = self._store.jobs.latest(LOOK_BACK, {JobState.SUCCEEDED})
        for job in reversed([job for job in latest if job.job_id not in self._seen]):
            self._seen.append(job.job_id)
            held: dict[str, list[Instance]] = {}
            for instance in self._store.instances.of_job(job.job_id):
                held.setdefault(instance.key.task, []).append(instance)
            for task in self._store.tasks.of_job(job.job_id):
                took_s = reference_s(job, task, held.get(task.key.task, []))
                if took_s is not None:
                    runs = self._runs.pop(_name(job, task.key), deque(maxlen=RUNS))
                    runs.append(took_s)
                    self._runs[_name(job, task.key)] = runs
        while len(self._runs) > NAMES:
            del self._runs[next(iter(self._runs))]

    def told(self, job: Job, key: TaskKey) -> Job:
        """The job as it would be if it said what earlier runs of its name took, where it does not."""
        work = job.spec.work
        said = work.epoch_s if isinstance(work, Flower) else work.standard_s
        learned_s = None if said is not None else self.standard_s(*_name(job, key))
        if learned_s is None:
            return job
        name = "epoch_s" if isinstance(work, Flower) else "standard_s"
        changed = job.spec.model_copy(update={"work": work.model_copy(update={name: learned_s})})
        return replace(job, spec=changed)

    def standard_s(self, name: str, kind: str, task: str) -> float | None:
        """Median of the earlier runs, in seconds at speed 1; None where there is none."""
        runs = self._runs.get((name, kind, task))
        return median(runs) if runs else None


def reference_s(job: Job, task: Task, held: list[Instance]) -> float | None:
    """What a finished task says about the next one of its name; None where it says nothing.

    Args:
        job: it belongs to, succeeded.
        task: as it was at the end.
        held: all instances that it ever had.
    """
    if not isinstance(job.spec.work, SparkBatch):
        if task.last_execution_s is None or not held:
            return None
        return task.last_execution_s * held[-1].offer.speed
    ready = [one.ready_s for one in held if one.ready_s is not None]
    if task.attempt != 1 or job.ended_s is None or len(ready) != job.spec.resources.instances:
        return None
    return max(1.0, (job.ended_s - max(ready)) * held[0].offer.speed)


def _name(job: Job, key: TaskKey) -> tuple[str, str, str]:
    return job.spec.name, job.spec.work.kind, key.task
