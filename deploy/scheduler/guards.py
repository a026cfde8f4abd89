"""The guards of `envs.simulation.guards` around a live decision: what they must know, and their words."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spotweave.deploy.billing import CHARGES_PER_USD, micro_usd_hour
from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import Flower
from spotweave.deploy.model.tasks import Phase
from spotweave.deploy.scheduler.needs import Need
from spotweave.deploy.scheduler.placing import to_come
from spotweave.deploy.scheduler.retries import about, attempt_id, take_off
from spotweave.deploy.scheduler.rounds import budgets_of
from spotweave.deploy.scheduler.settings import SchedulerSettings
from spotweave.deploy.scheduler.snapshot import Row
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.intents import IntentKind
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.prices import Prices
from spotweave.deploy.store.store import Store
from spotweave.deploy.store.tasks import Task
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.guards import Facts, GuardsConfig, guarded, move_usd, safety_net


@dataclass(frozen=True)
class Standing:
    """What a running task has where it is."""

    unsaved: float = 0.0  # share of the work that a move would lose
    minimum_left_s: float = 0.0  # seconds of the youngest instance's billing minimum that are still to come
    # whether the provider advises to leave, or has announced the end of some of the instances
    hinted: bool = False


def standing_of(task: Task, held: Sequence[Instance], now_s: float) -> Standing:
    """The standing of a task with these instances."""
    ages = [now_s - one.launched_s for one in held if one.launched_s is not None]
    return Standing(
        unsaved=max(0.0, task.progress - task.saved) if task.phase is Phase.RUNNING else 0.0,
        minimum_left_s=max(0.0, held[0].offer.billing_minimum_s - min(ages, default=0.0)),
        hinted=any(one.rebalance or one.notice_s is not None for one in held),
    )


@dataclass(frozen=True)
class Outcome:
    """What becomes of a policy's choice."""

    # where the task goes or stays; None for none for now, which leaves a task that runs
    offer_id: str | None
    overruled: str = ""  # why that is not the policy's choice; "" if it is
    gain_usd: float | None = None  # of a move: what the rest of the work costs less there
    cost_usd: float | None = None  # of a move: what the switch costs


class Guards:
    """Bounds the choices of policies."""

    def __init__(self, config: GuardsConfig, prices: Prices | None = None) -> None:
        self.rules = config.rules()
        self._prices = prices

    def bound(
        self,
        row: Row,
        need: Need,
        chosen: str | None,
        offers: Sequence[Offer],
        now_s: float = 0.0,
        standing: Standing | None = None,
        left_usd: float = math.inf,
    ) -> Outcome:
        """What a choice becomes.

        `chosen` and `offers` are of the row that the policy saw; `standing` is of a task that runs.
        """
        n_offers = len(offers)
        ids = [offer.offer_id for offer in offers]
        place = n_offers if chosen is None else ids.index(chosen)
        facts = self._facts(need, place, offers, now_s, standing, left_usd)
        kept = guarded(*row, place, facts, self.rules)
        goes_to = None if kept == n_offers else ids[kept]
        gain_usd = cost_usd = None
        if standing is not None and need.running and place < n_offers and need.here in ids:
            gain_usd, cost_usd = move_usd(*row[:3], ids.index(need.here), place, facts)
        if kept == place:
            return Outcome(goes_to, "", gain_usd, cost_usd)
        if safety_net(*row, place, self.rules) != place:
            return Outcome(goes_to, net_words(row, need, ids, chosen))
        if gain_usd is not None and facts.start_usd[place] <= left_usd:
            words = f"it stays: moving gains {gain_usd:.4f} USD, the switch costs {cost_usd:.4f} USD"
            return Outcome(goes_to, words, gain_usd, cost_usd)
        return Outcome(goes_to, f"budgets leave {left_usd:.4f} USD, a start there costs more")

    def _facts(
        self,
        need: Need,
        place: int,
        offers: Sequence[Offer],
        now_s: float,
        standing: Standing | None,
        left_usd: float,
    ) -> Facts:
        mean = np.zeros(len(offers))
        minimum = np.zeros(len(offers))
        start = np.zeros(len(offers))
        for k, offer in enumerate(offers):
            if standing is not None and (k == place or offer.offer_id == need.here):
                mean[k] = (
                    offer.price_usd_hour
                    if self._prices is None
                    else mean_usd_hour(offer, self._prices, now_s, self.rules.price_memory_s)
                )
                minimum[k] = offer.billing_minimum_s
            if left_usd < math.inf:
                start[k] = need.start_usd(offer)
        has = standing or Standing()
        return Facts(mean, minimum, start, left_usd, has.unsaved, has.minimum_left_s, float(has.hinted))


