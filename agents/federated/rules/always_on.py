"""The two baselines of Sinha 2025, Table I: every instance stays on from the first round to the last."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from agents.federated.renting import rent_now
from agents.policy import Policy
from envs.simulation import columns as col
from envs.simulation.federations.rounds.application import Market
from envs.simulation.federations.rounds.decisions import Answer, Placement, Question
from envs.simulation.federations.rounds.running import RunningApplication
from envs.simulation.snapshot import Observation

_OTHER_MARKET_USD_HOUR = 1e6
"""Added to the price of offers of the other market, which are taken only where there is nothing else."""


class AlwaysOn(Policy):
    """Rents each task's cheapest offer of one market, replaces it when interrupted, never releases it.

    From an observation it takes the other market where its own has nothing. As a scheduler of a whole
    application (`decide`) it waits, as the published baselines have one market only.

    Args:
        market: spot ("Sync FL Spot Instance") or on demand ("Sync FL On-demand").
    """

    def __init__(self, market: Market) -> None:
        self.name = f"always_{market.name.lower()}"
        self._market = market

    def act_batch(self, observations: Observation, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) flat actions."""
        return kept_or_cheapest(observations, self._market is Market.SPOT)

    def start(self, view: RunningApplication) -> None:
        """Keep no state."""

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        """Keep what runs; rent what is missing."""
        client = view.member(question.client)
        if client.running:
            assert client.offer is not None
            return Placement(client.offer)
        return rent_now(view, question.client, self._market)


always_spot = partial(AlwaysOn, Market.SPOT)
always_on_demand = partial(AlwaysOn, Market.ON_DEMAND)


def kept_or_cheapest(observations: Observation, spot: bool) -> NDArray[np.int64]:
    """(n,) the own offer of a task that has one, else the cheapest valid one of the market, else none."""
    clusters, pairs = observations["clusters"], observations["pairs"][:, 0]
    n_offers = clusters.shape[1]
    valid = observations["action_mask"][:, : n_offers + 1] != 0
    here = (pairs[..., col.HERE] > 0) & valid[:, :n_offers]
    is_spot = clusters[..., col.IS_SPOT] > 0
    price = clusters[..., col.PRICE_USD_HOUR].astype(np.float64)
    cost = np.where(is_spot == spot, price, price + _OTHER_MARKET_USD_HOUR)
    cost = np.where(here, -1.0, np.where(valid[:, :n_offers], cost, np.inf))
    best = cost.argmin(1)
    found = np.isfinite(cost[np.arange(len(cost)), best])
    return np.asarray(np.where(found, best, n_offers), np.int64)
