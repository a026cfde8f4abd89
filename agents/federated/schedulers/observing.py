"""Any policy that reads observations, as a scheduler of whole applications."""

from __future__ import annotations

import numpy as np

from agents.policy import Policy
from envs.simulation.federations.episodes.picture import Observed
from envs.simulation.federations.rounds.decisions import Answer, Question
from envs.simulation.federations.rounds.running import RunningApplication
from envs.simulation.snapshot import empty_observation


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
