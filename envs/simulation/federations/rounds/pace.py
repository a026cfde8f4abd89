"""Who computes when, where an application has no rounds for all: asynchronous federated learning."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol


class Awaited(NamedTuple):
    """The next model needs so many results of some clients.

    Attributes:
        clients: any of these.
        results: how many; of fewer clients, all of them.
    """

    clients: Collection[int]
    results: int


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
