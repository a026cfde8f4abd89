"""Budgets, of the deployment and of jobs: what is left of them, and what they still pay."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from deploy.billing import CHARGES_PER_USD
from deploy.model.instances import Offer
from deploy.scheduler.act.egress import to_come
from deploy.scheduler.settings import SchedulerSettings
from deploy.scheduler.snapshot.needs import Need
from deploy.store.jobs import Job
from deploy.store.store import Store


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
