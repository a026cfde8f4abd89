"""Baseline-guided epsilon-greedy exploration (Liu 2022, eq. 4.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.policy import Policy
from envs.simulation.snapshot import Observation, take_rows


class GuidedExploration:
    """With probability eps1 explore: at random (probability eps2) or as the guiding rule says; else greedy.

    Args:
        guide: the rule that guides, any Policy.
        rng: the run's "exploration" stream.
    """

    def __init__(self, guide: Policy, rng: np.random.Generator) -> None:
        self.guide = guide
        self.rng = rng

    def choose(
        self,
        policy: Policy,
        observations: Observation,
        lanes: NDArray[np.int64],
        epsilon_1: float,
        epsilon_2: float,
    ) -> NDArray[np.int64]:
        """(n,) valid actions for n rows of observations."""
        n = len(lanes)
        explores = self.rng.random(n) < epsilon_1
        at_random = self.rng.random(n) < epsilon_2
        actions = np.empty(n, np.int64)
        greedy = ~explores
        guided = explores & ~at_random
        if greedy.any():
            actions[greedy] = policy.act_batch(take_rows(observations, greedy), lanes[greedy])
        if guided.any():
            actions[guided] = self.guide.act_batch(take_rows(observations, guided), lanes[guided])
        for row in np.flatnonzero(explores & at_random):
            actions[row] = self.rng.choice(np.flatnonzero(observations["action_mask"][row]))
        return actions
