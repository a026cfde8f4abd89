"""The rule `bag_cost`: the answer with the lowest expected cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.bags.cost import BagParameters, weigh
from agents.policy import Policy
from envs.simulation.snapshot import Observation

BAG_ENVIRONMENTS = ("bags",)
"""Environments in which `bag_cost` is compared by default."""


class BagCost(Policy):
    """Takes the choice with the lowest expected cost (see `agents.bags.cost`)."""

    name = "bag_cost"

    def __init__(self, parameters: BagParameters | None = None) -> None:
        self.parameters = parameters if parameters is not None else BagParameters()

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions.

        Raises:
            ValueError: if an observation has no valid action.
        """
        choices = weigh(observations, self.parameters)
        if not choices.valid.any(1).all():
            row = int(np.argmin(choices.valid.any(1)))
            raise ValueError(f"rule {self.name}: observation {row} offers no valid action, expected a task")
        return np.asarray(np.where(choices.valid, choices.cost, np.inf).argmin(1), np.int64)
