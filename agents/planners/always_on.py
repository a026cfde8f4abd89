"""The two baselines of Sinha 2025, Table I: every instance stays on from the first round to the last."""

from __future__ import annotations

from agents.planners.renting import rent_now
from envs.simulation.federations.rounds.application import Market
from envs.simulation.federations.rounds.decisions import Answer, Placement, Question, View


class AlwaysOn:
    """Rents each client's cheapest offer of one market, replaces it when interrupted, never releases it.

    Args:
        market: spot ("Sync FL Spot Instance") or on demand ("Sync FL On-demand").
    """

    def __init__(self, market: Market) -> None:
        self.name = market.name.lower()
        self._market = market

    def begin(self, view: View) -> None:
        """Nothing is remembered."""

    def decide(self, question: Question, view: View) -> Answer:
        """Keep what runs; rent what is missing."""
        client = view.member(question.client)
        if client.running:
            assert client.offer is not None
            return Placement(client.offer)
        return rent_now(view, question.client, self._market)
