"""Tasks: units of decision, their attempts and what was last heard of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, bindparam, select, update

from spotweave.deploy.model.jobs import TaskKey
from spotweave.deploy.model.tasks import Phase, TaskReport
from spotweave.deploy.store.database import WRITES, Database, Decoded, Noun
from spotweave.deploy.store.jobs import LIVE
from spotweave.deploy.store.schema import jobs, plain, tasks


@dataclass(frozen=True)
class Task:
    """A task as the store knows it.

    Attributes:
        progress, saved, misses, executions_done, last_execution_s, next_due_s, execution_saved, saved_region,
            message, details: as in the latest `TaskReport`.
    """

    key: TaskKey
    attempt: int  # number of the latest try, 0 before the first
    phase: Phase | None  # of that attempt; None while the task waits for a place
    progress: float
    saved: float
    instances: tuple[str, ...]  # own ids of the instances that it has
    misses: int
    executions_done: int
    last_execution_s: float | None
    next_due_s: float | None
    execution_saved: float
    saved_region: str
    message: str
    reported_s: float | None  # epoch seconds of the latest report
    waiting_since_s: float | None  # since when it waits for a place; None while it has one
    losses: int  # attempts in a row that lost their instances and saved nothing more
    # attempts in a row that came to nothing on healthy instances, or could not be started, and saved nothing
    # more
    failures: int
    interruptions: int  # attempts that lost ready instances to their provider so far
    not_before_s: float  # epoch seconds before which it shall not be placed again
    details: Mapping[str, str] = field(default_factory=dict)


class Waiting(NamedTuple):
    """A task that waits for a place: as little as it takes to choose among ten thousand.

    Attributes:
        attempt, saved, not_before_s: as in `Task`.
    """

    key: TaskKey
    attempt: int
    saved: float
    not_before_s: float


def _decode(values: dict[str, Any]) -> Task:
    key = TaskKey(values.pop("job_id"), values.pop("task"))
    phase = values.pop("phase")
    del values["position"]
    instances = tuple(values.pop("instances"))
    return Task(key=key, phase=None if phase is None else Phase(phase), instances=instances, **values)


task_of = Decoded(tasks, _decode)  # build a task from a row of `task_of.rows`


def _is(key: TaskKey) -> ColumnElement[bool]:
    return (tasks.c.job_id == key.job_id) & (tasks.c.task == key.task)


_LIVE = jobs.c.state.in_(LIVE)
_ORDER = (jobs.c.submitted_s, jobs.c.job_id, tasks.c.position)
_PLACED = (
    task_of.rows.join(jobs, jobs.c.job_id == tasks.c.job_id)
    .where(_LIVE, tasks.c.phase.is_not(None))
    .order_by(*_ORDER)
)
_WAITING = (
    select(tasks.c.job_id, tasks.c.task, tasks.c.attempt, tasks.c.saved, tasks.c.not_before_s)
    .join(jobs, jobs.c.job_id == tasks.c.job_id)
    .where(_LIVE, tasks.c.phase.is_(None))
    .order_by(*_ORDER)
)
_REPORTS = "reports"  # what is heard of tasks that have a place changes none of those that wait
_COPIED = ("progress", "saved", "misses", "executions_done", "last_execution_s", "next_due_s")
_SET = ("execution_saved", "phase", "saved_region", "message", "details", "reported_s", "losses", "failures")
# SQLAlchemy keeps the columns' own names for itself in an UPDATE of many rows.
_REPORT = (
    update(tasks)
    .where(tasks.c.job_id == bindparam("of_job"), tasks.c.task == bindparam("of_task"))
    .values({name: bindparam(f"to_{name}", type_=tasks.c[name].type) for name in (*_COPIED, *_SET)})
    .execution_options(**{WRITES: _REPORTS})
)


def _reported(before: Task, report: TaskReport, now_s: float) -> dict[str, object]:
    further = report.saved > before.saved or report.executions_done > before.executions_done
    values = {name: getattr(report, name) for name in _COPIED} | {
        "execution_saved": report.execution_saved,
        "phase": report.phase.value,
        "saved_region": plain(report.saved_region),
        "message": plain(report.message),
        "details": {plain(name): plain(value) for name, value in report.details.items()},
        "reported_s": now_s,
        # An attempt that got somewhere is none of those that are lost in a row.
        "losses": 0 if further else before.losses,
        "failures": 0 if further else before.failures,
    }
    to = {f"to_{name}": value for name, value in values.items()}
    return {"of_job": report.key.job_id, "of_task": report.key.task, **to}


class Tasks(Noun):
    """The tasks of a store. Writing needs a transaction; `Jobs.add` makes them."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._waiting: dict[tuple[Any, ...], Waiting] = {}
        """By row: as they were read last."""

    def get(self, key: TaskKey) -> Task:
        """One task. Raises NotFoundError."""
        missing = f"job {key.job_id!r} has no task {key.task!r}: see spotweave jobs"
        return task_of(self._database.found(task_of.rows.where(_is(key)), missing))

    def of_job(self, job_id: str) -> Sequence[Task]:
        """All of a job, in the order of its spec."""
        query = task_of.rows.where(tasks.c.job_id == job_id).order_by(tasks.c.position)
        return [task_of(row) for row in self._database.read_all(query)]

    def placed(self) -> Sequence[Task]:
        """Tasks of live jobs that have an attempt, whatever its phase.

        In the order of the jobs' submission and of their specs.
        """
        return self._database.recall.read("placed", ("jobs", "tasks", _REPORTS), self._read_placed)

    def _read_placed(self) -> Sequence[Task]:
        return [task_of(row) for row in self._database.read_all(_PLACED)]

    def named(self, keys: Collection[TaskKey]) -> Mapping[TaskKey, Task]:
        """These, by their keys; what there is not is left out."""
        rows = self._database.read_named(task_of.rows, tasks.c.job_id, {key.job_id for key in keys})
        found = {task.key: task for task in map(task_of, rows)}
        return {key: found[key] for key in keys if key in found}

    def waiting(self) -> Sequence[Waiting]:
        """Tasks of live jobs that wait for a place, in the same order."""
        return self._database.recall.read("waiting", ("jobs", "tasks"), self._read_waiting)

    def _read_waiting(self) -> Sequence[Waiting]:
        rows = self._database.read_all(_WAITING)
        # Most of ten thousand were there a pass ago, and are taken from there.
        known, found = self._waiting, {}
        for row in map(tuple, rows):
            found[row] = known.get(row) or Waiting(TaskKey(*row[:2]), *row[2:])
        self._waiting = found
        return list(found.values())

    def released(self) -> Sequence[Task]:
        """Waiting tasks that have had a place."""
        return list(self.named([row.key for row in self.waiting() if row.attempt]).values())

    def succeed(self, key: TaskKey) -> None:
        """A task that waits for a place has nothing left to do. Raises NotFoundError."""
        self._write(key, phase=Phase.SUCCEEDED.value, progress=1.0, saved=1.0, waiting_since_s=None)

    def leave(self, key: TaskKey, reason: str) -> None:
        """A task takes no part in its job any more; it has been taken off. Raises NotFoundError."""
        self._write(key, phase=Phase.LEFT.value, instances=[], message=plain(reason), waiting_since_s=None)

    def begin(self, key: TaskKey, instances: Sequence[str], now_s: float) -> int:
        """An attempt on these instances. Returns its number; that never goes back. Raises NotFoundError."""
        attempt = self.get(key).attempt + 1
        self._write(
            key,
            attempt=attempt,
            phase=Phase.STARTING.value,
            instances=list(instances),
            reported_s=now_s,
            waiting_since_s=None,
            message="",
        )
        return attempt

    def release(self, key: TaskKey, now_s: float) -> None:
        """All that a held task has waited for is there: it waits for a place. Raises NotFoundError."""
        self._write(key, not_before_s=0.0, waiting_since_s=now_s, message="")

    def set_instances(self, key: TaskKey, instances: Sequence[str]) -> None:
        """The attempt goes on with other instances (one more, or one less). Raises NotFoundError."""
        self._write(key, instances=list(instances))

    def report_all(self, reports: Iterable[TaskReport], now_s: float) -> Sequence[tuple[Task, TaskReport]]:
        """Keep what runners say of tasks that have a place.

        Not what is about another attempt, or one that has ended (ends are final). Returns what was kept, each
        with the task as it was before.
        """
        known = {task.key: task for task in self.placed()}
        told = [(known[one.key], one) for one in reports if one.key in known]
        kept = [
            (task, report)
            for task, report in told
            if report.attempt == task.attempt and task.phase is not None and not task.phase.ended
        ]
        if kept:
            self._database.writing.execute(_REPORT, [_reported(*pair, now_s) for pair in kept])
        return kept

    def requeue(
        self,
        key: TaskKey,
        now_s: float,
        *,
        lost: bool = False,
        failed: bool = False,
        interrupted: bool = False,
        not_before_s: float = 0.0,
    ) -> Task:
        """The attempt is over, or never began: the task waits for a place again, from what was saved.

        `lost`: it lost its instances. `failed`: it came to nothing on healthy ones, or could not be started.
        `interrupted`: its provider took instances on which it could run. It is not placed before
        `not_before_s`. Returns the task as it is now. Raises NotFoundError if there is no such task.
        """
        task = self.get(key)
        changes: dict[str, Any] = {
            "phase": None,
            "progress": task.saved,
            "waiting_since_s": now_s,
            "losses": task.losses + lost,
            "failures": task.failures + failed,
            "interruptions": task.interruptions + interrupted,
            "not_before_s": not_before_s,
        }
        self._write(key, instances=[], **changes)
        return replace(task, instances=(), **changes)

    def _write(self, key: TaskKey, **values: object) -> None:
        if not self._database.writing.execute(update(tasks).where(_is(key)).values(**values)).rowcount:
            self.get(key)
