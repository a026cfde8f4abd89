"""What happened: client states over time, bills, rounds. Enough for every table and picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from spotweave.envs.simulation.federations.rounds.application import SERVER, Application
from spotweave.envs.simulation.federations.rounds.decisions import State


class Bill(NamedTuple):
    """One instance, from its request to its end."""

    client: int  # index of the client, or SERVER
    offer: int  # index of the offer
    start_s: int  # when it was requested
    end_s: int  # when it was released or taken
    usd: float  # what it costs
    by_provider: bool  # whether the provider ended it
    unpaid_s: int = 0  # seconds at its beginning that cost nothing (a spin-up that is not billed)


class Span(NamedTuple):
    """A client was in one state from `start_s` to `end_s`; `round_index` is the round at its beginning."""

    start_s: int
    end_s: int
    state: State
    round_index: int


class Epoch(NamedTuple):
    """A result that was delivered: which client's, of which round, when, and what its messages cost."""

    client: int
    round_index: int
    end_s: int
    message_usd: float = 0.0


class Exclusion(NamedTuple):
    """A client left: after how many delivered results, and whether the round's unfinished work was lost."""

    client: int
    time_s: int
    round_index: int
    work_lost: bool


class ServerLoss(NamedTuple):
    """The server was revoked, and back at `resumed_s`."""

    time_s: int  # when it was revoked
    round_index: int  # the round in progress, whose work was lost
    resumed_s: int  # when its next instance could work
    resumed_round: int  # the round that the newest checkpoint allows; those from here on are trained again


@dataclass
class Outcome:
    """One application, played to its end."""

    application: Application  # what was simulated
    policy: str  # the policy's name
    time_s: int = 0  # from the beginning to the end of the last round
    # (begin, end) seconds of each round that was completed, aggregation excluded; where rounds were trained
    # again, the last time counts
    rounds: list[tuple[int, int]] = field(default_factory=list)
    bills: list[Bill] = field(default_factory=list)  # every instance
    # [client] its states, without gaps, from 0 to `time_s`
    spans: list[list[Span]] = field(default_factory=list)
    # every result in the order of delivery, those that were lost with the server included
    epochs: list[Epoch] = field(default_factory=list)
    # (client or SERVER, second) of each instance that the provider took
    interruptions: list[tuple[int, int]] = field(default_factory=list)
    exclusions: list[Exclusion] = field(default_factory=list)  # the clients that left
    questions: int = 0  # how many decisions were taken
    # the server's states where it is a task of its own; its training is called idle
    server_spans: list[Span] = field(default_factory=list)
    server_losses: list[ServerLoss] = field(default_factory=list)  # what each revocation of the server cost

    def client_cost_usd(self, client: int) -> float:
        """What the instances of one client (or of SERVER) cost."""
        return sum(bill.usd for bill in self.bills if bill.client == client)

    @property
    def server_cost_usd(self) -> float:
        """What the server costs."""
        return self.client_cost_usd(SERVER) + self.application.server_usd_hour * self.time_s / 3600

    @property
    def messages_usd(self) -> float:
        """What all messages of delivered results cost."""
        return sum(epoch.message_usd for epoch in self.epochs)

    @property
    def cost_usd(self) -> float:
        """What everything costs: instances, the server and messages."""
        fixed_usd = self.application.server_usd_hour * self.time_s / 3600
        return sum(bill.usd for bill in self.bills) + fixed_usd + self.messages_usd

    def accumulated_usd(self, client: int, time_s: float) -> float:
        """What a client's (or SERVER's) instances cost until `time_s`; billing minima count at their end."""
        total = 0.0
        for bill in self.bills:
            if bill.client != client:
                continue
            if bill.end_s <= time_s:
                total += bill.usd
            elif bill.start_s < time_s:
                tariff = self.application.offers[bill.offer].tariff
                total += tariff.cost_usd(min(bill.start_s + bill.unpaid_s, time_s), time_s)
        return total

    def seconds_in(self, client: int, state: State) -> int:
        """How long a client (or SERVER) was in a state."""
        spans = self.server_spans if client == SERVER else self.spans[client]
        return sum(span.end_s - span.start_s for span in spans if span.state == state)
