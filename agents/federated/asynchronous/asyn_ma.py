"""AsynMA: Eq. 6.2 of Liu 2022 used as it stands without synchronisation, which can oscillate (Figure 6.4)."""

from __future__ import annotations

from collections.abc import Sequence

from agents.federated.asynchronous.aggregator import BufferedAggregator
from agents.federated.asynchronous.updates import Update, Vector, weighted_mean


class AsynMA(BufferedAggregator):
    """The mean of the first W local models to arrive replaces the model.

    Args:
        model: (d,) initial weights.
        round_updates: W.
    """

    def __init__(self, model: Vector, round_updates: int) -> None:
        super().__init__(model, "model", round_updates)

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        return weighted_mean(chosen).astype(self.model.dtype)
