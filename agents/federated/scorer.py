"""The learned policy for federated tasks: the expected cost of each choice, corrected by a small network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.evolved import EvolvedPolicy, VectorWeights
from agents.federated.cost import RoundParameters, weigh
from agents.federated.features import N_CHOICE, N_TASK, describe
from envs.simulation.snapshot import Observation, take_rows


@dataclass(frozen=True)
class RoundLayout:
    """The parts of the vector, in order: input weights (tasks, then choices), bias, outputs, direct weights.

    Attributes:
        hidden: H, hidden units.
    """

    hidden: int

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise ValueError(f"a scorer needs at least 1 hidden unit, got {self.hidden}")

    @property
    def inputs(self) -> int:
        """Weights between the features and the hidden units."""
        return (N_TASK + N_CHOICE) * self.hidden

    @property
    def size(self) -> int:
        """Length of the vector: the parts above, and for "none" a direct weight of each task feature."""
        return self.inputs + 2 * self.hidden + N_CHOICE + N_TASK

    def start(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """(size,) random input weights, outputs of 0: an untrained scorer adds nothing to its rule."""
        vector = np.zeros(self.size, np.float32)
        vector[: self.inputs] = rng.normal(0.0, 1.5 / np.sqrt(N_TASK + N_CHOICE), self.inputs)
        return vector

    def scales(self) -> NDArray[np.float32]:
        """(size,) by how much each weight is varied in a search, relative to the others."""
        scales = np.ones(self.size, np.float32)
        scales[: self.inputs] = 0.15
        outputs = self.inputs + self.hidden
        scales[outputs : outputs + self.hidden] = 0.5
        scales[outputs + self.hidden :] = 0.7
        return scales


class RoundScorer(VectorWeights):
    """The weights of one scorer for federated tasks.

    Attributes:
        layout: sizes.
    """

    def __init__(self, hidden: int) -> None:
        self.layout = RoundLayout(hidden)
        super().__init__(self.layout, hidden)


class RoundScorerPolicy(EvolvedPolicy):
    """Takes the choice with the lowest expected cost less the network's output, in units of a start.

    It takes no draw and remembers nothing; one network serves any number of offers.

    Args:
        network: the weights.
        name: shown in tables.
        parameters: of the expected cost.
    """

    def __init__(self, network: RoundScorer, name: str, parameters: RoundParameters | None = None) -> None:
        self._network = network
        self.name = name
        self.parameters = parameters if parameters is not None else RoundParameters()

    @property
    def network(self) -> RoundScorer:
        """The weights."""
        return self._network

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions for observations with a leading axis of n.

        Raises:
            ValueError: if an observation has no valid action.
        """
        n = len(observations["jobs"])
        return self.act_with(self.network.vector[None], observations, np.arange(n), np.zeros(n, np.int64))

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
        seen = take_rows(observations, rows)
        choices = weigh(seen, self.parameters)
        if not choices.valid.any(1).all():
            row = int(rows[np.argmin(choices.valid.any(1))])
            raise ValueError(f"policy {self.name}: observation {row} offers no valid action, expected a task")
        task, choice = describe(seen, choices)
        score = self._correction(vectors, which, task, choice)
        score -= (choices.cost / choices.unit[:, None]).astype(np.float32)
        score[~choices.valid] = -np.inf
        return np.asarray(score.argmax(1), np.int64)

    def _correction(
        self,
        vectors: NDArray[np.float32],
        which: NDArray[np.int64],
        task: NDArray[np.float32],
        choice: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """(n, C + 1) outputs, in units of a start."""
        hidden = self.network.layout.hidden
        picked = vectors[which]
        n = len(picked)
        edge = N_TASK * hidden
        end = edge + N_CHOICE * hidden
        task_weights = picked[:, :edge].reshape(n, N_TASK, hidden)
        choice_weights = picked[:, edge:end].reshape(n, N_CHOICE, hidden)
        bias, out = picked[:, end : end + hidden], picked[:, end + hidden : end + 2 * hidden]
        direct = picked[:, end + 2 * hidden : end + 2 * hidden + N_CHOICE]
        waiting = picked[:, end + 2 * hidden + N_CHOICE :]
        base = np.matmul(task[:, None], task_weights)[:, 0] + bias
        units = np.maximum(0.0, base[:, None] + np.matmul(choice, choice_weights))
        score = np.matmul(units, out[..., None])[..., 0] + np.matmul(choice, direct[..., None])[..., 0]
        score[:, -1] += (task * waiting).sum(1)
        result: NDArray[np.float32] = score.astype(np.float32)
        return result
