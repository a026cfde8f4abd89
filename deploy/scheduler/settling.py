"""What follows from what was seen: attempts and jobs that are over, instances that are lost, budgets."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.model.jobs import Flower, JobState
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.model.workflows import Workflow
from spotweave.deploy.scheduler.guards import Budgets, leave_the_spent, too_few
from spotweave.deploy.scheduler.observer import Nodes
from spotweave.deploy.scheduler.placing import kept_for_moves
from spotweave.deploy.scheduler.retries import (
    Quarantine,
    Retries,
    about,
    attempt_id,
    end,
    end_job,
    refuse,
    requeue,
    take_off,
)
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.intents import IntentKind
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.schema import Json
from spotweave.deploy.store.store import Store
from spotweave.deploy.store.tasks import Task

_GONE = (InstanceState.STOPPED, InstanceState.TERMINATED)
"""States of lost instances. A stopped one is ended, so that its disk costs no more."""
_AT_ONCE = 100  # instances that are swept in one transaction
_SWEPT = tuple(state for state in InstanceState if state.live and state is not InstanceState.STOPPING)


class Ending:
    """Settles accounts after a look at the world."""

    def __init__(
        self,
        store: Store,
        settings: SchedulerSettings,
        budgets: Budgets,
        retries: Retries,
        quarantine: Quarantine,
        nodes: Nodes,
    ) -> None:
        self._store, self._settings, self._budgets = store, settings, budgets
        self._retries, self._quarantine, self._nodes = retries, quarantine, nodes
        self._drained: set[str] = set()
        """Drains that this process has intended; after a restart they are intended once more."""
        self._counted: set[tuple[str, str]] = set()
        """(job, message) of the user's failures of this pass: a server's error fails all clients at once."""

    def settle(self, now_s: float, silent: Collection[str]) -> None:
        """Everything that follows without a decision, each task in a transaction of its own.

        `silent` are kinds of jobs whose runner could not be asked: of an attempt whose instances are
        gone it is not known whether it had come to its end before.
        """
        self._counted.clear()
        with self._store.snapshot():
            tasks = self._store.tasks.placed()
            jobs = self._store.jobs.named({task.key.job_id for task in tasks})
            instances = self._store.instances.named({name for task in tasks for name in task.instances})
        noticed: set[str] = set()
        for task in tasks:
            states = {name: instances[name] for name in task.instances}
            drains = {_drain_target(task, name) for name, one in states.items() if one.notice_s is not None}
            noticed |= drains
            job = jobs[task.key.job_id]
            if self._quarantine.holds(job.job_id, now_s):
                continue
            gone = bool(self._gone(states, now_s) or self._refused(job, task, states))
            over = task.phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.LOST) and bool(task.instances)
            if gone and not over and job.spec.work.kind in silent:
                continue
            if gone or drains - self._drained or over:
                with self._quarantine.guard(job.job_id, "settling a task"):
                    with self._store.transaction():
                        self._settle_task(job, task, states, now_s)
                    self._drained |= drains
        self._drained &= noticed
        self._budgets.count(now_s)
        self._settle_budget(now_s)
        self._settle_jobs(tasks, now_s)
        self._sweep(now_s)

    def _settle_task(self, job: Job, task: Task, states: Mapping[str, Instance], now_s: float) -> None:
        if task.phase is Phase.SUCCEEDED:
            take_off(self._store, task, now_s)
            # Others of its job may go on for long: what is intended for its end is intended once.
            self._store.tasks.set_instances(task.key, ())
            _release_next(self._store, job, now_s)
            return
        refused = self._refused(job, task, states)
        for name, lacks in refused.items():
            # Another instance of its offer probably lacks the same.
            self._retries.cooldowns.refused(states[name].offer.offer_id, now_s)
            refuse(self._store, states[name], "node", lacks, now_s)
        if task.phase is Phase.FAILED and not refused:
            self._failed(job, task, now_s)
            return
        if task.phase is Phase.LOST and not refused:
            self._over(task, states, task.message or "the attempt was lost", now_s)
            return
        gone = [*self._gone(states, now_s), *refused]
        over = task.phase in (Phase.STARTING, Phase.FAILED, Phase.LOST)
        if gone and (over or len(gone) == len(states)):
            reason = next(iter(refused.values()), "")
            reason = reason or f"{len(gone)} of {len(states)} instances were {_fate(states, gone)}"
            self._retries.lost(task, reason, now_s)
            return
        if gone:
            self._store.tasks.set_instances(task.key, [name for name in states if name not in gone])
            data = {"left": len(states) - len(gone)}
            self._store.events.add("task.shrunk", now_s, data, key=task.key)
        for name, one in states.items():
            target = _drain_target(task, name)
            if name not in gone and one.notice_s is not None and target not in self._drained:
                payload = {**about(task, [name]), "ends_s": one.notice_s}
                self._store.intents.add(IntentKind.DRAIN, target, payload, now_s)

    def _gone(self, states: Mapping[str, Instance], now_s: float) -> list[str]:
        """Instances that are lost: ended, or with a node that hangs."""
        return [
            name
            for name, one in states.items()
            if one.state in _GONE
            or (
                one.state is InstanceState.RUNNING
                and self._nodes.silent_s(name, now_s) > self._settings.silent_within_s
            )
        ]

    def _refused(self, job: Job, task: Task, states: Mapping[str, Instance]) -> dict[str, str]:
        """Those whose nodes lack GPUs that the task needs, and what they lack.

        A task that asks for none is left where it is, whatever its offer promised.
        """
        if not job.spec.resources_of(task.key.task).gpu_count:
            return {}
        running = (name for name, one in states.items() if one.state is InstanceState.RUNNING)
        return {name: lacks for name in running if (lacks := self._nodes.lacks(name))}

    def _failed(self, job: Job, task: Task, now_s: float) -> None:
        failures = job.user_failures
        if (job.job_id, task.message) not in self._counted:
            self._counted.add((job.job_id, task.message))
            failures = self._store.jobs.count_user_failure(job.job_id)
        if failures > job.spec.max_user_failures:
            end_job(
                self._store, job.job_id, JobState.FAILED, now_s, task.message or "it failed by its own fault"
            )
            return
        wait_s = self._settings.back_off(failures)
        requeue(self._store, task, now_s, reason=task.message, not_before_s=now_s + wait_s)

    def _over(self, task: Task, states: Mapping[str, Instance], reason: str, now_s: float) -> None:
        """An attempt that its runner calls lost: with its instances, or for a reason that may come again."""
        healthy = all(
            one.state is InstanceState.RUNNING
            and one.notice_s is None
            and self._nodes.silent_s(one.instance_id, now_s) == 0.0
            for one in states.values()
        )
        if healthy:
            self._retries.failed(task, reason, now_s)
        else:
            self._retries.lost(task, reason, now_s)

    def _settle_jobs(self, tasks: Sequence[Task], now_s: float) -> None:
        """Jobs that are over, or too dear; the tasks as they were before any was settled."""
        with self._store.snapshot():
            named = self._store.jobs.named({task.key.job_id for task in tasks})
            jobs = {name: job for name, job in named.items() if job.state.live}
        self._budgets.know(jobs.values())
        left = {task.key.job_id for task in tasks if task.phase is Phase.LEFT}
        succeeded = {task.key.job_id for task in tasks if task.phase is Phase.SUCCEEDED}
        for name, job in jobs.items():
            with self._quarantine.guard(name, "settling a job"):
                self._settle_job(job, name in left, name in succeeded, now_s)

    def _settle_job(self, job: Job, some_left: bool, some_succeeded: bool, now_s: float) -> None:
        budget = job.spec.budget_usd
        if some_succeeded and self._is_done(job):
            end_job(self._store, job.job_id, JobState.SUCCEEDED, now_s, "")
            return
        if budget is not None and self._budgets.left_of(job.job_id) < 0:
            reason = f"its budget of {budget:g} USD is spent"
        else:
            if isinstance(job.spec.work, Flower):
                leave_the_spent(self._store, job, now_s, now_s + 2 * self._settings.period_s)
            reason = too_few(job, self._store.tasks.of_job(job.job_id)) if some_left else ""
        if reason:
            end_job(self._store, job.job_id, JobState.FAILED, now_s, reason)

    def _settle_budget(self, now_s: float) -> None:
        jobs = self._store.jobs.live() if self._budgets.spent else ()
        if not jobs:
            return
        with self._store.transaction():
            data: dict[str, Json] = {"reason": self._budgets.spent, "jobs": len(jobs)}
            self._store.events.add("deployment.budget_spent", now_s, data)
        # Each in a transaction of its own: a request that writes waits for whoever is writing.
        for job in jobs:
            with self._quarantine.guard(job.job_id, "ending a job"):
                end_job(self._store, job.job_id, JobState.FAILED, now_s, self._budgets.spent)

    def _is_done(self, job: Job) -> bool:
        # One client of a federated training says it for all: some may have been released in the last round.
        enough = any if isinstance(job.spec.work, Flower) else all
        return enough(task.phase is Phase.SUCCEEDED for task in self._store.tasks.of_job(job.job_id))

    def _sweep(self, now_s: float) -> None:
        """Instances that no live task needs: of jobs that were cancelled, of attempts that were given up."""
        with self._store.snapshot():
            live = {one.instance_id for one in self._store.instances.live() if one.state in _SWEPT}
            needed = {name for task in self._store.tasks.placed() for name in task.instances}
            needed |= kept_for_moves(self._store)
            ending = self._store.intents.pending_targets(IntentKind.TERMINATE)
        unneeded = sorted(live - needed - ending)
        for first in range(0, len(unneeded), _AT_ONCE):
            with self._store.transaction():
                some = unneeded[first : first + _AT_ONCE]
                for instance in self._store.instances.named(some).values():
                    end(self._store, instance, now_s)


def _fate(states: Mapping[str, Instance], gone: Sequence[str]) -> str:
    if any(states[name].by_provider for name in gone):
        return "taken by the provider"
    if any(states[name].state is InstanceState.RUNNING for name in gone):
        return "not answering any more"
    stopped = all(states[name].state is InstanceState.STOPPED for name in gone)
    return "stopped by somebody" if stopped else "ended"


def _release_next(store: Store, job: Job, now_s: float) -> None:
    """A step of a workflow has succeeded: those that waited for it are decided about."""
    if not isinstance(job.spec.work, Workflow):
        return
    graph, tasks = job.spec.work.graph(), store.tasks.of_job(job.job_id)
    done = {task.key.task for task in tasks if task.phase is Phase.SUCCEEDED}
    for task in tasks:
        if task.not_before_s == math.inf and done.issuperset(graph[task.key.task]):
            store.tasks.release(task.key, now_s)
            store.events.add("task.released", now_s, {"after": graph[task.key.task]}, key=task.key)


def _drain_target(task: Task, name: str) -> str:
    return f"{attempt_id(task)}:{name}"
