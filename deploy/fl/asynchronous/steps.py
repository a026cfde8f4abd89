"""Where the next version of the model comes from: updates that the server has, or sums that brokers have."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from agents.federated.asynchronous.updates import Vector
from deploy.fl.asynchronous.exchange import Form
from deploy.fl.asynchronous.vectors import Arrays


class Step(NamedTuple):
    """The next version of the model.

    Attributes:
        model: (d,).
        metrics: of the updates that it was made of, for people.
    """

    model: Vector
    metrics: dict[str, float]


class Updates(Protocol):
    """Of one training, in one run of its ServerApp."""

    @property
    def form(self) -> Form:
        """In which clients are asked for updates."""

    @property
    def used(self) -> list[int]:
        """Updates of each client that were used; empty where brokers know that."""

    def receive(self, client: int, version: int, identity: str, arrays: Arrays | None) -> None:
        """A client has delivered.

        Args:
            client: its number.
            version: of the model that it began with.
            identity: of the question that this answers.
            arrays: what came; None: nothing did.

        Raises:
            UpdateError: if it cannot be used; one line.
        """

    def step(self) -> Step | None:
        """The next version; None while it has to be waited for. The same again until `settle`."""

    def state(self) -> str:
        """What belongs to the version that `step` gave, to go on from it after a restart."""

    def settle(self) -> None:
        """The version that `step` gave is in a checkpoint: let go of what it was made of."""
