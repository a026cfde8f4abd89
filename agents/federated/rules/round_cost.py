"""Spotweave's rule for federated work: the choice with the lowest expected cost."""

from __future__ import annotations

import numpy as np

from agents.federated.cost import RoundParameters, weigh
from agents.policy import Policy
from envs.simulation.series import Ints
from envs.simulation.snapshot import Observation


class RoundCost(Policy):
    """The expected cost alone: each epoch as late as is safe, two in a row on one instance."""

    name = "round_cost"

    def __init__(self, parameters: RoundParameters | None = None) -> None:
        self.parameters = parameters if parameters is not None else RoundParameters()

    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions: the cheapest choices."""
        choices = weigh(observations, self.parameters)
        return np.asarray(choices.cost.argmin(1), np.int64)
