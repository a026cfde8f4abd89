"""AsynDA: asynchronous averaging of differences (Liu 2022, Eq. 6.3), or of gradients (asynchronous SGD)."""

from __future__ import annotations

from collections.abc import Sequence

from agents.federated.asynchronous.aggregator import BufferedAggregator, Uploads, above_zero
from agents.federated.asynchronous.updates import Update, Vector, weighted_mean


class AsynDA(BufferedAggregator):
    """The first W updates to arrive make the next model, whoever sent them.

    M_{r+1} = M_r + eta sum(p_i D_i) / sum(p_i), with D_i against the version that participant i began with.

    Args:
        model: (d,) initial weights.
        round_updates: W.
        uploads: "difference" or "gradient".
        rate: eta of differences, gamma of gradients.
    """

    def __init__(
        self, model: Vector, round_updates: int, uploads: Uploads = "difference", rate: float = 1.0
    ) -> None:
        super().__init__(model, uploads, round_updates)
        above_zero("rate", rate)
        self._rate = rate

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        return self._stepped(weighted_mean(chosen), self._rate)
