"""How long epochs, messages and aggregations take where tasks are: instance types, links, degradations."""

from __future__ import annotations

import math

from envs.simulation.federations.rounds.application import Application
from envs.simulation.federations.rounds.draws import Draws
from envs.simulation.federations.rounds.member import Member


class Durations:
    """One application's times.

    Args:
        application: what is simulated.
        draws: its random times.
        server: the server where it is a task of its own.
    """

    def __init__(self, application: Application, draws: Draws, server: Member | None) -> None:
        self._application = application
        self._draws = draws
        self._server = server
        checkpoints = application.checkpoints
        self._client_checkpoint_s = 0.0 if checkpoints is None else checkpoints.client_round_s

    def epoch_s(self, member: Member, round_index: int, now_s: int) -> tuple[int, int]:
        """Whole seconds of a client's warm and cold epoch that begins now, messages included."""
        if self._application.plain:
            draws, client = self._draws, member.index
            return draws.warm_s[client][round_index], draws.cold_s[client][round_index]
        assert member.offer is not None
        warm_s, cold_s = self._draws.epoch_s(member.index, member.offer, round_index)
        slowdown = self._slowdown(member.offer, now_s)
        member.messages_s = self._messages_s(member.offer) * self._link_slowdown(member.offer, now_s)
        exact_s = warm_s * slowdown + member.messages_s + self._client_checkpoint_s + member.carried_s
        whole_s = max(1, round(exact_s))
        # What rounding takes off one epoch is added to the next: many short rounds last what they should.
        member.carried_s = exact_s - whole_s
        return whole_s, whole_s + round((cold_s - warm_s) * slowdown)

    def expected_epoch_s(self, client: int, offer: int, cold: bool) -> float:
        """Mean seconds of a client's epoch on an offer, messages to the server's place included."""
        times = self._application.clients[client].times(offer)
        beside_s = self._messages_s(offer) + self._client_checkpoint_s
        return (times.cold_s if cold else times.warm_s) + beside_s

    def aggregation_s(self, round_index: int, now_s: int) -> int:
        """Whole seconds of the aggregation that begins now, checkpointing included."""
        application, server = self._application, self._server
        if server is None:
            return application.aggregation_s
        assert server.offer is not None
        seconds = application.server_aggregation_s(server.offer) * self._slowdown(server.offer, now_s)
        if application.checkpoints is not None:
            seconds += application.checkpoints.after_round_s(round_index + 1)
        seconds += server.carried_s
        server.carried_s = seconds - round(seconds)
        return round(seconds)

    def expected_aggregation_s(self) -> int:
        """Whole seconds of an aggregation on the server's present offer, without saving a checkpoint."""
        assert self._server is not None
        assert self._server.offer is not None
        checkpoints = self._application.checkpoints
        every_round_s = 0.0 if checkpoints is None else checkpoints.round_s
        return round(self._application.server_aggregation_s(self._server.offer) + every_round_s)

    def _messages_s(self, offer: int) -> float:
        """Mean seconds of a client's messages per round, with the server's present place; 0 before that."""
        if self._server is None or self._server.offer is None:
            return 0.0
        return self._application.message_s(offer, self._server.offer)

    def _slowdown(self, offer: int, now_s: int) -> float:
        """How much slower than expected instances on an offer compute now."""
        return math.prod(
            item.slowdown
            for item in self._application.degradations
            if item.offer == offer and item.holds(now_s)
        )

    def _link_slowdown(self, offer: int, now_s: int) -> float:
        """How much slower than expected messages between an offer and the server are now."""
        if self._server is None or self._server.offer is None:
            return 1.0
        offers = self._application.offers
        ends = {offers[offer].zone, offers[self._server.offer].zone}
        return math.prod(
            item.slowdown
            for item in self._application.degradations
            if item.link is not None and set(item.link) == ends and item.holds(now_s)
        )
