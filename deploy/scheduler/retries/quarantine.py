"""Jobs whose handling raises: one of them must not stop the handling of all others.

What is raised for a job is a mistake of ours that its spec, or what its processes said, brings to light. It
is written down with the job's name; when it happens in several passes the job is set aside: its attempts are
stopped, its instances ended, and it is tried again after a while that doubles each time. It is not failed,
unless it costs money again and again: the mistake is ours, and corrected code may handle it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import TracebackType

import structlog

from deploy.model.jobs import JobState
from deploy.scheduler.retries.retries import end, end_job, requeue
from deploy.store.errors import UNUSABLE
from deploy.store.schema import Json
from deploy.store.store import Store

log = structlog.get_logger("scheduler")
FAULTS = 3
"""Passes in a row in which a job may raise before it is set aside."""
TIMES = 10
"""A job that is set aside so often while it holds instances has failed: each time costs money."""
FIRST_S = 60.0
LONGEST_S = 3600.0


class Guard:
    """A context that ends where something is raised for one job, and lets the rest go on."""

    def __init__(self, raised: dict[str, tuple[str, Exception]], job_id: str, doing: str) -> None:
        self._raised = raised
        self._job_id = job_id
        self._doing = doing

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Take it, unless it is everyone's."""
        if not isinstance(error, Exception) or isinstance(error, UNUSABLE):
            return False
        log.error("a job could not be handled", job_id=self._job_id, doing=self._doing, exc_info=error)
        self._raised.setdefault(self._job_id, (self._doing, error))
        return True


@dataclass
class _Case:
    """A job that raised.

    Attributes:
        faults: passes in a row in which it did.
        times: how often it was set aside.
        until_s: it is set aside until then, epoch seconds.
        latest_s: when it raised last.
    """

    faults: int = 0
    times: int = 0
    until_s: float = -math.inf
    latest_s: float = -math.inf


class Quarantine:
    """Guards the handling of each job.

    Args:
        store: of the deployment.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cases: dict[str, _Case] = {}
        self._raised: dict[str, tuple[str, Exception]] = {}
        """In this pass: what was being done, and what came of it."""

    def guard(self, job_id: str, doing: str) -> Guard:
        """Whatever is raised inside is written down as this job's, and not passed on.

        Where the store cannot be used, that is passed on.
        """
        return Guard(self._raised, job_id, doing)

    def holds(self, job_id: str, now_s: float) -> bool:
        """Whether a job is set aside, or has raised in this pass: it is left alone."""
        case = self._cases.get(job_id)
        return job_id in self._raised or (case is not None and case.until_s > now_s)

    def end_pass(self, now_s: float) -> None:
        """Set aside what raised too often; forget what was handled well for long enough."""
        for job_id, (doing, error) in self._raised.items():
            case = self._cases.setdefault(job_id, _Case())
            case.faults, case.latest_s = case.faults + 1, now_s
            if case.faults >= FAULTS:
                self._set_aside(
                    job_id, case, f"{doing}: {type(error).__name__}: {error}".splitlines()[0], now_s
                )
        for job_id, case in list(self._cases.items()):
            if job_id in self._raised:
                continue
            case.faults = 0
            # What was set aside may raise again only once it has a place: that it does not now says little.
            if not case.times or now_s > max(case.latest_s, case.until_s) + LONGEST_S:
                del self._cases[job_id]
        self._raised.clear()

    def _set_aside(self, job_id: str, case: _Case, reason: str, now_s: float) -> None:
        wait_s = min(LONGEST_S, FIRST_S * 2.0 ** min(30, case.times))
        case.faults, case.times, case.until_s = 0, case.times + 1, now_s + wait_s
        with self._store.transaction():
            data: dict[str, Json] = {"reason": reason, "again_in_s": wait_s}
            self._store.events.add("job.quarantined", now_s, data, job_id=job_id)
        placed = [
            task
            for task in self._store.tasks.of_job(job_id)
            if task.phase is not None and not task.phase.ended
        ]
        if placed and case.times >= TIMES:
            reason = f"it was set aside {case.times} times: {reason}"
            end_job(self._store, job_id, JobState.FAILED, now_s, reason)
            return
        for task in placed:
            try:
                with self._store.transaction():
                    requeue(
                        self._store, task, now_s, reason=f"set aside: {reason}", not_before_s=case.until_s
                    )
            except UNUSABLE:
                raise
            except Exception:
                log.exception("a task could not be taken off; its instances are", job_id=job_id)
                with self._store.transaction():
                    for instance in self._store.instances.named(task.instances).values():
                        end(self._store, instance, now_s)
