"""What is asked of a policy, what it may look at, and what it may answer.

Every question is about one client, or about the server where it is rented too (client SERVER): where shall
it be, from when on? Keeping an instance, releasing it until a time (pre-warming), replacing one that was
interrupted and moving to another zone are the same answer.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from spotweave.envs.simulation.federations.rounds.application import SERVER, Application

if TYPE_CHECKING:
    from spotweave.envs.simulation.federations.rounds.running import RunningApplication


class Cause(IntEnum):
    """Why a client is asked about."""

    START = 0
    """The client has no instance and its planned start is due (at first: the application begins)."""
    FINISHED = 1
    """The client has delivered its result: keep the instance, or release it until when?"""
    INTERRUPTED = 2
    """The provider took its instance: replace it where, and when?"""
    REPLAN = 3
    """The client is off until a planned start, and another was interrupted: is the plan still right?"""
    ROUND = 4
    """The next round is about to begin: stay, move, start, or leave the application for good? Also asked
    when the server was interrupted, as its round starts over."""


class State(IntEnum):
    """What a client is doing; what pictures show."""

    OFF = 0
    SPIN_UP = 1
    IDLE = 2
    TRAINING = 3
    GONE = 4
    """The client has left the application (budget), or the application is over."""


class Placement(NamedTuple):
    """Place of a client's instance, and its start time."""

    offer: int  # index of the offer
    # a time up to now means now: a running instance on this offer is kept, one on another offer is moved, a
    # missing one is started. A later time releases what runs, and `Cause.START` is asked when it comes;
    # `math.inf` waits for the next question about this client
    start_s: float = 0.0


class Leave(NamedTuple):
    """The client leaves the application: it trains in no further round, this one included. Not the server."""


Answer = Placement | Leave
NEVER = math.inf


class Question(NamedTuple):
    """One client (or SERVER), and why it is asked about."""

    cause: Cause
    client: int


class RoundScheduler(Protocol):
    """Takes every decision of an application with all of it in view.

    Systems of the literature are written so. `agents.federated.observing` makes one of any policy
    that reads observations, so this is all that `RoundsWorld` and a fleet ask.
    """

    @property
    def name(self) -> str:
        """As tables show it."""

    def start(self, view: RunningApplication) -> None:
        """A new application begins; forget the last one."""

    def decide(self, question: Question, view: RunningApplication) -> Answer:
        """Answer one question."""


class InvalidAnswerError(ValueError):
    """A policy answered what cannot be done; the message says why."""


# What happens in an application, in the order of time.


class Event(IntEnum):
    """What happens; at the same second in this order: a result that is ready is not lost."""

    DONE = 0
    READY = 1
    INTERRUPTED = 2
    BROKE = 3
    START = 4
    NEXT_ROUND = 5
    CLOSED = 6


class Events:
    """Future events, each of a member's generation: whoever takes one judges whether it still holds."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, time_s: int, event: Event, member: int, generation: int) -> None:
        """Schedule an event at `time_s` for a client by its number, or for SERVER."""
        heapq.heappush(self._heap, (time_s, int(event), member, generation))

    def pop(self) -> tuple[int, Event, int, int]:
        """Take the next one: second, event, member, generation."""
        time_s, event, member, generation = heapq.heappop(self._heap)
        return time_s, Event(event), member, generation


# Who computes when, where an application has no rounds for all: asynchronous federated learning.


class Awaited(NamedTuple):
    """The next model needs so many results of some clients."""

    clients: Collection[int]  # any of these
    results: int  # how many; of fewer clients, all of them


class Pace(Protocol):
    """The server of an asynchronous application, as far as the simulation of its instances needs it.

    A round of the simulation is the time between two models.
    """

    @property
    def ended(self) -> bool:
        """Whether no further model is wanted."""

    def begin(self, idle: Sequence[int]) -> Collection[int]:
        """Which clients without a task begin an epoch from the current model."""

    def end(self, client: int, now_s: int) -> bool:
        """A client's epoch has ended: whether that made a new model."""

    def awaited(self) -> Sequence[Awaited]:
        """What must come before the next model is made, all of it."""

    def round_needs(self) -> Sequence[Awaited]:
        """The same at the beginning of an ordinary round."""


# What happened: client states over time, bills, rounds. Enough for every table and picture.


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
