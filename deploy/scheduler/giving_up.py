"""Taking a task off its instances: what is written down when an attempt is over, whatever the reason."""

from __future__ import annotations

from deploy.model.instances import InstanceState
from deploy.model.jobs import JobState
from deploy.store.instances import Instance
from deploy.store.intents import IntentKind
from deploy.store.store import Store
from deploy.store.tasks import Task
from deploy.store.values import Json


def take_off(store: Store, task: Task, now_s: float, decision_id: int | None = None) -> None:
    """Intend to stop an attempt and to end its instances. Needs a transaction; the task stays as it is."""
    if task.attempt and task.instances:
        store.intents.add(
            IntentKind.STOP,
            attempt_id(task),
            {
                "job_id": task.key.job_id,
                "task": task.key.task,
                "attempt": task.attempt,
                "instances": list(task.instances),
            },
            now_s,
            decision_id=decision_id,
        )
    for name in task.instances:
        end(store, store.instances.get(name), now_s, decision_id)


def end(store: Store, instance: Instance, now_s: float, decision_id: int | None = None) -> None:
    """Intend to end an instance, unless it has ended. Needs a transaction."""
    if instance.state is InstanceState.TERMINATED:
        return
    store.intents.add(IntentKind.TERMINATE, instance.instance_id, {}, now_s, decision_id=decision_id)


def requeue(
    store: Store, task: Task, now_s: float, *, lost: bool, reason: str, not_before_s: float = 0.0
) -> int:
    """Take a task off and let it wait for a place again. Needs a transaction. Returns its losses in a row."""
    take_off(store, task, now_s)
    taken = lost and any(
        one.by_provider and one.ready_s is not None for one in map(store.instances.get, task.instances)
    )
    losses = store.tasks.requeue(task.key, now_s, lost=lost, interrupted=taken, not_before_s=not_before_s)
    data: dict[str, Json] = {"attempt": task.attempt, "lost": lost, "reason": reason}
    store.events.add("task.requeued", now_s, data, key=task.key)
    return losses


def attempt_id(task: Task) -> str:
    """As `Assignment.attempt_id`."""
    return f"{task.key.job_id}.{task.key.task}.{task.attempt}"


def end_job(store: Store, job_id: str, state: JobState, now_s: float, reason: str) -> None:
    """End a job and what it holds, unless it has ended."""
    with store.transaction():
        if not store.jobs.set_state(job_id, state, now_s, reason):
            return
        for task in store.tasks.of_job(job_id):
            take_off(store, task, now_s)
        forget: dict[str, Json] = {"job_id": job_id, "forget": True}
        store.intents.add(IntentKind.STOP, f"{job_id}:forget", forget, now_s)
        store.events.add(f"job.{state}", now_s, {"reason": reason}, job_id=job_id)
