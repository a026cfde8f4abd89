"""The Dynamic Scheduler of Multi-FedLS (Brum 2023, Algorithms 1 to 3), read off an observation."""

from __future__ import annotations

import numpy as np

from spotweave.agents.federated.cost import RoundParameters, weigh
from spotweave.agents.federated.rules.always_on import kept_or_best
from spotweave.agents.policy import Policy
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.snapshot import Observation


class DynamicScheduler(Policy):
    """Replaces a lost instance by the offer with the least weighted time and cost of the round.

    Algorithm 1 gives the time of the round with the task on each offer, Algorithm 2 what all instances cost
    meanwhile, and Algorithm 3 takes the smallest `alpha * cost / max cost + (1 - alpha) * time / max time`,
    the maxima being those of the current offers. Instances stay on between rounds; on demand is used only if
    no spot offer is left. A revoked offer may be taken again as soon as it is available, as in Table 7.15.

    Args:
        alpha: weight of cost against time, 0 to 1.

    Raises:
        ValueError: for an alpha outside [0, 1].
    """

    name = "dynamic_scheduler"

    def __init__(self, alpha: float = 0.5) -> None:
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha={alpha}: expected 0 (time alone) to 1 (cost alone)")
        self._alpha = alpha

    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
        """(n,) flat actions."""
        clusters, jobs, pairs = (
            observations[key].astype(np.float64) for key in ("clusters", "jobs", "pairs")
        )
        choices = weigh(observations, RoundParameters())
        round_s = choices.finish_s + choices.early_s
        own_usd_hour = clusters[..., col.PRICE_USD_HOUR] * pairs[:, 0, :, col.REQUEST]
        all_usd_hour = jobs[:, :1, col.OTHERS_USD_HOUR] + own_usd_hour
        usd = all_usd_hour * round_s / 3600 + pairs[:, 0, :, col.EGRESS_USD]

        def scaled(amount: Floats) -> Floats:
            largest = np.where(choices.valid[:, :-1], amount, 0.0).max(1, keepdims=True)
            return np.asarray(amount / np.maximum(largest, 1e-9))

        value = self._alpha * scaled(usd) + (1 - self._alpha) * scaled(round_s)
        return kept_or_best(observations, spot=True, value=value)
