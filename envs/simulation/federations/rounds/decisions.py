"""What is asked of a policy, what it may look at, and what it may answer.

Every question is about one client, or about the server where it is rented too (client SERVER): where shall
it be, from when on? Keeping an instance, releasing it until a time (pre-warming), replacing one that was
interrupted and moving to another zone are the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from envs.simulation.federations.rounds.application import Offer


class Cause(IntEnum):
    """Why a client is asked about."""

    START = 0
    """It has no instance and its planned start is due (at first: the application begins)."""
    FINISHED = 1
    """It has delivered its result of this round: keep the instance, or release it until when?"""
    INTERRUPTED = 2
    """The provider took its instance: replace it where, and when?"""
    REPLAN = 3
    """It is off until a planned start, and another client was interrupted: is the plan still right?"""
    ROUND = 4
    """The next round is about to begin: stay, move, start, or leave the application for good? Also asked
    when the server was interrupted, as its round begins anew."""


class State(IntEnum):
    """What a client is doing; what pictures show."""

    OFF = 0
    SPIN_UP = 1
    IDLE = 2
    TRAINING = 3
    GONE = 4
    """It has left the application (budget), or the application is over."""


class Placement(NamedTuple):
    """Where a client's instance shall be, and from when on.

    Attributes:
        offer: index of the offer.
        start_s: a time up to now means now: a running instance on this offer is kept, one on another offer is
            moved, a missing one is started. A later time releases what runs, and `Cause.START` is asked when
            it comes; `math.inf` waits for the next question about this client.
    """

    offer: int
    start_s: float = 0.0


class Leave(NamedTuple):
    """The client leaves the application: it trains in no further round, this one included. Not the server."""


Answer = Placement | Leave
NEVER = math.inf


class ClientView(Protocol):
    """What is known about one client. Times are seconds since the beginning, None where not yet so."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def allowed(self) -> tuple[int, ...]:
        """Offers that it may rent."""

    @property
    def budget_usd(self) -> float | None:
        """What its instances may cost; None for no limit."""

    @property
    def state(self) -> State:
        """What it is doing."""

    @property
    def offer(self) -> int | None:
        """The offer its instance is on, or that is planned or was last used."""

    @property
    def planned_start_s(self) -> float:
        """When it shall be started, while it is off; `math.inf` where nothing is planned."""

    @property
    def has_task(self) -> bool:
        """Whether it owes the result of the current round."""

    @property
    def running(self) -> bool:
        """Whether it has an instance (spinning up, idle or training)."""

    @property
    def epochs_here(self) -> int:
        """Results that its current instance has delivered; 0 means that its current or next epoch is cold."""

    @property
    def resumed(self) -> bool:
        """Whether the latest epoch went on from a checkpoint, so that its time is not that of a whole one."""

    @property
    def saved(self) -> float:
        """Share of the current epoch that a checkpoint holds, in [0, 1]."""

    @property
    def launched_s(self) -> int | None:
        """When its latest instance was requested."""

    @property
    def ready_s(self) -> int | None:
        """When that instance could train."""

    @property
    def started_s(self) -> int | None:
        """When its latest training began."""

    @property
    def finished_s(self) -> int | None:
        """When it delivered its latest result."""

    @property
    def messages_s(self) -> float:
        """Seconds of its latest epoch that messages took; 0 where they are not told apart."""


class View(Protocol):
    """What is known about the application when a question is asked; a policy must not change it."""

    @property
    def now_s(self) -> int:
        """The time."""

    @property
    def round_index(self) -> int:
        """The current round, from 0; while a round is about to begin: that one."""

    @property
    def rounds(self) -> int:
        """How many rounds there are."""

    @property
    def round_begun_s(self) -> int | None:
        """When the current round began; None before it has."""

    @property
    def aggregation_s(self) -> int:
        """From a round's last result until the next round can begin."""

    @property
    def offers(self) -> Sequence[Offer]:
        """What can be rented. A policy reads prices by `usd_hour` and `available`, never ahead of time."""

    @property
    def clients(self) -> Sequence[ClientView]:
        """Every client, also those that left."""

    @property
    def server(self) -> ClientView | None:
        """The server where it is a task of its own, as a client that never trains; None where it is not."""

    def member(self, client: int) -> ClientView:
        """A client, or the server for SERVER."""

    def spent_usd(self, client: int) -> float:
        """What the instances of a client (or of SERVER) cost until now, the running one included."""

    def expected_epoch_s(self, client: int, offer: int, cold: bool) -> float:
        """Mean seconds of a client's epoch on an offer, messages with the server's present place included.

        For SERVER, of an aggregation there. Degradations are not known beforehand, so they are not in it.
        """

    def expected_spin_up_s(self, client: int, offer: int) -> float:
        """Mean seconds from the request of an instance there until it can work; `client` may be SERVER."""

    def message_usd(self, client: int, offer: int) -> float:
        """USD per round of a client's messages there, with the server's present place; 0 before that."""

    def usd_hour(self, offer: int) -> float:
        """The price now."""

    def available(self, offer: int) -> bool:
        """Whether an instance could start there now."""


class Question(NamedTuple):
    """One client (or SERVER), and why it is asked about."""

    cause: Cause
    client: int


class RoundScheduler(Protocol):
    """Takes every decision of an application with all of it in view.

    Systems of the literature are written so. `episodes.observed.Observing` makes one of any policy that reads
    observations, so this is all that `RoundsWorld` and a fleet ask.
    """

    @property
    def name(self) -> str:
        """As tables show it."""

    def start(self, view: View) -> None:
        """A new application begins; forget the last one."""

    def decide(self, question: Question, view: View) -> Answer:
        """Answer one question."""


class InvalidAnswerError(ValueError):
    """A policy answered what cannot be done; the message says why."""
