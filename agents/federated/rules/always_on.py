"""The two baselines of Sinha 2025, Table I: every instance stays on from the first round to the last."""

from __future__ import annotations

from functools import partial

import numpy as np

from spotweave.agents.policy import Policy
from spotweave.envs.simulation import columns as col
from spotweave.envs.simulation.federations.rounds.application import SERVER, Market
from spotweave.envs.simulation.federations.rounds.decisions import Answer, Placement, Question
from spotweave.envs.simulation.federations.rounds.running import RunningApplication
from spotweave.envs.simulation.series import Floats, Ints
from spotweave.envs.simulation.snapshot import Observation

_OTHER_MARKET = 1e6
"""Added to the value of offers of the other market, which are taken only where there is nothing else."""


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

    def act_batch(self, observations: Observation, lanes: Ints) -> Ints:
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


def kept_or_cheapest(observations: Observation, spot: bool) -> Ints:
    """(n,) the own offer of a task that has one, else the cheapest valid one of the market, else none."""
    return kept_or_best(
        observations, spot, observations["clusters"][..., col.PRICE_USD_HOUR].astype(np.float64)
    )


def kept_or_best(observations: Observation, spot: bool, value: Floats) -> Ints:
    """As `kept_or_cheapest`, but by the smallest `value` (n, C) >= 0 instead of the price."""
    n_offers = value.shape[1]
    valid = observations["action_mask"][:, :n_offers] != 0
    here = (observations["pairs"][:, 0, :, col.HERE] > 0) & valid
    is_spot = observations["clusters"][..., col.IS_SPOT] > 0
    value = np.where(is_spot == spot, value, value + _OTHER_MARKET)
    value = np.where(here, -1.0, np.where(valid, value, np.inf))
    best = value.argmin(1)
    found = np.isfinite(value[np.arange(len(value)), best])
    return np.asarray(np.where(found, best, n_offers), np.int64)


# Where an instance is rented: the cheapest available offer that a client, or the server, may use.

RETRY_S = 60  # where nothing is available, the next try is so much later


def cheapest_offer(view: RunningApplication, client: int, market: Market) -> int | None:
    """The available offer of this market with the lowest price now; the first of equals. None without any."""
    offers = [
        offer
        for offer in view.member(client).allowed
        if view.offers[offer].market == market and view.available(offer)
    ]
    return min(offers, key=view.usd_hour, default=None)


def rent_now(view: RunningApplication, client: int, market: Market) -> Placement:
    """Start on the cheapest available offer, or try again a little later.

    Raises:
        ValueError: if the client may rent nothing on this market at all.
    """
    offer = cheapest_offer(view, client, market)
    return Placement(offer) if offer is not None else rent_at(view, client, market, view.now_s + RETRY_S)


def rent_at(view: RunningApplication, client: int, market: Market, start_s: float) -> Placement:
    """Be off until `start_s`; where to start is decided then, at the prices of then. Raises as `rent_now`."""
    for offer in view.member(client).allowed:
        if view.offers[offer].market == market:
            return Placement(offer, start_s)
    raise ValueError(
        f"{_who(view, client)} may rent no {market.name.lower().replace('_', '-')} offer: "
        f"give it one, or choose another policy"
    )


def _who(view: RunningApplication, client: int) -> str:
    return "the server" if client == SERVER else f"client {view.clients[client].name}"
