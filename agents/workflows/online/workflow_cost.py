"""The rule `workflow_cost`: the answer with the lowest expected cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.policy import Policy
from agents.workflows.online.cost import WorkflowParameters, weigh
from envs.simulation.snapshot import Observation


class WorkflowCost(Policy):
    """Takes the choice with the lowest expected cost (see `agents.workflows.online.cost`)."""

    name = "workflow_cost"

    def __init__(self, parameters: WorkflowParameters | None = None) -> None:
        self.parameters = parameters if parameters is not None else WorkflowParameters()

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions.

        Raises:
            ValueError: if an observation has no valid action.
        """
        choices = weigh(observations, self.parameters)
        if not choices.valid.any(1).all():
            row = int(np.argmin(choices.valid.any(1)))
            raise ValueError(f"rule {self.name}: observation {row} offers no valid action, expected a step")
        return np.asarray(np.where(choices.valid, choices.cost, np.inf).argmin(1), np.int64)
