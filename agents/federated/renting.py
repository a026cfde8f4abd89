"""Rent the cheapest available offer that a client, or the server, may use."""

from __future__ import annotations

from envs.simulation.federations.rounds.application import SERVER, Market
from envs.simulation.federations.rounds.decisions import Placement
from envs.simulation.federations.rounds.running import RunningApplication

RETRY_S = 60
"""Seconds until the next try when nothing is available."""


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
