"""Policies that correct the expected costs of a rule by a network: one hidden layer over each choice."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.vector_policy import VectorPolicy
from envs.simulation.snapshot import Observation, take_rows

Floats = NDArray[np.float32]


class Weighed(NamedTuple):
    """n decisions, as the rule and the network see them.

    Attributes:
        valid: (n, C + 1).
        cost: (n, C + 1) expected by the rule.
        unit: (n,) what costs are divided by.
        task: (n, T) columns of each task.
        choice: (n, C + 1, K) of each of its choices.
    """

    valid: NDArray[np.bool_]
    cost: NDArray[np.float64]
    unit: NDArray[np.float64]
    task: Floats
    choice: Floats


class CorrectingPolicy(VectorPolicy):
    """Takes the choice with the lowest expected cost less the network's output, in units of the cost."""

    @abstractmethod
    def weighed(self, observations: Observation) -> Weighed:
        """What the rule expects, and what the network reads."""

    def act_with(
        self,
        vectors: NDArray[np.float32],
        observations: Observation,
        rows: NDArray[np.int64],
        which: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """(n,) flat actions for the rows of the observations, row k decided by vectors[which[k]].

        Raises:
            ValueError: if an observation has no valid action.
        """
        valid, cost, unit, task, choice = self.weighed(take_rows(observations, rows))
        if not valid.any(1).all():
            row = int(rows[np.argmin(valid.any(1))])
            raise ValueError(f"policy {self.name}: observation {row} offers no valid action, expected a task")
        score = correction(self.network.layout.hidden, vectors[which], task, choice)
        score -= (cost / unit[:, None]).astype(np.float32)
        score[~valid] = -np.inf
        return np.asarray(score.argmax(1), np.int64)


def correction(hidden: int, vectors: Floats, task: Floats, choice: Floats) -> Floats:
    """(n, C + 1) outputs for n decisions.

    The weights lie as `agents.vector_policy.Layout` says, with one output and direct weights of the columns
    of a choice, then those of the task for "none", the last choice.

    Args:
        hidden: hidden units.
        vectors: (n, size) the weights that decide each row.
        task: (n, T) columns of each task.
        choice: (n, C + 1, K) of each of its choices.
    """
    n, n_task = task.shape
    n_choice = choice.shape[2]
    edge = n_task * hidden
    end = edge + n_choice * hidden
    task_weights = vectors[:, :edge].reshape(n, n_task, hidden)
    choice_weights = vectors[:, edge:end].reshape(n, n_choice, hidden)
    bias, out = vectors[:, end : end + hidden], vectors[:, end + hidden : end + 2 * hidden]
    direct = vectors[:, end + 2 * hidden : end + 2 * hidden + n_choice]
    waiting = vectors[:, end + 2 * hidden + n_choice :]
    base = np.matmul(task[:, None], task_weights)[:, 0] + bias
    units = np.maximum(0.0, base[:, None] + np.matmul(choice, choice_weights))
    score = np.matmul(units, out[..., None])[..., 0] + np.matmul(choice, direct[..., None])[..., 0]
    score[:, -1] += (task * waiting).sum(1)
    result: Floats = score.astype(np.float32)
    return result
