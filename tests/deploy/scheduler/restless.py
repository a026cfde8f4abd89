"""A policy that wants to move whatever runs to the cheapest offer of the moment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from agents.policy import Policy
from deploy.scheduler.decide.chooser import Policies
from deploy.scheduler.decide.decider import Decider
from envs.simulation import columns as col
from envs.simulation.snapshot import Observation
from tests.deploy.scheduler.worlds import World


class Restless(Policy):
    """Always the cheapest offer of now, wherever the task runs."""

    name = "restless"

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        price = observations["clusters"][..., col.PRICE_USD_HOUR]
        n_offers = price.shape[1]
        valid = observations["action_mask"].reshape(len(price), -1, n_offers + 1)
        row = valid.any(2).argmax(1)
        mine = valid[np.arange(len(price)), row]
        here = observations["pairs"][np.arange(len(price)), row, :, col.HERE] > 0
        cost = np.where((mine[:, :n_offers] > 0) | here, price, np.inf)
        best = cost.argmin(1)
        stay = here[np.arange(len(price)), best] | ~np.isfinite(cost.min(1))
        return np.asarray(row * (n_offers + 1) + np.where(stay, n_offers, best), np.int64)


class RestlessWorld(World):
    def decides(self) -> Policies:
        return replace(super().decides(), decides=Decider(Restless()))
