"""The Dynamic Scheduler of Multi-FedLS (Brum 2023, Algorithms 1 to 3), read off an observation."""

from __future__ import annotations

import numpy as np

from agents.federated.cost import RoundParameters, weigh
from agents.federated.rules.always_on import kept_or_best
from agents.policy import Policy
from envs.simulation import columns as col
from envs.simulation.series import Floats, Ints
from envs.simulation.snapshot import Observation


class DynamicScheduler(Policy):
    """A task that has lost its instance goes where the round's time and cost, weighed, are the smallest.

    Algorithm 1 gives the round's time with the task on each offer, Algorithm 2 what all instances cost in
    that time, and Algorithm 3 takes the smallest `alpha * cost / most cost + (1 - alpha) * time / most time`.
    The most are those of the offers at hand. Instances stay on between rounds, and on demand is taken only
    where there is no spot offer. An offer that it was revoked on is left out as long as the market or the
    scheduler says that it is unavailable, as in Table 7.15, not for good.

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

        def of_the_most(amount: Floats) -> Floats:
            most = np.where(choices.valid[:, :-1], amount, 0.0).max(1, keepdims=True)
            return np.asarray(amount / np.maximum(most, 1e-9))

        value = self._alpha * of_the_most(usd) + (1 - self._alpha) * of_the_most(round_s)
        return kept_or_best(observations, spot=True, value=value)
