"""The learned policy for federated tasks: the expected cost of each choice, corrected by a small network."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.correction import correction
from agents.federated.cost import RoundParameters, weigh
from agents.federated.features import N_CHOICE, N_TASK, describe
from agents.vector_policy import Layout, Scorer, VectorPolicy
from envs.simulation.snapshot import Observation, take_rows


def round_scorer(hidden: int) -> Scorer:
    """Weights of zero for the features of a task and a choice; "none" has direct weights of the task's."""
    return Scorer(Layout(hidden, N_TASK + N_CHOICE, outputs=1, direct=N_CHOICE + N_TASK))


class RoundScorerPolicy(VectorPolicy):
    """Takes the choice with the lowest expected cost less the network's output, in units of a start.

    One network serves any number of offers.

    Args:
        network: the weights.
        name: shown in tables.
        parameters: of the expected cost.
    """

    def __init__(self, network: Scorer, name: str, parameters: RoundParameters | None = None) -> None:
        super().__init__(network, name)
        self.parameters = parameters if parameters is not None else RoundParameters()

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
        score = correction(self.network.layout.hidden, vectors[which], task, choice)
        score -= (choices.cost / choices.unit[:, None]).astype(np.float32)
        score[~choices.valid] = -np.inf
        return np.asarray(score.argmax(1), np.int64)
