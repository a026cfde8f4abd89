"""Multi-FedLS on zones that differ in price and availability only.

There is no server to place and every offer takes the same time, so Algorithm 3 (Brum 2023) comes to the
lowest price: times are equal, and the cost is the price times the round. Instances stay on, as in the
thesis; a task does not go back to an offer that it was revoked on while another one is available, and a
task that finds none tries again.
"""

from __future__ import annotations

from agents.federated.renting import RETRY_S
from envs.simulation.federations.rounds.application import Market
from envs.simulation.federations.rounds.decisions import Answer, Cause, Placement, Question
from envs.simulation.federations.rounds.running import RunningApplication


class ZoneScheduler:
    """The dynamic scheduler where only zones can be chosen, all tasks on spot."""

    name = "multi_fedls"

    def __init__(self) -> None:
        self._revoked: dict[int, set[int]] = {}

    def start(self, view: RunningApplication) -> None:
        """Nothing was revoked yet."""
        self._revoked = {}

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        """Keep what runs; rent the cheapest spot offer where nothing does.

        Raises:
            ValueError: if a client may rent no spot offer at all.
        """
        client = view.member(question.client)
        if client.running:
            assert client.offer is not None
            return Placement(client.offer)
        spot = [offer for offer in client.allowed if view.offers[offer].market is Market.SPOT]
        if not spot:
            raise ValueError(f"client {client.name} may rent no spot offer: choose another policy")
        if question.cause is Cause.INTERRUPTED and client.offer is not None:
            self._revoked.setdefault(question.client, set()).add(client.offer)
        revoked = self._revoked.get(question.client, set())
        if revoked.issuperset(spot):
            revoked.clear()
        free = [offer for offer in spot if view.available(offer)]
        chosen = min([o for o in free if o not in revoked] or free, key=view.usd_hour, default=None)
        if chosen is None:
            return Placement(spot[0], view.now_s + RETRY_S)
        return Placement(chosen)
