"""What a federated client must know of its application: who owes, how long a round takes, what is left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from spotweave.deploy.model.instances import Offer
from spotweave.deploy.model.jobs import SERVER, Flower, TaskKey, ban
from spotweave.deploy.model.tasks import Phase, TaskReport
from spotweave.deploy.scheduler.needs import Membership
from spotweave.deploy.store.instances import Instance
from spotweave.deploy.store.jobs import Job
from spotweave.deploy.store.store import Store
from spotweave.deploy.store.tasks import Task
from spotweave.envs.simulation.round_estimates import (
    ASK_AGAIN_MOST_S,
    ERROR_WEIGHT,
    RoundEstimates,
    ask_again_s,
    average,
    epoch_left_s,
    slack_s,
)

DEFAULT_EPOCH_S = 60.0  # default epoch of a client without a profile and without history


@dataclass(frozen=True)
class Stand:
    """How a client stands now, with what was decided about it in this pass."""

    owes: bool  # whether its result of the current round is still to come
    trains: bool = False  # whether it works on its epoch
    since_s: float | None = None  # since when, epoch seconds; None where that is not known
    place: Offer | None = None  # the offer of its instance, None without one
    ready_s: float | None = None  # since when that is ready; None while it is not
    warm: bool = False  # whether it has trained there


class Look(NamedTuple):
    """A client in a pass."""

    task: Task  # as the store, or where it has no place its runner, knows it
    held: Sequence[Instance]
    report: TaskReport | None  # of its runner; None: there is none


class News(NamedTuple):
    """What has changed since the look before."""

    # who is asked about now if it waits: who has delivered; all, if a round has ended or somebody has lost a
    # ready instance
    asked: Collection[str]
    came_up: Sequence[str]  # whose instance has become of use


class Rounds(RoundEstimates):
    """An application since this scheduler began to look at it.

    Attributes:
        number: of each task; -1 of the server, where that is one.
        stands: of the server and the clients that take part, by task, in this pass.
        aggregation_s: expected at the end of a round.
    """

    def __init__(self, work: Flower, set_up_s: float) -> None:
        super().__init__(len(work.clients))
        first = 0 if work.server is None else -1
        self.number = {name: k for k, name in enumerate(work.task_names, start=first)}
        self.stands: dict[str, Stand] = {}
        self.aggregation_s = work.aggregation_s or 0.0
        self._work, self._set_up_s = work, set_up_s
        self._rounds = 0
        """Number of aggregated rounds."""
        self._seen_rounds = 0
        self._delivered: dict[str, int] = {}
        """By task: rounds for which it has delivered."""
        self._epochs_s: dict[str, float | None] = {}
        """By task: seconds of its latest epoch."""
        self._on: dict[str, Instance] = {}
        """By task: the instance that it had last."""
        self._trained_on: dict[str, str] = {}
        """By task: the instance of its latest epoch."""
        self._started: set[str] = set()
        """Instances whose launch was compared with what was expected."""
        self._up: set[str] = set()
        """Tasks whose instance was ready at the latest look."""
        self._let_go: set[str] = set()
        """Tasks that gave their instance back since."""
        self._came_up: list[str] = []
        """Tasks whose instance has begun to be of use since."""
        self._offers: dict[str, Sequence[Offer]] = {}
        """By task: where it may go."""
        self._idle_since_s: dict[str, float] = {}

    def see(self, clients: Sequence[Look], now_s: float) -> News:
        """Take in how clients are."""
        self._rounds = max([self._rounds, *(look.task.executions_done for look in clients)])
        delivered = [look.task.key.task for look in clients if self._see(look, now_s)]
        up = {look.task.key.task for look in clients if look.held and look.held[0].ready_s is not None}
        ended = self._rounds > self._seen_rounds
        lost = self._up - up - self._let_go
        self._seen_rounds, self._up = self._rounds, up
        self._let_go.clear()
        came_up, self._came_up = self._came_up, []
        return News(self.number if ended or lost else delivered, came_up)

    def _see(self, look: Look, now_s: float) -> bool:
        """Take in how one is. Returns whether it has delivered since the look before."""
        task, name, k = look.task, look.task.key.task, self.number[look.task.key.task]
        if look.held:
            self._on[name] = look.held[0]
        if task.phase is Phase.WAITING and look.held:
            self._idle_since_s.setdefault(name, now_s)
        else:
            self._idle_since_s.pop(name, None)
        for one in look.held:
            if task.phase in (Phase.RUNNING, Phase.WAITING) and one.instance_id not in self._started:
                self._started.add(one.instance_id)
                self._came_up.append(name)
                self._note_launch(one)
        if look.report is None:
            return False
        before, after = self._delivered.get(name), task.executions_done + look.report.delivered
        self._delivered[name] = after
        if after <= (before or 0) or not self._own(name, task.last_execution_s):
            return False
        if task.last_execution_s is not None and name in self._on:
            on, took_s, cold_s = self._on[name], task.last_execution_s, self._work.clients[k].cold_s
            # A scheduler that has just begun to look does not know what the instance did before.
            first = before is not None and self._trained_on.get(name) != on.instance_id
            if first and cold_s is not None:
                first, took_s = False, max(1.0, took_s - cold_s / on.offer.speed)
            self.note_epoch(k, took_s * on.offer.speed, first)
            self._trained_on[name] = on.instance_id
        return True

    def _own(self, name: str, epoch_s: float | None) -> bool:
        """Whether a round's end follows an epoch of this client: asynchronous ones also end without."""
        known = self._epochs_s.get(name)
        self._epochs_s[name] = epoch_s
        return self._work.synchronous or epoch_s != known

    def _note_launch(self, one: Instance) -> None:
        """Compare a launch with the time its offer announced, unless it waited in a queue."""
        if one.ready_s is not None and not one.offer.queues:
            error_s = abs(one.ready_s - one.requested_s - one.offer.launch_s)
            self.launch_error_s = average(self.launch_error_s, error_s, ERROR_WEIGHT)

    def stand(self, look: Look, offers: Sequence[Offer]) -> None:
        """Note how a client that takes part stands, and where it may go."""
        name, mine = look.task.key.task, look.held[0] if look.held else None
        self._offers[name] = offers
        self.stands[name] = Stand(
            owes=name != SERVER and self._delivered.get(name, 0) <= self._rounds,
            trains=look.task.phase is Phase.RUNNING,
            since_s=None if look.report is None else look.report.execution_since_s,
            place=None if mine is None else mine.offer,
            ready_s=None if mine is None else mine.ready_s,
            warm=mine is not None and self._trained_on.get(name) == mine.instance_id,
        )

    def decided(self, name: str, offer: Offer | None) -> None:
        """A client goes to an offer, or is without an instance from now on."""
        before = self.stands.get(name)
        if before is None:
            return
        if before.place is not None:
            self._let_go.add(name)
        self.stands[name] = Stand(before.owes, place=offer)

    def _start_s(self, offer: Offer) -> float:
        return offer.launch_s + self._set_up_s

    def _speed(self, name: str) -> float:
        place = self.stands[name].place
        return 1.0 if place is None else place.speed

    def rounds_left(self, name: str) -> int:
        """Rounds for which a client has not delivered yet."""
        return max(0, self._work.rounds - max(self._rounds, self._delivered.get(name, 0)))

    def idle_s(self, name: str, now_s: float) -> float:
        """Since when it holds an instance that has nothing to do; 0 if it does not."""
        return now_s - self._idle_since_s.get(name, now_s)

    def warm_s(self, name: str) -> float:
        """A client's part of a round on an instance that has trained before, at speed 1; the server's."""
        if name == SERVER:
            return max(1.0, self.aggregation_s)
        k = self.number[name]
        told_s = self._work.clients[k].epoch_s or self._work.epoch_s
        return self.epoch_s(k, cold=False) or told_s or DEFAULT_EPOCH_S

    def cold_s(self, name: str) -> float:
        """What its first epoch on a new instance takes longer, at speed 1; 0 while unknown."""
        if name == SERVER:
            return 0.0
        k = self.number[name]
        told_s = self._work.clients[k].cold_s
        return (self.cold_extra_s(k) or 0.0) if told_s is None else told_s

    def round_s(self) -> float:
        """Expected seconds of a whole round."""
        epochs_s = [self.warm_s(name) / self._speed(name) for name in self.stands if name != SERVER]
        return max(epochs_s, default=0.0) + self.aggregation_s

    def round_left_s(self, but: str, now_s: float) -> float:
        """Expected seconds until all others have delivered; 0 if none of them owes, or nobody waits for them.

        So a client of an asynchronous application that has lost its instance has no time to wait for a
        cheaper one, as in a round that it alone holds up.
        """
        if not self._work.synchronous:
            return 0.0
        owing = [name for name, stand in self.stands.items() if name != but and stand.owes]
        left_s = max((self._result_s(name, now_s) for name in owing), default=0.0)
        if left_s > 0 and but != SERVER and SERVER in self.stands:
            left_s = max(left_s, self._server_s(now_s))
        return left_s

    def _server_s(self, now_s: float) -> float:
        """Expected seconds until the server has an instance that is set up; 0 if it has."""
        stand = self.stands[SERVER]
        if stand.place is None:
            return min((self._start_s(one) for one in self._offers[SERVER]), default=0.0)
        if stand.trains:
            return 0.0
        if stand.ready_s is not None:
            return max(0.0, stand.ready_s + self._set_up_s - now_s)
        return self._start_s(stand.place)

    def _result_s(self, name: str, now_s: float) -> float:
        """Expected seconds until a client that owes has delivered; at least 1."""
        stand = self.stands[name]
        if stand.place is None:
            # Were it slower than it can be, clients would wait for each other for ever.
            return min((sum(self._fresh_s(name, one)) for one in self._offers[name]), default=1.0)
        cold_s = 0.0 if stand.warm else self.cold_s(name)
        needed_s = (self.warm_s(name) + cold_s) / stand.place.speed
        if stand.trains:
            lasted_s = 0.0 if stand.since_s is None else max(0.0, now_s - stand.since_s)
            return max(1.0, float(epoch_left_s(needed_s, lasted_s, True)))
        if stand.ready_s is not None:
            return max(1.0, needed_s + max(0.0, stand.ready_s + self._set_up_s - now_s))
        return max(1.0, needed_s + self._start_s(stand.place))

    def _fresh_s(self, name: str, offer: Offer) -> tuple[float, float]:
        return self._start_s(offer), (self.warm_s(name) + self.cold_s(name)) / offer.speed

    def others_usd_hour(self, but: str, prices: Mapping[str, float]) -> float:
        """Price of the instances that run for the others now."""
        held = [
            stand.place
            for name, stand in self.stands.items()
            if name != but and stand.place is not None and stand.ready_s is not None
        ]
        return round(sum(prices.get(place.offer_id, place.price_usd_hour) for place in held), 6)

    def ask_again_s(self, name: str, now_s: float, late_s: float) -> float:
        """After how long a client is asked again, unless a round ends or somebody is interrupted before.

        One that is late is asked like any job, after `late_s`.
        """
        stand = self.stands[name]
        if stand.place is not None:
            return ASK_AGAIN_MOST_S
        left_s, round_s = self.round_left_s(name, now_s), self.round_s()
        starts = [self._fresh_s(name, offer) for offer in self._offers[name]]
        slacks = [slack_s(stand.owes, left_s, round_s, start_s, epoch_s) for start_s, epoch_s in starts]
        most_s = max(slacks, default=0.0)
        return float(int(ask_again_s(most_s))) if most_s > 0.0 else late_s


