"""The folders of jobs' files: whose they are, and which have been kept for long enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Delete, delete, func, insert, or_, select, tuple_

from spotweave.deploy.store.database import Database, Noun
from spotweave.deploy.store.jobs import LIVE
from spotweave.deploy.store.schema import decisions, events, folders, intents, jobs, prices


@dataclass(frozen=True)
class Held:
    """What a submitter has of what all share."""

    live_jobs: int  # that have not ended
    submitted_s: Sequence[float]  # of the jobs that were asked for since a moment, the earliest first
    uploaded_bytes: int  # that came with jobs and are still kept
    all_uploaded_bytes: int  # the same of all submitters


class Folders(Noun):
    """The folders of a store's jobs. Writing needs a transaction."""

    def add(self, job_id: str, submitter: str, uploaded_bytes: int) -> None:
        """A new job has one."""
        self._database.writing.execute(
            insert(folders).values(job_id=job_id, submitter=submitter, uploaded_bytes=uploaded_bytes)
        )

    def held(self, submitter: str, since_s: float) -> Held:
        """Usage of a submitter, and requests since a moment."""
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


# How long what is kept, and the removal of what is older.

PORTION = 2_000
MOST = 50_000
_DAY_S = 86_400.0
# Days for which rows are kept. Jobs, tasks, instances and charges stay for ever: they are the books.
_EVENTS_DAYS = 90.0  # those of a live job stay while it lives
_DECISIONS_DAYS = 30.0  # likewise
_INTENTS_DAYS = 30.0  # after they are done or given up
_PRICES_DAYS = 90.0  # the quote in force at that moment stays, so that the price is known at every later one
FOLDERS_DAYS = 30.0  # of jobs' files, after their ends; see `deploy.pruning`


def prune(database: Database, now_s: float) -> dict[str, int]:
    """Remove older rows, `PORTION` in each transaction: others who write get their turn in between.

    Returns how many of each table; `MOST` at most, the rest next time.
    """
    found = {}
    for name, statement in _older(now_s).items():
        found[name] = 0
        while found[name] < MOST:
            with database.transaction() as connection:
                removed = connection.execute(statement).rowcount
            found[name] += removed
            if removed < PORTION:
                break
    return found


def _older(now_s: float) -> dict[str, Delete]:
    """By table: the removal of a portion of what is older than it is kept."""
    live = select(jobs.c.job_id).where(jobs.c.state.in_(LIVE))
    later = prices.alias()
    superseded_s = (
        select(func.min(later.c.seen_s))
        .where(later.c.offer_id == prices.c.offer_id, later.c.seen_s > prices.c.seen_s)
        .scalar_subquery()
    )
    old_events = select(events.c.sequence).where(
        events.c.time_s < now_s - _EVENTS_DAYS * _DAY_S,
        or_(events.c.job_id.is_(None), events.c.job_id.not_in(live)),
    )
    old_decisions = select(decisions.c.decision_id).where(
        decisions.c.time_s < now_s - _DECISIONS_DAYS * _DAY_S, decisions.c.job_id.not_in(live)
    )
    old_intents = select(intents.c.intent_id).where(intents.c.ended_s < now_s - _INTENTS_DAYS * _DAY_S)
    kept_from_s = now_s - _PRICES_DAYS * _DAY_S
    old_prices = select(prices.c.offer_id, prices.c.seen_s).where(
        prices.c.seen_s < kept_from_s, superseded_s < kept_from_s
    )
    which = tuple_(prices.c.offer_id, prices.c.seen_s)
    return {
        "events": delete(events).where(events.c.sequence.in_(old_events.limit(PORTION))),
        "decisions": delete(decisions).where(decisions.c.decision_id.in_(old_decisions.limit(PORTION))),
        "intents": delete(intents).where(intents.c.intent_id.in_(old_intents.limit(PORTION))),
        "prices": delete(prices).where(which.in_(old_prices.limit(PORTION))),
    }
