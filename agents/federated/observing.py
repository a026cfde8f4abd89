"""Any policy that reads observations, as a scheduler of whole applications."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from spotweave.agents.policy import Policy
from spotweave.envs.simulation.federations.model import Federation, Placement
from spotweave.envs.simulation.federations.observation import Observed
from spotweave.envs.simulation.federations.rounds.application import SERVER
from spotweave.envs.simulation.federations.rounds.decisions import Answer, Question
from spotweave.envs.simulation.federations.rounds.running import RunningApplication
from spotweave.envs.simulation.snapshot import empty_observation


class Observing:
    """Shows each question to a policy as `spotweave/Federated-v1` does, and takes its action as the answer.

    Args:
        policy: a rule or a network.
        measured: whether mean times are known beforehand (pre-scheduling).
        most_questions: an application with more is given up.
    """

    def __init__(self, policy: Policy, measured: bool = False, most_questions: int = 20_000) -> None:
        self.name = policy.name
        self._policy = policy
        self._measured = measured
        self._most = most_questions
        self._asked = 0

    def start(self, view: RunningApplication) -> None:
        """A new application begins."""
        self._asked = 0
        self._observation = empty_observation(1, len(view.offers), (1,))
        self._observed = Observed(view, self._observation, 0, self._measured)
        self._policy.begin(0, 0)

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        """The policy's action; a client whose budget cannot pay for the coming round leaves.

        Raises:
            ValueError: for a policy that decides for ever.
        """
        leave = self._observed.show(question)
        if leave is not None:
            return leave
        self._asked += 1
        if self._asked > self._most:
            raise ValueError(f"{view.application.name} was cut short: policy {self.name} decides for ever")
        action = int(self._policy.act_batch(self._observation, np.zeros(1, np.int64))[0])
        return self._observed.answer(question, action)


# Dynamic Scheduler of Multi-FedLS: where a task goes that lost its VM (Brum 2023, Algorithms 1-3).
#
# Algorithms 1 and 2 compute a round's makespan and cost with one task on another VM; that is what
# `Federation.outcome` computes for the changed placement (Eq. 6.4-6.6 and 6.17), so it is used here. The
# tests compare it with the listings, loop by loop.


def moved(placement: Placement, task: int, vm_type: int) -> Placement:
    """The placement with one task (a client's number, or SERVER) on another VM type."""
    if task == SERVER:
        return replace(placement, server=vm_type)
    clients = placement.clients
    return replace(placement, clients=(*clients[:task], vm_type, *clients[task + 1 :]))


def select_instance(
    federation: Federation, placement: Placement, task: int, candidates: Iterable[int], alpha: float
) -> int | None:
    """Algorithm 3 after its first line: the VM type with the smallest value, the first of equals.

    Args:
        federation: times and prices, on the markets that the tasks are rented on.
        placement: where all tasks are; where the faulty one was does not matter.
        task: the faulty task, a client's number or SERVER.
        candidates: I_t, the VM types it may go to; whether the revoked type is one of them is the caller's.
        alpha: weight of cost against makespan.

    Returns:
        The type; None without candidates.
    """
    values = {
        vm_type: federation.outcome(moved(placement, task, vm_type), alpha).objective
        for vm_type in candidates
    }
    return min(values, key=values.__getitem__) if values else None
