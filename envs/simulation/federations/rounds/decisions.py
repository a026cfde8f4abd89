"""What is asked of a policy, what it may look at, and what it may answer.

Every question is about one client, or about the server where it is rented too (client SERVER): where shall
it be, from when on? Keeping an instance, releasing it until a time (pre-warming), replacing one that was
interrupted and moving to another zone are the same answer.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

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

    Systems of the literature are written so. `agents.federated.schedulers.observing` makes one of any policy
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
