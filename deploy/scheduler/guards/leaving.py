"""Federated clients whose budget is spent: they leave, and the training goes on if enough are left."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.billing import usd
from deploy.model.instances import Offer
from deploy.model.jobs import Flower
from deploy.model.tasks import Phase
from deploy.scheduler.retries.retries import attempt_id, take_off
from deploy.scheduler.snapshot.memberships import client_of
from deploy.scheduler.snapshot.needs import Need
from deploy.store.intents import IntentKind
from deploy.store.jobs import Job
from deploy.store.store import Store
from deploy.store.tasks import Task
from deploy.store.values import Json

QUORUM_KEY = "quorum"
"""In a job's `run_config`: a round ends when this many clients have delivered."""


def pays_nowhere(need: Need, offers: Sequence[Offer]) -> str:
    """Why a client without a place leaves: its budget pays no round on any offer that it may use; else ""."""
    left_usd = need.round.budget_left_usd
    if left_usd is None or need.here is not None or need.executions_left == 0:
        return ""
    allowed = [offer for offer in offers if need.ban(offer) is None]
    if not allowed or any(need.unpaid(offer) is None for offer in allowed):
        return ""
    return f"its budget leaves {max(0.0, left_usd):.4f} USD, which pays no further round anywhere"


def starts_nowhere(need: Need, offers: Sequence[Offer]) -> str:
    """Why a job without a place fails: its budget pays no start on any offer that it may use; else ""."""
    allowed = [offer for offer in offers if need.ban(offer) is None]
    if not allowed or any(need.start_usd(offer) <= need.budget_left_usd for offer in allowed):
        return ""
    return f"its budget leaves {max(0.0, need.budget_left_usd):.4f} USD, which pays no further start anywhere"


def leave(store: Store, task: Task, reason: str, now_s: float) -> None:
    """Take a client off for good. Needs a transaction."""
    take_off(store, task, now_s)
    store.tasks.leave(task.key, reason)
    payload: dict[str, Json] = {
        "job_id": task.key.job_id,
        "task": task.key.task,
        "attempt": task.attempt,
        "instances": list(task.instances),
        "leave": True,
    }
    # After the stop of its attempt, if there is one: they are done in the order of their intents.
    store.intents.add(IntentKind.STOP, f"{attempt_id(task)}:leave", payload, now_s)
    store.events.add("task.left", now_s, {"reason": reason}, key=task.key)


def leave_the_spent(store: Store, job: Job, now_s: float, soon_s: float) -> None:
    """Let those leave whose instances would cost more than their budget by `soon_s`, epoch seconds."""
    work = job.spec.work
    assert isinstance(work, Flower)
    if all(client.budget_usd is None for client in work.clients):
        return
    bills = store.costs.of_tasks(job.job_id, soon_s)
    for task in store.tasks.of_job(job.job_id):
        budget_usd = client_of(job, task.key).budget_usd
        if budget_usd is None or not task.instances or task.phase is Phase.LEFT:
            continue
        if float(usd(bills[task.key.task].cost)) > budget_usd:
            with store.transaction():
                leave(store, task, f"its budget of {budget_usd:g} USD is spent", now_s)


def too_few(job: Job, tasks: Sequence[Task]) -> str:
    """Why a training cannot go on without those who left; "" if it can.

    A strategy that asks for more clients than are left ends its ServerApp, which says so.
    """
    left = [task for task in tasks if task.phase is Phase.LEFT]
    if not left:
        return ""
    work = job.spec.work
    assert isinstance(work, Flower)
    said = work.run_config.get(QUORUM_KEY, "")
    needed = int(said) if said.isdecimal() and int(said) > 0 else 1
    remain = len(tasks) - len(left)
    if remain >= min(needed, len(tasks)):
        return ""
    names = ", ".join(task.key.task.removeprefix("client-") for task in left)
    return (
        f"{remain} of {len(tasks)} clients are left, {needed} are needed: the budget of {names} is spent; "
        "raise it or lower the quorum"
    )