@dataclass(frozen=True)
class Pass:
    """What a pass of the loop sees."""

    now_s: float = 0.0
    offers: Sequence[Offer] = ()
    held: Mapping[TaskKey, Sequence[Instance]] = field(default_factory=dict)
    told: Mapping[TaskKey, TaskReport] = field(default_factory=dict)


class Memberships:
    """Looks at applications."""

    def __init__(self, store: Store, set_up_s: float) -> None:
        self._store, self._set_up_s = store, set_up_s
        self._known: dict[str, Rounds] = {}
        self._left_usd: dict[str, Mapping[str, float]] = {}
        self._prices: Mapping[str, float] = {}
        self._pass = Pass()

    def see(self, jobs: Mapping[str, Job], placed: Sequence[Task], seen: Pass) -> Mapping[str, News]:
        """Take in a pass: all that has changed since the one before. Returns what has changed, by job."""
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
        """Index of a client in its job; the server comes before them."""
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
        budgets = budgets_of(job.spec.work)
        bills = self._store.costs.of_tasks(job.job_id, self._pass.now_s) if budgets else {}
        self._left_usd[job.job_id] = {
            name: budget_usd - float(bills[name].usd) for name, budget_usd in budgets.items()
        }
        where: dict[tuple[str | None, bool], Sequence[Offer]] = {}
        for task in self._store.tasks.of_job(job.job_id):
            if task.phase is not Phase.LEFT:
                name = task.key.task
                kind = job.spec.work.region_of(name), name == SERVER
                if kind not in where:
                    wanted, places = job.spec.resources_of(name), job.spec.places_of(name)
                    where[kind] = [one for one in self._pass.offers if not ban(wanted, places, one)]
                known.stand(self._look_at(task), where[kind])

    def member(self, key: TaskKey) -> Membership | None:
        """A client, or the server, of a job that was looked at; None for others."""
        known, name, now_s = self._known.get(key.job_id), key.task, self._pass.now_s
        if known is None or name not in known.stands:
            return None
        stand = known.stands[name]
        return Membership(
            is_server=name == SERVER,
            owes=stand.owes or name == SERVER,
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

    def ask_again_s(self, key: TaskKey, late_s: float) -> float:
        """After how long a client that was decided about is asked again."""
        return self._known[key.job_id].ask_again_s(key.task, self._pass.now_s, late_s)

    def keep_only(self, job_ids: Collection[str]) -> None:
        """Forget all other applications."""
        self._known = {job_id: known for job_id, known in self._known.items() if job_id in job_ids}


def budgets_of(work: Flower) -> dict[str, float]:
    """By task: the budgets in USD of the clients that have one."""
    return {
        f"client-{client.name}": client.budget_usd for client in work.clients if client.budget_usd is not None
    }
