"""FedBuff: buffered asynchronous aggregation (Nguyen et al., AISTATS 2022, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agents.federated.asynchronous.aggregator import BufferedAggregator, above_zero
from agents.federated.asynchronous.updates import Update, Vector


class FedBuff(BufferedAggregator):
    """w += eta_g / K sum_i s(tau_i) D_i with s(tau) = 1 / sqrt(1 + tau), once K differences are stored.

    Args:
        model: (d,) initial weights.
        round_updates: K, the size of the buffer.
        rate: eta_g.
    """

    def __init__(self, model: Vector, round_updates: int, rate: float = 1.0) -> None:
        super().__init__(model, "difference", round_updates)
        above_zero("rate", rate)
        self._rate = rate

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        scales = 1.0 / np.sqrt(1.0 + np.asarray(staleness, dtype=float))
        total: Vector = np.tensordot(scales, np.stack([update.values for update in chosen]), axes=1)
        return self._stepped(total / len(chosen), self._rate)
