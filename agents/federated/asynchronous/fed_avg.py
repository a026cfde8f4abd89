"""FedAvg: synchronous rounds of W participants (McMahan et al. 2017; Eq. 6.2 of Liu 2022)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agents.federated.asynchronous.aggregator import (
    BufferedAggregator,
    Invitation,
    Uploads,
    above_zero,
)
from agents.federated.asynchronous.updates import Update, UpdateError, Vector, weighted_mean


class FedAvg(BufferedAggregator):
    """Draws W participants, waits for all of them, averages. With gradients: synchronous SGD.

    With differences and a rate of 1 the mean of the local models is the model plus the mean difference, as
    all have the same base.

    Args:
        model: (d,) initial weights.
        participants: N.
        round_updates: W, drawn uniformly without replacement for each round.
        generator: of the draws.
        uploads: "difference" or "gradient".
        rate: eta of differences, gamma of gradients.
    """

    def __init__(
        self,
        model: Vector,
        participants: int,
        round_updates: int,
        generator: np.random.Generator,
        uploads: Uploads = "difference",
        rate: float = 1.0,
    ) -> None:
        super().__init__(model, uploads, round_updates)
        if round_updates > participants:
            raise UpdateError(
                f"{round_updates} updates per round: expected at most {participants}, as many as participants"
            )
        above_zero("rate", rate)
        self._participants = participants
        self._generator = generator
        self._rate = rate
        self._invited_for = -1

    def invite(self, idle: Sequence[int]) -> list[Invitation]:
        """The participants drawn at the start of a round; none until it ends."""
        if self._invited_for == self.version:
            return []
        self._invited_for = self.version
        drawn = self._generator.choice(self._participants, self._needed, replace=False)
        return [Invitation(int(participant), self.version) for participant in drawn]

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        return self._stepped(weighted_mean(chosen), self._rate)
