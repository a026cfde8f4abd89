"""The folders of jobs' files: whose they are, and which have been kept for long enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, insert, select

from deploy.store.database import Database
from deploy.store.jobs import LIVE
from deploy.store.schema import folders, jobs


@dataclass(frozen=True)
class Held:
    """What a submitter has of what all share.

    Attributes:
        live_jobs: that have not ended.
        submitted_s: of the jobs that were asked for since a moment, the earliest first.
        uploaded_bytes: that came with jobs and are still kept.
        all_uploaded_bytes: the same of all submitters.
    """

    live_jobs: int
    submitted_s: Sequence[float]
    uploaded_bytes: int
    all_uploaded_bytes: int


class Folders:
    """The folders of a store's jobs. Writing needs a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, job_id: str, submitter: str, uploaded_bytes: int) -> None:
        """A new job has one."""
        self._database.writing.execute(
            insert(folders).values(job_id=job_id, submitter=submitter, uploaded_bytes=uploaded_bytes)
        )

    def held(self, submitter: str, since_s: float) -> Held:
        """What a submitter has, and asked for since then."""
        mine = jobs.c.submitter == submitter
        size = func.coalesce(func.sum(folders.c.uploaded_bytes), 0)
        with self._database.snapshot() as connection:
            live = select(func.count()).select_from(jobs).where(mine, jobs.c.state.in_(LIVE))
            recent = select(jobs.c.submitted_s).where(mine, jobs.c.submitted_s > since_s)
            return Held(
                int(connection.scalar(live) or 0),
                connection.scalars(recent.order_by(jobs.c.submitted_s)).all(),
                int(connection.scalar(select(size).where(folders.c.submitter == submitter)) or 0),
                int(connection.scalar(select(size)) or 0),
            )

    def asked_before(self, submitter: str, request_id: str | None) -> bool:
        """Whether a request is known: it gives the same job again, and nothing is kept for it."""
        query = select(jobs.c.job_id).where(
            jobs.c.submitter == submitter, jobs.c.request_id == request_id, jobs.c.request_id.is_not(None)
        )
        with self._database.read() as connection:
            return connection.execute(query).first() is not None

    def due(self, ended_before_s: float, limit: int) -> Sequence[str]:
        """At most `limit` jobs that ended before a moment and still have a folder, the earliest end first."""
        query = (
            select(folders.c.job_id)
            .join(jobs, jobs.c.job_id == folders.c.job_id)
            .where(jobs.c.ended_s < ended_before_s, jobs.c.state.not_in(LIVE))
            .order_by(jobs.c.ended_s, jobs.c.job_id)
            .limit(limit)
        )
        with self._database.read() as connection:
            return connection.scalars(query).all()

    def removed(self, job_id: str) -> None:
        """A job's folder is gone."""
        self._database.writing.execute(delete(folders).where(folders.c.job_id == job_id))