def net_words(row: Row, need: Need, ids: Sequence[str], chosen: str | None) -> str:
    """Why the safety net overrules a choice."""
    sure = [k for k in range(len(ids)) if row.clusters[k, col.IS_SPOT] == 0.0]
    needs_s = min(float(row.pairs[k, col.FINISH_S]) for k in sure)
    return (
        f"the deadline is in {need.allowed_s:.0f} s and on-demand capacity needs {needs_s:.0f} s: "
        f"no more time for {'waiting' if chosen is None else chosen}"
    )


def mean_usd_hour(offer: Offer, prices: Prices, now_s: float, memory_s: float) -> float:
    """Mean price of an offer over the latest `memory_s`, or since it was first seen."""
    start_s = now_s - memory_s
    quotes = prices.between(offer.offer_id, start_s, now_s)
    since = [*(max(start_s, quote.seen_s) for quote in quotes), now_s]
    whole_s = now_s - since[0]
    if whole_s <= 0:
        return offer.price_usd_hour
    total = sum(
        quote.price_micro_usd_hour * (end_s - begin_s)
        for quote, (begin_s, end_s) in zip(quotes, pairwise(since), strict=True)
    )
    return total / whole_s / micro_usd_hour(1.0)


# Budgets, of the deployment and of jobs: what is left of them, and what they still pay.


class Budgets:
    """What everything, and each job, may still cost. Without a budget it is never empty.

    What is left is what remains once everything that runs, or was asked for, has ended, which takes up to two
    passes, and once the data of starts that are intended were moved.
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

    def pay(self, job_id: str) -> float:
        """USD that a job's budget and the deployment's still pay."""
        return min(self.left_usd, self.left_of(job_id))

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
        """Reserve what a start on the offer costs."""
        usd = need.start_usd(offer)
        self.left_usd -= usd
        if need.key.job_id in self._of_jobs:
            self._of_jobs[need.key.job_id] -= usd


# Federated clients whose budget is spent: they leave, and the training goes on if enough are left.

QUORUM_KEY = "quorum"  # in a job's `run_config`: a round ends when this many clients have delivered


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
    # After the stop of its attempt, if there is one: they are done in the order of their intents.
    payload = {**about(task, task.instances), "leave": True}
    store.intents.add(IntentKind.STOP, f"{attempt_id(task)}:leave", payload, now_s)
    store.events.add("task.left", now_s, {"reason": reason}, key=task.key)


def leave_the_spent(store: Store, job: Job, now_s: float, soon_s: float) -> None:
    """Let those leave whose instances would cost more than their budget by `soon_s`, epoch seconds."""
    work = job.spec.work
    assert isinstance(work, Flower)
    budgets = budgets_of(work)
    if not budgets:
        return
    bills = store.costs.of_tasks(job.job_id, soon_s)
    for task in store.tasks.of_job(job.job_id):
        budget_usd = budgets.get(task.key.task)
        if budget_usd is None or not task.instances or task.phase is Phase.LEFT:
            continue
        if float(bills[task.key.task].usd) > budget_usd:
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
    clients = len(work.clients)
    said = work.run_config.get(QUORUM_KEY, "")
    needed = int(said) if said.isdecimal() and int(said) > 0 else 1
    remain = clients - len(left)
    if remain >= min(needed, clients):
        return ""
    names = ", ".join(task.key.task.removeprefix("client-") for task in left)
    return (
        f"{remain} of {clients} clients are left, {needed} are needed: the budget of {names} is spent; "
        "raise it or lower the quorum"
    )
