"""What a federated client must know of its application: who owes, how long a round takes, what is left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from deploy.billing import usd
from deploy.model.jobs import Flower, FlowerClient, TaskKey
from deploy.model.tasks import Phase, TaskReport
from deploy.store.instances import Instance
from deploy.store.jobs import Job
from deploy.store.store import Store
from deploy.store.tasks import Task
from envs.simulation.round_estimates import RoundEstimates

DEFAULT_EPOCH_S = 60.0
"""Of a client that says nothing and of which nothing was seen."""


@dataclass(frozen=True)
class Membership:
    """A client's place in its application.

    Attributes:
        owes: whether its result of the current round is still to come.
        round_left_s: expected seconds until all others have delivered.
        round_s: expected seconds of a whole round.
        rounds_left: that are not finished.
        epoch_s: its part of a round at speed 1, on an instance that has trained before.
        others_usd_hour: what the others' instances cost.
        budget_left_usd: None without a budget.
        cold_s: what its first epoch on a new instance takes longer, at speed 1; 0 while unknown.
        time_error_s: by how much expected ends of rounds and launches were off lately; 0 while unknown.
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


class _Known(RoundEstimates):
    """What one application has shown since this scheduler began to look at it."""

    def __init__(self, tasks: Sequence[str]) -> None:
        super().__init__(len(tasks))
        self.number = {task: k for k, task in enumerate(tasks)}
        self._done: dict[str, int] = {}
        """By task: the rounds that were done when it was looked at last."""
        self._on: dict[str, tuple[str, float]] = {}
        """By task: the instance that it had last, and its speed."""
        self._trained_on: dict[str, str] = {}
        """By task: the instance of its latest epoch."""
        self._ready: set[str] = set()

    def see(self, task: Task, held: Sequence[Instance], done: int) -> None:
        """Take in how a task stands, `done` rounds being finished."""
        name, k = task.key.task, self.number[task.key.task]
        if held:
            self._on[name] = (held[0].instance_id, held[0].offer.speed)
        if done > self._done.get(name, 0) and task.last_execution_s is not None and name in self._on:
            instance_id, speed = self._on[name]
            # A scheduler that has just begun to look does not know what the instance did before.
            first = name in self._done and self._trained_on.get(name) != instance_id
            self.note_epoch(k, task.last_execution_s * speed, first)
            self._trained_on[name] = instance_id
        self._done[name] = done
        for one in held:
            if one.ready_s is not None and one.instance_id not in self._ready:
                self._ready.add(one.instance_id)
                self.note_spin_up(k, one.ready_s - one.requested_s)


class Memberships:
    """Looks at applications.

    Args:
        store: of the deployment.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, _Known] = {}

    def members(
        self,
        job: Job,
        held: Mapping[TaskKey, Sequence[Instance]],
        told: Mapping[TaskKey, TaskReport],
        now_s: float,
    ) -> dict[TaskKey, Membership]:
        """All clients of an application.

        Args:
            job: whose work is federated.
            held: by task: the instances that it holds.
            told: what its runner says of clients that hold none.
            now_s: epoch seconds.
        """
        work = job.spec.work
        assert isinstance(work, Flower)
        if job.job_id not in self._known:
            self._known[job.job_id] = _Known([f"client-{client.name}" for client in work.clients])
        known = self._known[job.job_id]
        tasks = [task for task in self._store.tasks.of_job(job.job_id) if task.phase is not Phase.LEFT]
        usd_hour, epochs_s, took_s, done = {}, {}, {}, {}
        for task in tasks:
            mine = held.get(task.key, ())
            said = told.get(task.key) if task.phase is None else None
            done[task.key] = max(task.executions_done, 0 if said is None else said.executions_done)
            known.see(task, mine, done[task.key])
            usd_hour[task.key] = sum(one.offer.price_usd_hour for one in mine)
            measured_s = known.epoch_s(known.number[task.key.task], cold=False)
            epochs_s[task.key] = measured_s or task.last_execution_s or work.epoch_s or DEFAULT_EPOCH_S
            took_s[task.key] = epochs_s[task.key] / (mine[0].offer.speed if mine else 1.0)
        left_usd = self._budgets_left_usd(job, work, now_s)
        round_s = max(took_s.values(), default=0.0)
        all_usd_hour = sum(usd_hour.values())
        found = {}
        for task in tasks:
            k = known.number[task.key.task]
            said = told.get(task.key) if task.phase is None else None
            left_s = (task.round_left_s if said is None else said.round_left_s) or 0.0
            phase = task.phase if said is None else said.phase
            found[task.key] = Membership(
                owes=phase is not Phase.WAITING,
                round_left_s=left_s,
                round_s=max(round_s, left_s),
                rounds_left=max(0, work.rounds - done[task.key]),
                epoch_s=epochs_s[task.key],
                others_usd_hour=all_usd_hour - usd_hour[task.key],
                budget_left_usd=left_usd.get(task.key.task),
                cold_s=known.cold_extra_s(k) or 0.0,
                time_error_s=known.error_s(k),
            )
        return found

    def _budgets_left_usd(self, job: Job, work: Flower, now_s: float) -> dict[str, float]:
        if all(client.budget_usd is None for client in work.clients):
            return {}
        bills = self._store.costs.of_tasks(job.job_id, now_s)
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
