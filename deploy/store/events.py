"""Events: the log that answers "why was this job put there", and that followers read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, insert, select

from spotweave.deploy.model.jobs import TaskKey
from spotweave.deploy.store.database import Noun
from spotweave.deploy.store.schema import Json, events, jobs


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    sequence: int  # strictly rising; an event is never seen after one with a higher number
    time_s: float
    kind: str  # "noun.verb", e.g. "instance.interrupted".
    data: Mapping[str, Any]
    job_id: str | None  # what it is about; None where nothing of the kind
    task: str | None
    instance_id: str | None
    decision_id: int | None
    submitter: str | None


_EVENTS = select(events, jobs.c.submitter).outerjoin(jobs, jobs.c.job_id == events.c.job_id)


class Events(Noun):
    """The events of a store. Writing needs a transaction."""

    def add(
        self,
        kind: str,
        now_s: float,
        data: Mapping[str, Json] | None = None,
        *,
        key: TaskKey | None = None,
        job_id: str | None = None,
        instance_id: str | None = None,
        decision_id: int | None = None,
    ) -> int:
        """Write one down. Returns its number.

        `kind` is "noun.verb". It is about a task (`key`), a job, an instance or a decision.
        """
        made: int = self._database.writing.execute(
            insert(events).returning(events.c.sequence),
            {
                "time_s": now_s,
                "kind": kind,
                "data": dict(data or {}),
                "job_id": job_id if key is None else key.job_id,
                "task": None if key is None else key.task,
                "instance_id": instance_id,
                "decision_id": decision_id,
            },
        ).scalar_one()
        return made

    def after(self, sequence: int, limit: int, *, job_id: str | None = None) -> Sequence[Event]:
        """Events after a number, the oldest first; 0 for all that are kept."""
        query = _EVENTS.where(events.c.sequence > sequence).order_by(events.c.sequence).limit(limit)
        if job_id is not None:
            query = query.where(events.c.job_id == job_id)
        return [Event(**row._mapping) for row in self._database.read_all(query)]

    def latest(self, limit: int, *, job_id: str | None = None) -> Sequence[Event]:
        """The latest `limit` (of one job), the oldest of them first."""
        query = _EVENTS.order_by(events.c.sequence.desc()).limit(limit)
        if job_id is not None:
            query = query.where(events.c.job_id == job_id)
        return [Event(**row._mapping) for row in self._database.read_all(query)][::-1]

    def last_sequence(self) -> int:
        """The highest number that is kept; 0 if there is none."""
        with self._database.read() as connection:
            return int(connection.scalar(select(func.coalesce(func.max(events.c.sequence), 0))) or 0)
