"""Budgets, of the deployment and of jobs: what is left of them, and what they still pay."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from deploy.billing import CHARGES_PER_USD, usd
from deploy.model.instances import Offer
from deploy.model.jobs import Flower
from deploy.model.tasks import Phase
from deploy.scheduler.act.placing import to_come
from deploy.scheduler.retries.retries import attempt_id, take_off
from deploy.scheduler.settings import SchedulerSettings
from deploy.scheduler.snapshot.memberships import client_of
from deploy.scheduler.snapshot.needs import Need
from deploy.store.intents import IntentKind
from deploy.store.jobs import Job
from deploy.store.schema import Json
from deploy.store.store import Store
from deploy.store.tasks import Task


class Budgets:
    """What everything, and each job, may still cost. Without a budget it is never empty.

    What is left is what remains once everything that runs, or was asked for, has ended, which takes up to two
    passes, and once the data of starts that are intended were moved.

    Attributes:
        left_usd: of the deployment's budget.
    """

    def __init__(self, store: Store, settings: SchedulerSettings) -> None:
        self._store = store
        self._budget_usd = settings.budget_usd
        self._transfers = settings.transfers
        self._soon_s = 2 * settings.period_s
        self._now_s = 0.0
        self._of_jobs: dict[str, float] = {}
        self._asked_for: Mapping[str, float] | None = None
        self.left_usd = math.inf

    @property
    def spent(self) -> str:
        """Why everything has to end; "" while it has not."""
        return "" if self.left_usd >= 0 else f"the deployment's budget of {self._budget_usd:g} USD is spent"

    def left_of(self, job_id: str) -> float:
        """USD that are left of a job's own budget, once it is known."""
        return self._of_jobs.get(job_id, math.inf)

    def count(self, now_s: float) -> None:
        """See what is left of the deployment's budget now, and forget what was left of jobs'."""
        self._now_s, self._of_jobs, self._asked_for = now_s, {}, None
        if self._budget_usd is None:
            return
        with self._store.snapshot():
            total_usd = float(self._store.costs.total(now_s + self._soon_s).usd)
            self.left_usd = self._budget_usd - total_usd - sum(self._promised().values())

    def know(self, jobs: Iterable[Job]) -> None:
        """See what is left of these jobs' budgets, of those that it does not know since it counted."""
        budgets = {
            job.job_id: job.spec.budget_usd
            for job in jobs
            if job.spec.budget_usd is not None and job.job_id not in self._of_jobs
        }
        if not budgets:
            return
        with self._store.snapshot():
            bills = self._store.costs.of_jobs(budgets, self._now_s + self._soon_s)
            promised = self._promised()
        for job_id, budget_usd in budgets.items():
            self._of_jobs[job_id] = budget_usd - float(bills[job_id].usd) - promised.get(job_id, 0.0)

    def _promised(self) -> Mapping[str, float]:
        """USD by job: the least that instances cost that were asked for, and moves of data to come."""
        if self._asked_for is None:
            found: defaultdict[str, float] = defaultdict(float)
            for one in self._store.instances.live():
                if one.launched_s is None:
                    found[one.key.job_id] += one.offer.least_usd(self._soon_s)
            for job_id, charges in to_come(self._store, self._transfers).items():
                found[job_id] += charges / CHARGES_PER_USD
            self._asked_for = dict(found)
        return self._asked_for

    def shows(self, offer: Offer) -> bool:
        """Whether the deployment's budget pays the least that an instance costs."""
        return offer.least_usd(self._soon_s) <= self.left_usd

    def reason(self, offer: Offer) -> str:
        """Why it does not."""
        return (
            f"the deployment's budget leaves {max(0.0, self.left_usd):.4f} USD, "
            f"an instance there costs at least {offer.least_usd(self._soon_s):.4f}"
        )

    def take(self, offer: Offer, need: Need) -> None:
        """It will be started there."""
        usd = need.start_usd(offer)
        self.left_usd -= usd
        if need.key.job_id in self._of_jobs:
            self._of_jobs[need.key.job_id] -= usd


# Federated clients whose budget is spent: they leave, and the training goes on if enough are left.

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
