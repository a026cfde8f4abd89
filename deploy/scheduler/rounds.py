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
        epoch_s: its part of a round at speed 1.
        others_usd_hour: what the others' instances cost.
        budget_left_usd: None without a budget.
        cold_s: what its first epoch on a new instance takes longer; 0 while that is unknown.
        time_error_s: by how much expected ends of rounds and launches were off; 0 while unknown.
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


class Rounds:
    """Looks at applications.

    Args:
        store: of the deployment.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._speeds: dict[TaskKey, float] = {}
        """Speed of what each client had last: its epochs were measured there."""

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
        tasks = [task for task in self._store.tasks.of_job(job.job_id) if task.phase is not Phase.LEFT]
        usd_hour = {}
        for task in tasks:
            mine = held.get(task.key, ())
            usd_hour[task.key] = sum(one.offer.price_usd_hour for one in mine)
            if mine:
                self._speeds[task.key] = mine[0].offer.speed
        took_s = {task.key: task.last_execution_s or work.epoch_s or DEFAULT_EPOCH_S for task in tasks}
        epochs_s = {
            task.key: took_s[task.key]
            * (self._speeds.get(task.key, 1.0) if task.last_execution_s is not None else 1.0)
            for task in tasks
        }
        left_usd = self._budgets_left_usd(job, work, now_s)
        round_s = max(took_s.values(), default=0.0)
        all_usd_hour = sum(usd_hour.values())
        found = {}
        for task in tasks:
            said = told.get(task.key) if task.phase is None else None
            left_s = (task.round_left_s if said is None else said.round_left_s) or 0.0
            done = max(task.executions_done, 0 if said is None else said.executions_done)
            phase = task.phase if said is None else said.phase
            found[task.key] = Membership(
                owes=phase is not Phase.WAITING,
                round_left_s=left_s,
                round_s=max(round_s, left_s),
                rounds_left=max(0, work.rounds - done),
                epoch_s=epochs_s[task.key],
                others_usd_hour=all_usd_hour - usd_hour[task.key],
                budget_left_usd=left_usd.get(task.key.task),
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

    def keep_only(self, keys: Collection[TaskKey]) -> None:
        """Forget all others."""
        for key in [key for key in self._speeds if key not in keys]:
            del self._speeds[key]


def client_of(job: Job, key: TaskKey) -> FlowerClient:
    """The participant behind a task of a federated job."""
    work = job.spec.work
    assert isinstance(work, Flower)
    return next(client for client in work.clients if f"client-{client.name}" == key.task)
