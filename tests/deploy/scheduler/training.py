"""Federated trainings in virtual time: synchronous rounds, as the Flower runner tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.simulated import SimulatedCloud, SimulatedOffer, SimulatedRunner
from spotweave.agents.policy import Policy
from spotweave.deploy.model.instances import InstanceState
from spotweave.deploy.model.jobs import SERVER, Flower, FlowerClient, JobSpec, TaskKey
from spotweave.deploy.model.tasks import Assignment, Phase, TaskReport
from tests.deploy.scheduler.worlds import World


@dataclass
class Training:
    """One application as it really is."""

    epochs_s: dict[str, float]  # by task, at speed 1
    rounds: int  # in all
    done: int = 0  # rounds that are finished
    began_s: float = 0.0  # when the present one did
    present_s: dict[str, float] = field(default_factory=dict)  # since when each task that is there is
    delivered_s: dict[str, float] = field(default_factory=dict)  # when each client of this round did
    ended_s: float | None = None  # when the last round did
    served: bool = False  # whether the server has a place of its own; nothing is delivered without it
    lost: int = 0  # how often the server was
    attempts: dict[str, int] = field(default_factory=dict)

    def settle(self, now_s: float) -> None:
        while self.ended_s is None:
            if self.served and SERVER not in self.present_s:
                return
            for name, since_s in self.present_s.items():
                if name == SERVER:
                    continue
                end_s = max(self.began_s, since_s, self.present_s.get(SERVER, 0.0)) + self.epochs_s[name]
                if name not in self.delivered_s and end_s <= now_s:
                    self.delivered_s[name] = end_s
            if set(self.epochs_s) - set(self.delivered_s):
                return
            self.done += 1
            self.began_s = max(self.delivered_s.values())
            self.delivered_s.clear()
            if self.done == self.rounds:
                self.ended_s = self.began_s

    def lose_server(self, now_s: float) -> None:
        """Its round begins again with the next one."""
        self.settle(now_s)
        if self.present_s.pop(SERVER, None) is not None:
            self.delivered_s.clear()
            self.lost += 1

    def since_s(self, name: str) -> float | None:
        if name in self.delivered_s or name not in self.present_s:
            return None
        return max(self.began_s, self.present_s[name], self.present_s.get(SERVER, 0.0))


class RoundsRunner(SimulatedRunner):
    """Runs federated trainings with rounds; other jobs as its base does."""

    def __init__(
        self, cloud: SimulatedCloud, epochs_s: dict[str, float], trainings: dict[str, Training]
    ) -> None:
        super().__init__(cloud)
        self.epochs_s, self.trainings = epochs_s, trainings

    def ensure(self, assignment: Assignment) -> None:
        work = assignment.spec.work
        assert isinstance(work, Flower)
        epochs_s = {f"client-{one.name}": self.epochs_s[one.name] for one in work.clients}
        made = Training(epochs_s, work.rounds, served=work.server is not None)
        training = self.trainings.setdefault(assignment.key.job_id, made)
        now_s = self.cloud.clock.now()
        training.settle(now_s)
        name = assignment.key.task
        known = name in training.epochs_s or name == SERVER
        if training.attempts.get(name) != assignment.attempt and known:
            training.attempts[name] = assignment.attempt
            training.present_s[name] = now_s

    def reports(self, assignments: Sequence[Assignment]) -> Sequence[TaskReport]:
        self.cloud.settle()
        return [self._tell(assignment) for assignment in assignments]

    def _tell(self, assignment: Assignment) -> TaskReport:
        key, now_s = assignment.key, self.cloud.clock.now()
        training = self.trainings.get(key.job_id)
        if training is None:
            return TaskReport(key, assignment.attempt, Phase.LOST, message="it was never started")
        lives = bool(assignment.nodes) and self._lives(assignment)
        if key.task == SERVER and not lives:
            training.lose_server(now_s)
        training.settle(now_s)
        delivered = key.task in training.delivered_s
        if training.ended_s is not None:
            phase = Phase.SUCCEEDED
        elif not assignment.nodes:
            phase = Phase.WAITING if delivered else Phase.STARTING
        elif not lives:
            phase = Phase.LOST
            training.present_s.pop(key.task, None)
        else:
            phase = Phase.WAITING if delivered else Phase.RUNNING
        return TaskReport(
            key,
            assignment.attempt,
            phase,
            executions_done=training.done,
            last_execution_s=training.epochs_s.get(key.task) if training.done else None,
            delivered=delivered,
            execution_since_s=training.since_s(key.task),
        )

    def _lives(self, assignment: Assignment) -> bool:
        name = self.cloud._by_own_id[assignment.nodes[0].instance_id]
        return self.cloud.machines[name].report.state is InstanceState.RUNNING

    def drain(self, assignment: Assignment, instance_ids: Sequence[str], within_s: float) -> None:
        """Nothing is kept of an epoch."""

    def stop(self, assignment: Assignment) -> None:
        training = self.trainings.get(assignment.key.job_id)
        if training is not None and training.attempts.get(assignment.key.task) == assignment.attempt:
            training.settle(self.cloud.clock.now())
            if assignment.key.task == SERVER:
                training.lose_server(self.cloud.clock.now())
            training.present_s.pop(assignment.key.task, None)

    def leave(self, assignment: Assignment) -> None:
        training = self.trainings.get(assignment.key.job_id)
        if training is not None:
            for known in (training.epochs_s, training.present_s, training.delivered_s):
                known.pop(assignment.key.task, None)


class TrainingWorld(World):
    """A quick client and a slow one."""

    def __init__(
        self,
        folder: Path,
        offers: list[SimulatedOffer],
        policy: str | Policy = "cheapest",
        **epochs_s: float,
    ) -> None:
        self.epochs_s = epochs_s
        self.trainings: dict[str, Training] = {}
        super().__init__(folder, offers, policy)

    def runs(self) -> RoundsRunner:
        return RoundsRunner(self.cloud, self.epochs_s, self.trainings)


A, B = FlowerClient(name="a"), FlowerClient(name="b")


def federated(rounds: int, *clients: FlowerClient, **changes: object) -> JobSpec:
    work = Flower(app="app", rounds=rounds, clients=clients, **changes)  # type: ignore[arg-type]
    return JobSpec(name="fl", work=work)


def key_of(job_id: str, client: str) -> TaskKey:
    return TaskKey(job_id, f"client-{client}")
