"""FedAsync: every local model is mixed in as it arrives (Xie, Koyejo, Gupta 2019, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Sequence

from agents.federated.asynchronous.aggregator import BufferedAggregator, at_least
from agents.federated.asynchronous.updates import Update, UpdateError, Vector


class FedAsync(BufferedAggregator):
    """x_t = (1 - alpha_t) x_{t-1} + alpha_t x_new, alpha_t = alpha (t - tau + 1)**-a ("polynomial").

    Args:
        model: (d,) initial weights.
        mixing: alpha, in (0, 1].
        exponent: a; 0 mixes alike whatever the staleness.
    """

    def __init__(self, model: Vector, mixing: float = 0.6, exponent: float = 0.5) -> None:
        super().__init__(model, "model", 1)
        if not 0 < mixing <= 1:
            raise UpdateError(f"mixing weight alpha is {mixing:g}: expected more than 0 and at most 1")
        at_least("exponent a", exponent, 0)
        self._mixing = mixing
        self._exponent = exponent

    def _next_model(self, chosen: Sequence[Update], staleness: Sequence[int]) -> Vector:
        # t is the number of the new model, so t - tau is 1 for an update of the current one.
        weight = self._mixing * (2.0 + staleness[0]) ** -self._exponent
        mixed: Vector = (1.0 - weight) * self.model + weight * chosen[0].values
        return mixed.astype(self.model.dtype)
