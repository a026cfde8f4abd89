"""What the server and brokers say to each other, in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, RootModel

from spotweave.agents.federated.asynchronous.aggregator import UpdateError, UpdateId
from spotweave.deploy.model.strategies import FedSuda, HaleFed
from spotweave.deploy.node.client import ExchangeError, exchange


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Model(_Message):
    """The server's message about its model."""

    version: int = Field(ge=0)
    size: int = Field(gt=0, le=1 << 32)


class Prepared(_Message):
    """What the server is told of the next version: no names of clients."""

    updates: int = 0  # number of them; 0: they have to be waited for
    staleness_mean: float = 0.0  # versions between the model that they began with and the present one
    staleness_most: int = 0  # of the oldest


class ComponentHead(_Message):
    """What comes before a broker's sum, in a line of its own."""

    samples: int  # weights of its updates together
    digest: str  # of its list; sums of different lists do not add up to anything


class Agreement(_Message):
    """The organizer's message to the other brokers."""

    version: int
    confirmed: list[UpdateId]
    discarded: list[UpdateId]


class Held(_Message):
    """Contents of a broker."""

    version: int
    updates: list[UpdateId]  # of which it holds the shard, in the order of their arrival


class Standing(_Message):
    """Status of a client, for the job's owner."""

    used: int  # how many updates of it were used; a shadow counts each time
    staleness: int | None  # of its newest update that is held, in versions of the model; None: none is held
    slow: bool  # whether that is a shadow, which is used again


class Standings(RootModel[list[Standing]]):
    """All clients, by their number."""


# Where brokers are, what they prove who they are with, and with what the one who asks does.

KEY = "spotweave-brokers"
"""In a node's configuration: the file with its `Places`."""
_SHORT_S = 10.0
_BYTES_S = 1e6
_MOST_BYTES = 1 << 20
SERVER = "server"
RUNNER = "runner"


def client(number: int) -> str:
    """Name of a client at brokers."""
    return f"client-{number}"


def broker(number: int) -> str:
    """Name of a broker at other parties."""
    return f"broker-{number}"


class BrokerError(Exception):
    """A broker does not answer, or cannot do now what it is asked; trying again may help."""


class UnwantedError(UpdateError):
    """A shard came too late, or again after its update was used or given up."""


class Place(_Message):
    """One broker, as one of those that ask it knows it."""

    host: str  # IP address
    port: int  # on which it listens
    certificate: str  # PEM; whoever shows another one is told nothing
    token: str = Field(repr=False)  # of the one who asks, at this broker alone

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        most_bytes: int = _MOST_BYTES,
        within_s: float = _SHORT_S,
    ) -> bytes:
        """One request; what is large has more time than `within_s`.

        Raises:
            BrokerError: if it does not answer, or not now (503).
            UnwantedError: if a shard is not wanted any more (410).
            UpdateError: if it refuses for good; one line.
        """
        try:
            status, content = exchange(
                (self.host, self.port),
                self.certificate,
                method,
                path,
                headers={"Authorization": f"Bearer {self.token}"},
                body=body,
                within_s=within_s + max(0, len(body) + most_bytes - _MOST_BYTES) / _BYTES_S,
                most_bytes=most_bytes,
            )
        except ExchangeError as error:
            raise BrokerError(f"broker {self.host}:{self.port}: {error}") from error
        if status < 300:
            return content
        reason = " ".join(content.decode(errors="replace").split())[:300]
        if status == 503:
            raise BrokerError(f"broker {self.host}:{self.port}: {reason}")
        raise UnwantedError(reason) if status == 410 else UpdateError(reason)

    def post(self, path: str, message: Any = None, within_s: float = _SHORT_S) -> Any:
        """A small request and its answer, both JSON. Raises as `ask`."""
        content = self.ask("POST", path, json.dumps(message).encode(), within_s=within_s)
        return json.loads(content) if content else None


class Places(_Message):
    """All brokers of a job, by their number."""

    brokers: list[Place]


# What a broker is told when it is started.


class BrokerSettings(_Message):
    """One broker of a job."""

    number: int  # gamma, from 0; broker 0 organizes
    host: str  # IP address on which it listens
    port: int  # on which it listens
    certificate: str  # PEM, its own
    key: str = Field(repr=False)  # PEM, its own
    tokens: dict[str, str] = Field(repr=False)  # of those who may ask, by what they are called
    strategy: HaleFed | FedSuda = Field(discriminator="kind")
    samples: list[int]  # of each client, by its number
    # expected seconds of each client's part of a round, by its number; None: not known
    epochs_s: list[float | None]
    others: dict[int, Place] = {}  # where the organizer finds the others; empty for those
    folder: Path  # for what it must know after a restart
    incomplete_s: float = 120.0  # an update of which shards are missing is given up after so long
