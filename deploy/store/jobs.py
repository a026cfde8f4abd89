"""Jobs: what users submitted, what became of it, and the folders of their files."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import Delete, delete, func, insert, or_, select, tuple_, update

from spotweave.deploy.model.jobs import JobSpec, JobState
from spotweave.deploy.store.database import Database, Decoded, Noun
from spotweave.deploy.store.errors import StoreError
from spotweave.deploy.store.schema import decisions, events, folders, intents, jobs, plain, prices, tasks
from spotweave.mistakes import some_of

LIVE = tuple(state.value for state in JobState if state.live)
_ENDED = tuple(state.value for state in JobState if not state.live)
_SHOWN = 3  # names of others that a held task's message tells


@dataclass(frozen=True)
class Job:
    """A job as the store knows it."""

    job_id: str
    spec: JobSpec
    state: JobState
    submitted_s: float
    workdir: str
    submitter: str  # name of the token that submitted it
    # the submitter's own name for the request, so that a repeated one gives the same job
    request_id: str | None = None
    ended_s: float | None = None  # epoch seconds; None while it is live
    user_failures: int = 0  # attempts that failed by the job's own fault
    reason: str = ""


# The loop reads the jobs that run in each pass, and a spec never changes.
@lru_cache(maxsize=4_000)
def _spec(text: str) -> JobSpec:
    return JobSpec.model_validate_json(text)


def _decode(values: dict[str, Any]) -> Job:
    return Job(**{**values, "spec": _spec(values["spec"]), "state": JobState(values["state"])})


job_of = Decoded(jobs, _decode)  # build a job from a row of `job_of.rows`


class Jobs(Noun):
    """The jobs of a store. Writing needs a transaction."""

    def add(self, job: Job) -> Job:
        """Keep a new job, and a waiting task for each of its units of decision.

        Returns the job; or the earlier one of the same submitter with the same `request_id`. Raises
        StoreError if the job id is taken, or the request id was used with another spec.
        """
        connection = self._database.writing
        if job.request_id is not None:
            same = (jobs.c.submitter == job.submitter) & (jobs.c.request_id == job.request_id)
            row = connection.execute(job_of.rows.where(same)).one_or_none()
            if row is not None:
                earlier = job_of(row)
                if earlier.spec != job.spec:
                    raise StoreError(
                        f"request {job.request_id!r} submitted another job before ({earlier.job_id}): "
                        "use a new request id for each job"
                    )
                return earlier
        if connection.execute(select(jobs.c.job_id).where(jobs.c.job_id == job.job_id)).first():
            raise StoreError(f"there is a job {job.job_id} already: job ids are used once")
        connection.execute(
            insert(jobs),
            {
                **vars(job),
                "spec": job.spec.model_dump_json(),
                "state": job.state.value,
                "reason": plain(job.reason),
            },
        )
        connection.execute(
            insert(tasks),
            [
                {"job_id": job.job_id, "task": name, "position": at}
                | _waiting(job.submitted_s, job.spec.work.before(name))
                for at, name in enumerate(job.spec.tasks)
            ],
        )
        return job

    def get(self, job_id: str) -> Job:
        """One job. Raises NotFoundError."""
        query = job_of.rows.where(jobs.c.job_id == job_id)
        return job_of(self._database.found(query, f"there is no job {job_id!r}: see spotweave jobs"))

    def live(self) -> Sequence[Job]:
        """All that may still change, in the order of their submission."""
        query = job_of.rows.where(jobs.c.state.in_(LIVE)).order_by(jobs.c.submitted_s, jobs.c.job_id)
        return [job_of(row) for row in self._database.read_all(query)]

    def named(self, names: Collection[str]) -> Mapping[str, Job]:
        """These, by their ids; what there is not is left out."""
        return self._database.named(job_of, names)

    def specs(self, names: Collection[str]) -> Iterator[tuple[str, str, float, str]]:
        """Id, submitter, time of submission and spec (JSON, which few need to parse) of these jobs."""
        query = select(jobs.c.job_id, jobs.c.submitter, jobs.c.submitted_s, jobs.c.spec)
        return self._database.read_named(query, jobs.c.job_id, names)

    def latest(
        self, limit: int, states: Collection[JobState] | None = None, prefix: str | None = None
    ) -> Sequence[Job]:
        """The latest `limit` submitted ones (in these states, whose ids begin so), the newest first."""
        query = job_of.rows.order_by(jobs.c.submitted_s.desc(), jobs.c.job_id.desc()).limit(limit)
        if states is not None:
            query = query.where(jobs.c.state.in_([state.value for state in states]))
        if prefix is not None:
            query = query.where(jobs.c.job_id.startswith(prefix, autoescape=True))
        return [job_of(row) for row in self._database.read_all(query)]

    def counts(self) -> dict[JobState, int]:
        """Number of jobs in each state."""
        query = select(jobs.c.state, func.count()).group_by(jobs.c.state)
        found = {JobState(state): count for state, count in self._database.read_all(query)}
        return {state: found.get(state, 0) for state in JobState}

    def set_state(self, job_id: str, state: JobState, now_s: float, reason: str = "") -> bool:
        """Move a job to another state; an end state ends it now.

        Returns False if nothing changed: it is in this state, or has ended (ends are final). Raises
        NotFoundError if there is no such job.
        """
        values = {"state": state.value, "reason": plain(reason), "ended_s": None if state.live else now_s}
        changed = self._database.writing.execute(
            update(jobs)
            .where(jobs.c.job_id == job_id, jobs.c.state.not_in((*_ENDED, state.value)))
            .values(**values)
        ).rowcount
        if not changed:
            self.get(job_id)
        return bool(changed)

    def count_user_failure(self, job_id: str) -> int:
        """One more attempt failed by the job's own fault. Returns how many did. Raises NotFoundError."""
        self._database.writing.execute(
            update(jobs).where(jobs.c.job_id == job_id).values(user_failures=jobs.c.user_failures + 1)
        )
        return self.get(job_id).user_failures


def _waiting(since_s: float, names: Sequence[str]) -> dict[str, object]:
    """What is kept of a task that is not placed before these have succeeded: see `Tasks.release`."""
    if not names:
        return {"not_before_s": 0.0, "waiting_since_s": since_s, "message": ""}
    message = f"waits for {some_of(names, _SHOWN)}"
    return {"not_before_s": math.inf, "waiting_since_s": None, "message": message}


# The folders of jobs' files: whose they are, and which have been kept for long enough.


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
