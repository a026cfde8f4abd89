"""Taking a task off its instances: what is written down when an attempt, or a whole job, is over."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.model.jobs import JobState, TaskKey
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.errors import UNUSABLE
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.intents import Intent, IntentKind
from spotweave.deploy.store.schema import Json
from spotweave.deploy.store.store import Store
from spotweave.deploy.store.tasks import Task

# Offers that are left alone for a while: for everyone, or for a task that failed to start there.

COOL_DOWN_MOST_S = 1800.0


class Cooldowns:
    """Until when each offer is left alone.

    A task that comes to nothing on an offer must not close it for all others: a job that cannot start
    anywhere would close the whole market. So what a launch says of an offer counts for everyone, and what
    becomes of an attempt for its task only.

    The first takes `first_s`, each further one in a row twice as long, up to half an hour.
    """

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._offers: dict[str, float] = {}
        self._refusals: dict[str, int] = {}
        self._tasks: dict[tuple[TaskKey, str], float] = {}

    def no_capacity(self, offer_id: str, now_s: float) -> None:
        """Back off from an offer without capacity, which may change at any time."""
        self._offers[offer_id] = now_s + self._first_s

    def refused(self, offer_id: str, now_s: float) -> None:
        """A launch there was refused or came to nothing, which will probably be so again."""
        tries = self._refusals.get(offer_id, 0)
        self._refusals[offer_id] = tries + 1
        self._offers[offer_id] = now_s + min(COOL_DOWN_MOST_S, self._first_s * 2.0 ** min(tries, 30))

    def started(self, offer_id: str) -> None:
        """Everything that a task needs was rented there: the next refusal is the first again."""
        self._refusals.pop(offer_id, None)

    def failed(self, key: TaskKey, offer_id: str, now_s: float) -> None:
        """A task came to nothing there: it goes elsewhere next, if it can."""
        self._tasks[key, offer_id] = now_s + self._first_s

    def left_s(self, offer_id: str, now_s: float) -> float:
        """For how much longer everyone leaves an offer alone; 0 if nobody has to."""
        return max(0.0, self._offers.get(offer_id, now_s) - now_s)

    def of_task(self, key: TaskKey, now_s: float) -> Mapping[str, float]:
        """Seconds for which a task leaves offers alone, by offer."""
        return {
            offer_id: until_s - now_s
            for (task, offer_id), until_s in self._tasks.items()
            if task == key and until_s > now_s
        }

    def keep_only(self, keys: Collection[TaskKey], now_s: float) -> None:
        """Forget tasks that are gone, and what is over."""
        self._offers = {name: until_s for name, until_s in self._offers.items() if until_s > now_s}
        self._tasks = {
            (key, name): until_s
            for (key, name), until_s in self._tasks.items()
            if key in keys and until_s > now_s
        }


def take_off(store: Store, task: Task, now_s: float) -> None:
    """Intend to stop an attempt and to end its instances. Needs a transaction; the task stays as it is."""
    if task.attempt and task.instances:
        store.intents.add(IntentKind.STOP, attempt_id(task), about(task, task.instances), now_s)
    for name in task.instances:
        end(store, store.instances.get(name), now_s)


def end(store: Store, instance: Instance, now_s: float, decision_id: int | None = None) -> None:
    """Intend to end an instance, unless it has ended. Needs a transaction."""
    if instance.state is InstanceState.TERMINATED:
        return
    store.intents.add(IntentKind.TERMINATE, instance.instance_id, {}, now_s, decision_id=decision_id)


def requeue(
    store: Store,
    task: Task,
    now_s: float,
    *,
    reason: str,
    lost: bool = False,
    failed: bool = False,
    not_before_s: float = 0.0,
) -> Task:
    """Take a task off and let it wait for a place again. Needs a transaction. Returns it as it is now."""
    take_off(store, task, now_s)
    taken = lost and any(
        one.by_provider and one.ready_s is not None for one in map(store.instances.get, task.instances)
    )
    after = store.tasks.requeue(
        task.key, now_s, lost=lost, failed=failed, interrupted=taken, not_before_s=not_before_s
    )
    data: dict[str, Json] = {"attempt": task.attempt, "lost": lost or failed, "reason": reason}
    store.events.add("task.requeued", now_s, data, key=task.key)
    return after


@dataclass(frozen=True)
class Retries:
    """Retry a task whose attempt came to nothing, later each time and up to a limit."""

    store: Store
    settings: SchedulerSettings
    cooldowns: Cooldowns

    def lost(self, task: Task, reason: str, now_s: float) -> None:
        """The instances of an attempt are gone: the first time it is tried again at once."""
        wait_s = self.settings.back_off(task.losses) if task.losses else 0.0
        with self.store.transaction():
            after = requeue(self.store, task, now_s, reason=reason, lost=True, not_before_s=now_s + wait_s)
            if after.losses > self.settings.losses_most:
                self._fail(task, f"{after.losses} attempts in a row were lost: {reason}", now_s)

    def failed(self, task: Task, reason: str, now_s: float) -> None:
        """An attempt came to nothing on healthy instances, or could not be started there."""
        wait_s = self.settings.back_off(task.failures + 1)
        with self.store.transaction():
            offers = {one.offer.offer_id for one in self.store.instances.named(task.instances).values()}
            after = requeue(self.store, task, now_s, reason=reason, failed=True, not_before_s=now_s + wait_s)
            if after.failures >= self.settings.failures_most:
                self._fail(task, f"{after.failures} attempts in a row came to nothing: {reason}", now_s)
        for offer_id in offers:
            self.cooldowns.failed(task.key, offer_id, now_s)

    def _fail(self, task: Task, reason: str, now_s: float) -> None:
        end_job(self.store, task.key.job_id, JobState.FAILED, now_s, reason)


def attempt_id(task: Task) -> str:
    """As `Assignment.attempt_id`."""
    return f"{task.key.job_id}.{task.key.task}.{task.attempt}"


def about(task: Task, instances: Sequence[str]) -> dict[str, Json]:
    """What an intent says of the attempt, and of the instances, that it is about."""
    return {
        "job_id": task.key.job_id,
        "task": task.key.task,
        "attempt": task.attempt,
        "instances": list(instances),
    }


def refuse(store: Store, instance: Instance, why: str, error: str, now_s: float) -> None:
    """Write down that an offer gave no instance of use. Needs a transaction.

    `why`: "capacity", which says something of the market; "quota", "request", or "node": lacks something.
    """
    data = {"offer": instance.offer.offer_id, "why": why, "error": error}
    store.events.add("instance.refused", now_s, data, key=instance.key, instance_id=instance.instance_id)


def key_of(intent: Intent) -> TaskKey:
    """The task that such an intent is about."""
    return TaskKey(str(intent.payload["job_id"]), str(intent.payload["task"]))


def end_job(store: Store, job_id: str, state: JobState, now_s: float, reason: str) -> bool:
    """End a job, everything that runs for it and everything that it holds.

    Returns False if nothing changed: it had ended. Raises NotFoundError if there is no such job.
    """
    with store.transaction():
        if not store.jobs.set_state(job_id, state, now_s, reason):
            return False
        for task in store.tasks.of_job(job_id):
            take_off(store, task, now_s)
        forget: dict[str, Json] = {"job_id": job_id, "forget": True}
        store.intents.add(IntentKind.STOP, f"{job_id}:forget", forget, now_s)
        store.events.add(f"job.{state}", now_s, {"reason": reason}, job_id=job_id)
    return True


# Jobs whose handling raises: one of them must not stop the handling of all others.
#
# What is raised for a job is a mistake of ours that its spec, or what its processes said, brings to light.
# It is written down with the job's name; when it happens in several passes the job is set aside: its
# attempts are stopped, its instances ended, and it is tried again after a while that doubles each time. It
# is not failed, unless it costs money again and again: the mistake is ours, and corrected code may handle
# it.

log = structlog.get_logger("scheduler")
FAULTS = 3  # passes in a row in which a job may raise before it is set aside
TIMES = 10  # a job that is set aside so often while it holds instances has failed: each time costs money
FIRST_S = 60.0
QUARANTINE_MOST_S = 3600.0


@dataclass
class _Case:
    """A job that raised."""

    faults: int = 0  # passes in a row in which it did
    times: int = 0  # how often it was set aside
    until_s: float = -math.inf  # it is set aside until then, epoch seconds
    latest_s: float = -math.inf  # when it raised last


class Quarantine:
    """Guards the handling of each job."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cases: dict[str, _Case] = {}
        self._raised: dict[str, tuple[str, Exception]] = {}
        """In this pass: what was being done, and what came of it."""

    @contextmanager
    def guard(self, job_id: str, doing: str) -> Iterator[None]:
        """Whatever is raised inside is written down as this job's, and not passed on.

        Where the store cannot be used, that is passed on.
        """
        try:
            yield
        except UNUSABLE:
            raise
        except Exception as error:
            self.note(job_id, doing, error)

    def note(self, job_id: str, doing: str, error: Exception) -> None:
        """Write down what was raised for a job."""
        log.error("a job could not be handled", job_id=job_id, doing=doing, exc_info=error)
        self._raised.setdefault(job_id, (doing, error))

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
            if not case.times or now_s > max(case.latest_s, case.until_s) + QUARANTINE_MOST_S:
                del self._cases[job_id]
        self._raised.clear()

    def _set_aside(self, job_id: str, case: _Case, reason: str, now_s: float) -> None:
        wait_s = min(QUARANTINE_MOST_S, FIRST_S * 2.0 ** min(30, case.times))
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
