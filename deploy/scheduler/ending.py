"""What follows from what was seen: attempts and jobs that are over, instances that are lost, budgets."""

from __future__ import annotations

from collections.abc import Mapping

from deploy.billing import usd
from deploy.model.instances import InstanceState
from deploy.model.jobs import Flower, JobState
from deploy.model.tasks import Phase
from deploy.scheduler.giving_up import attempt_id, end, requeue, take_off
from deploy.scheduler.settings import SchedulerSettings
from deploy.store.intents import IntentKind
from deploy.store.jobs import Job
from deploy.store.store import Store
from deploy.store.tasks import Task
from deploy.store.values import Json


class Ending:
    """Settles accounts after a look at the world."""

    def __init__(self, store: Store, settings: SchedulerSettings) -> None:
        self._store = store
        self._settings = settings
        self._drained: set[str] = set()
        """Drains that this process has intended; after a restart they are intended once more."""
        self._counted: set[tuple[str, str]] = set()
        """(job, message) of the user's failures of this pass: a server's error fails all clients at once."""

    def settle(self, now_s: float) -> None:
        """Everything that follows without a decision, each task in a transaction of its own."""
        jobs = {job.job_id: job for job in self._store.jobs.live()}
        self._counted.clear()
        for task in self._store.tasks.live():
            with self._store.transaction():
                self._settle_task(jobs[task.key.job_id], task, now_s)
        for job in self._store.jobs.live():
            with self._store.transaction():
                self._settle_job(job, now_s)
        self._sweep(now_s)

    def _settle_task(self, job: Job, task: Task, now_s: float) -> None:
        if task.phase is None or task.phase is Phase.SUCCEEDED:
            if task.phase is Phase.SUCCEEDED:
                take_off(self._store, task, now_s)
            return
        if task.phase is Phase.FAILED:
            self._failed(job, task, now_s)
            return
        if task.phase is Phase.LOST:
            self._lost(job, task, now_s, task.message or "the attempt was lost")
            return
        states = {name: self._store.instances.get(name) for name in task.instances}
        gone = [name for name, instance in states.items() if instance.state is InstanceState.TERMINATED]
        if gone and (task.phase is Phase.STARTING or len(gone) == len(states)):
            by = "the provider" if any(states[name].by_provider for name in gone) else "its end"
            self._lost(job, task, now_s, f"{len(gone)} of {len(states)} instances were taken by {by}")
            return
        if gone:
            self._store.tasks.set_instances(task.key, [name for name in states if name not in gone])
            data = {"left": len(states) - len(gone)}
            self._store.events.add("task.shrunk", now_s, data, key=task.key)
        self._drain(task, {name: i.notice_s for name, i in states.items() if name not in gone}, now_s)

    def _drain(self, task: Task, notices: Mapping[str, float | None], now_s: float) -> None:
        for name, notice_s in notices.items():
            if notice_s is None:
                continue
            target = f"{attempt_id(task)}:{name}"
            if target in self._drained:
                continue
            self._drained.add(target)
            self._store.intents.add(
                IntentKind.DRAIN,
                target,
                {
                    "job_id": task.key.job_id,
                    "task": task.key.task,
                    "attempt": task.attempt,
                    "instances": [name],
                    "ends_s": notice_s,
                },
                now_s,
            )

    def _failed(self, job: Job, task: Task, now_s: float) -> None:
        failures = job.user_failures
        if (job.job_id, task.message) not in self._counted:
            self._counted.add((job.job_id, task.message))
            failures = self._store.jobs.count_user_failure(job.job_id)
        if failures > job.spec.max_user_failures:
            self._end_job(job, JobState.FAILED, now_s, task.message or "it failed by its own fault")
            return
        wait_s = self._settings.back_off(failures)
        requeue(self._store, task, now_s, lost=False, reason=task.message, not_before_s=now_s + wait_s)

    def _lost(self, job: Job, task: Task, now_s: float, reason: str) -> None:
        wait_s = self._settings.back_off(task.losses) if task.losses else 0.0
        losses = requeue(self._store, task, now_s, lost=True, reason=reason, not_before_s=now_s + wait_s)
        if losses > self._settings.losses_most:
            self._end_job(job, JobState.FAILED, now_s, f"{losses} attempts in a row were lost: {reason}")

    def _settle_job(self, job: Job, now_s: float) -> None:
        tasks = self._store.tasks.of_job(job.job_id)
        # One client of a federated training says it for all: some may have been released in the last round.
        enough = any if isinstance(job.spec.work, Flower) else all
        if enough(task.phase is Phase.SUCCEEDED for task in tasks):
            self._end_job(job, JobState.SUCCEEDED, now_s, "")
            return
        budget = job.spec.budget_usd
        if budget is None or not any(task.instances for task in tasks):
            return
        # What two more passes would cost must still be paid: ending takes a pass.
        soon = self._store.costs.of_job(job.job_id, now_s + 2 * self._settings.period_s)
        if float(usd(soon.cost)) > budget:
            self._end_job(job, JobState.FAILED, now_s, f"its budget of {budget:g} USD is spent")

    def _end_job(self, job: Job, state: JobState, now_s: float, reason: str) -> None:
        if not self._store.jobs.set_state(job.job_id, state, now_s, reason):
            return
        for task in self._store.tasks.of_job(job.job_id):
            take_off(self._store, task, now_s)
        forget: dict[str, Json] = {"job_id": job.job_id, "forget": True}
        self._store.intents.add(IntentKind.STOP, f"{job.job_id}:forget", forget, now_s)
        self._store.events.add(f"job.{state}", now_s, {"reason": reason}, job_id=job.job_id)

    def _sweep(self, now_s: float) -> None:
        """Instances that no live task needs: of jobs that were cancelled, of attempts that were given up."""
        needed = {name for task in self._store.tasks.live() for name in task.instances}
        for instance in self._store.instances.live():
            if instance.instance_id not in needed and instance.state is not InstanceState.STOPPING:
                with self._store.transaction():
                    end(self._store, instance, now_s)
