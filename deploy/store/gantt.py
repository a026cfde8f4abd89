"""What a Gantt chart of jobs shows: the lanes of their tasks, and the instances these had over time.

All of it reads, with limits, and finds its rows by indices: it is asked for every few seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select

from spotweave.deploy.model.instances import Market
from spotweave.deploy.model.jobs import JobState, TaskKey
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.store.database import Noun
from spotweave.deploy.store.jobs import Job, job_of
from spotweave.deploy.store.schema import instances, jobs, tasks
from spotweave.deploy.store.tasks import Task, task_of


@dataclass(frozen=True)
class Span:
    """The instances of one attempt at a task, from the request until the last of them ended."""

    key: TaskKey
    offer_id: str
    market: Market
    instances: int
    usd_hour: float  # of all of them, at the prices of the request
    requested_s: float
    launched_s: float | None  # of the first of them; None if none was
    ready_s: float | None  # when all were; None before
    ended_s: float | None  # None while one of them lives
    notice_s: float | None  # when the provider said it will end the first of them; None without notice
    interruptions: tuple[float, ...]  # when the provider ended any of them, each moment once, rising


@dataclass(frozen=True)
class Sums:
    """Sums over all tasks of a job."""

    tasks: int
    tasks_done: int
    progress: float  # their mean share that is done
    misses: int  # batch deadlines missed


class Gantt(Noun):
    """The chart of a store."""

    def jobs(self, state: JobState, limit: int) -> Sequence[Job]:
        """In a state: waiting ones from the oldest on, which is next; others from the newest on."""
        at = jobs.c.submitted_s
        order = (at, jobs.c.job_id) if state is JobState.PENDING else (at.desc(), jobs.c.job_id.desc())
        query = job_of.rows.where(jobs.c.state == state.value).order_by(*order).limit(limit)
        return [job_of(row) for row in self._database.read_all(query)]

    def sums(self, job_ids: Collection[str]) -> Mapping[str, Sums]:
        """By job."""
        query = (
            select(
                tasks.c.job_id,
                func.count(),
                func.count().filter(tasks.c.phase == Phase.SUCCEEDED.value),
                func.avg(tasks.c.progress),
                func.sum(tasks.c.misses),
            )
            .where(tasks.c.job_id.in_(job_ids))
            .group_by(tasks.c.job_id)
        )
        return {
            job_id: Sums(count, done, float(progress), int(misses))
            for job_id, count, done, progress, misses in self._database.read_all(query)
        }

    def lanes(self, job_ids: Collection[str], each: int) -> Mapping[str, Sequence[Task]]:
        """The first `each` tasks of every job, in the order of its spec."""
        query = task_of.rows.where(_among(job_ids, each)).order_by(tasks.c.job_id, tasks.c.position)
        found: defaultdict[str, list[Task]] = defaultdict(list)
        for row in self._database.read_all(query):
            found[row.job_id].append(task_of(row))
        return found

    def spans(self, job_ids: Collection[str], each: int, limit: int) -> Sequence[Span]:
        """The latest `limit` spans of the first `each` tasks of these jobs, the oldest of them first.

        All instances of an attempt are asked for at one moment and of one offer: so they belong together.
        """
        one = (instances.c.job_id, instances.c.task, instances.c.offer_id, instances.c.requested_s)
        rows = self._of_lanes(
            select(
                *one,
                func.min(instances.c.offer["market"].as_string()).label("market"),
                func.sum(instances.c.offer["price_usd_hour"].as_float()).label("usd_hour"),
                func.count().label("instances"),
                func.min(instances.c.launched_s).label("launched_s"),
                func.count(instances.c.ready_s).label("ready"),
                func.max(instances.c.ready_s).label("ready_s"),
                func.count(instances.c.ended_s).label("ended"),
                func.max(instances.c.ended_s).label("ended_s"),
                func.min(instances.c.notice_s).label("notice_s"),
            ),
            job_ids,
            each,
        ).group_by(*one)
        taken = self._of_lanes(select(*one, instances.c.ended_s), job_ids, each)
        taken = taken.where(instances.c.by_provider, instances.c.ended_s.is_not(None)).distinct()
        interruptions: defaultdict[tuple[Any, ...], list[float]] = defaultdict(list)
        with self._database.snapshot() as connection:
            latest = rows.order_by(instances.c.requested_s.desc()).limit(limit)
            found = connection.execute(latest).all()[::-1]
            for *which, ended_s in connection.execute(
                taken.order_by(instances.c.ended_s.desc()).limit(limit)
            ):
                interruptions[tuple(which)].append(ended_s)
        return [
            Span(
                key=TaskKey(row.job_id, row.task),
                offer_id=row.offer_id,
                market=row.market,
                instances=row.instances,
                usd_hour=row.usd_hour,
                requested_s=row.requested_s,
                launched_s=row.launched_s,
                ready_s=row.ready_s if row.ready == row.instances else None,
                ended_s=row.ended_s if row.ended == row.instances else None,
                notice_s=row.notice_s,
                interruptions=tuple(
                    sorted(interruptions[row.job_id, row.task, row.offer_id, row.requested_s])
                ),
            )
            for row in found
        ]

    def _of_lanes(self, query: Select[Any], job_ids: Collection[str], each: int) -> Select[Any]:
        same = (tasks.c.job_id == instances.c.job_id) & (tasks.c.task == instances.c.task)
        return query.join(tasks, same).where(instances.c.job_id.in_(job_ids), _among(job_ids, each))


def _among(job_ids: Collection[str], each: int) -> ColumnElement[bool]:
    return tasks.c.job_id.in_(job_ids) & (tasks.c.position < each)
