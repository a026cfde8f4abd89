"""What a federated client must know of its application: who owes, how long a round takes, what is left."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from deploy.billing import usd
from deploy.model.instances import Offer
from deploy.model.jobs import Flower, FlowerClient, Places, TaskKey
from deploy.model.tasks import Phase, TaskReport
from deploy.scheduler.snapshot.needs import ban
from deploy.scheduler.snapshot.rounds import Look, News, Rounds
from deploy.store.instances import Instance
from deploy.store.jobs import Job
from deploy.store.store import Store
from deploy.store.tasks import Task
from envs.simulation.snapshot import HISTORY_STEPS


@dataclass(frozen=True)
class Membership:
    """A client's place in its application.

    Attributes:
        owes: whether its result of the current round is still to come.
        round_left_s: expected seconds until all others have delivered.
        round_s: expected seconds of a whole round.
        rounds_left: for which it has not delivered.
        epoch_s: its part of a round at speed 1, on an instance that has trained before.
        others_usd_hour: what the others' instances cost.
        budget_left_usd: None without a budget.
        cold_s: what its first epoch on a new instance takes longer, at speed 1; 0 while unknown.
        time_error_s: by how much expected ends of rounds and launches were off lately; 0 while unknown.
        aggregation_s: expected seconds of an aggregation, which `round_s` includes.
        idle_s: since when its instance has nothing to do; 0 if that is not so.
        warm: whether it has trained on the instance that it holds.
    """

    owes: bool
    round_left_s: float
    round_s: float
    rounds_left: int
    epoch_s: float
    others_usd_hour: float
    budget_left_usd: float | None
    cold_s: float = 0.0
    time_error_s: float = 0.0
    aggregation_s: float = 0.0
    idle_s: float = 0.0
    warm: bool = True


@dataclass(frozen=True)
class Pass:
    """What a pass of the loop sees.

    Attributes:
        now_s: epoch seconds.
        offers: as they are.
        held: by task: the instances that it holds.
        told: what runners say of federated clients.
    """

    now_s: float = 0.0
    offers: Sequence[Offer] = ()
    held: Mapping[TaskKey, Sequence[Instance]] = field(default_factory=dict)
    told: Mapping[TaskKey, TaskReport] = field(default_factory=dict)


class Memberships:
    """Looks at applications.

    Args:
        store: of the deployment.
        set_up_s: expected from a ready instance to work.
    """

    def __init__(self, store: Store, set_up_s: float) -> None:
        self._store = store
        self._set_up_s = set_up_s
        self._known: dict[str, Rounds] = {}
        self._left_usd: dict[str, Mapping[str, float]] = {}
        self._prices: Mapping[str, float] = {}
        self._pass = Pass()

    def see(self, jobs: Mapping[str, Job], placed: Sequence[Task], seen: Pass) -> Mapping[str, News]:
        """Take in a pass: all that has changed since the one before.

        Args:
            jobs: of the tasks with a place, and of those that runners told of.
            placed: all tasks with a place.
            seen: in this pass.

        Returns:
            What has changed, by job.
        """
        self._pass, self._left_usd = seen, {}
        self._prices = {offer.offer_id: offer.price_usd_hour for offer in seen.offers}
        by_job: defaultdict[str, list[Look]] = defaultdict(list)
        here = {task.key for task in placed}
        others = self._store.tasks.named([key for key in seen.told if key not in here]).values()
        for task in (*placed, *(task for task in others if task.phase is None)):
            if isinstance(jobs[task.key.job_id].spec.work, Flower):
                by_job[task.key.job_id].append(self._look_at(task))
        for known in self._known.values():
            known.stands.clear()
        return {job_id: self._of(jobs[job_id]).see(looks, seen.now_s) for job_id, looks in by_job.items()}

    def _of(self, job: Job) -> Rounds:
        if job.job_id not in self._known:
            assert isinstance(job.spec.work, Flower)
            self._known[job.job_id] = Rounds(job.spec.work, self._set_up_s)
        return self._known[job.job_id]

    def position(self, job: Job, key: TaskKey) -> int:
        """Index of a client in its job."""
        return self._of(job).number[key.task]

    def _look_at(self, task: Task) -> Look:
        """How a task stands in this pass; without a place, as its runner reports it."""
        said = self._pass.told.get(task.key)
        held = [one for one in self._pass.held.get(task.key, ()) if one.instance_id in task.instances]
        if task.phase is None and said is not None:
            done = max(task.executions_done, said.executions_done)
            task = replace(
                task, phase=said.phase, executions_done=done, last_execution_s=said.last_execution_s
            )
        return Look(task, held, said)

    def look(self, job: Job) -> None:
        """See how all clients of a federated job stand in this pass, before `member` is asked."""
        known = self._of(job)
        assert isinstance(job.spec.work, Flower)
        known.stands.clear()
        self._left_usd[job.job_id] = self._budgets_left_usd(job, job.spec.work)
        where: dict[str | None, Sequence[Offer]] = {}
        for task in self._store.tasks.of_job(job.job_id):
            if task.phase is not Phase.LEFT:
                region, places = client_of(job, task.key).region, places_of(job, task.key)
                if region not in where:
                    resources = job.spec.resources
                    where[region] = [one for one in self._pass.offers if not ban(resources, places, one)]
                known.stand(self._look_at(task), where[region])

    def member(self, key: TaskKey) -> Membership | None:
        """A client of a job that was looked at; None for others."""
        known, name, now_s = self._known.get(key.job_id), key.task, self._pass.now_s
        if known is None or name not in known.stands:
            return None
        stand = known.stands[name]
        return Membership(
            owes=stand.owes,
            round_left_s=known.round_left_s(name, now_s),
            round_s=known.round_s(),
            rounds_left=known.rounds_left(name),
            epoch_s=known.warm_s(name),
            others_usd_hour=known.others_usd_hour(name, self._prices),
            budget_left_usd=self._left_usd[key.job_id].get(name),
            cold_s=known.cold_s(name),
            time_error_s=known.error_s(known.number[name]),
            aggregation_s=known.aggregation_s,
            idle_s=known.idle_s(name, now_s),
            warm=stand.warm,
        )

    def decided(self, key: TaskKey, offer: Offer | None) -> None:
        """A client goes to an offer, or is without an instance from now on."""
        self._known[key.job_id].decided(key.task, offer)

    def ask_again_s(self, key: TaskKey) -> float:
        """After how long a client that was decided about is asked again."""
        return self._known[key.job_id].ask_again_s(key.task, self._pass.now_s)

    def _budgets_left_usd(self, job: Job, work: Flower) -> dict[str, float]:
        if all(client.budget_usd is None for client in work.clients):
            return {}
        bills = self._store.costs.of_tasks(job.job_id, self._pass.now_s)
        return {
            f"client-{client.name}": client.budget_usd - float(usd(bills[f"client-{client.name}"].cost))
            for client in work.clients
            if client.budget_usd is not None
        }

    def keep_only(self, job_ids: Collection[str]) -> None:
        """Forget all other applications."""
        self._known = {job_id: known for job_id, known in self._known.items() if job_id in job_ids}


def client_of(job: Job, key: TaskKey) -> FlowerClient:
    """The participant behind a task of a federated job."""
    work = job.spec.work
    assert isinstance(work, Flower)
    return next(client for client in work.clients if f"client-{client.name}" == key.task)


def places_of(job: Job, key: TaskKey) -> Places:
    """Places of a client: data stay where they are, so one with a region trains there or nowhere."""
    region = client_of(job, key).region
    return job.spec.places if region is None else job.spec.places.model_copy(update={"regions": (region,)})


# How full each offer has been lately: the history that snapshots show.

SAMPLE_S = 300.0
"""Between two samples, as in the simulated market."""
MEAN_STEPS = 100


class Occupancy:
    """The latest `HISTORY_STEPS` samples of used instances by offer, at whole multiples of `SAMPLE_S`."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[int]] = {}
        self._taken = 0
        self._next_s: float | None = None
        self._used: Mapping[str, int] = {}

    @classmethod
    def of(cls, histories: Mapping[str, Iterable[int]]) -> Occupancy:
        """With given samples of used instances by offer, the latest last."""
        made = cls()
        for offer, history in histories.items():
            made._samples[offer] = deque(history, maxlen=HISTORY_STEPS)
            made._taken = max(made._taken, len(made._samples[offer]))
        return made

    def sample(self, now_s: float) -> None:
        """Take every sample that is due up to `now_s`: of what was in use since the latest `hold`."""
        if self._next_s is None:
            self._next_s = math.ceil(now_s / SAMPLE_S) * SAMPLE_S
        while self._next_s <= now_s:
            for offer in {*self._samples, *self._used}:
                ring = self._samples.setdefault(offer, deque(maxlen=HISTORY_STEPS))
                ring.append(self._used.get(offer, 0))
            self._taken += 1
            self._next_s += SAMPLE_S

    def hold(self, used: Mapping[str, int]) -> None:
        """This many instances are in use on each offer from now on; those left out have none."""
        self._used = dict(used)

    def ratios(self, offer: str, quota: int) -> NDArray[np.float32]:
        """(HISTORY_STEPS,) used / quota within 0..1, latest last, 0 before the first sample."""
        row = np.zeros(HISTORY_STEPS, np.float32)
        ring = self._samples.get(offer)
        if ring and quota > 0:
            row[HISTORY_STEPS - len(ring) :] = np.minimum(1.0, np.array(ring, np.float32) / quota)
        return row

    def mean(self, offer: str, quota: int) -> float:
        """Mean ratio of the latest 100 samples, those among them in which the offer was not used yet."""
        ring = self._samples.get(offer)
        if not ring or quota <= 0:
            return 0.0
        latest = list(ring)[-MEAN_STEPS:]
        return min(1.0, sum(latest) / (min(self._taken, MEAN_STEPS) * quota))
