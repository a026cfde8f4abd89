"""What a broker is told when it is started."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from deploy.fl.brokers.places import Place
from deploy.model.strategies import FedSuda, HaleFed


class BrokerSettings(BaseModel):
    """One broker of a job.

    Attributes:
        number: gamma, from 0; broker 0 organizes.
        host: IP address on which it listens.
        port: on which it listens.
        certificate: PEM, its own.
        key: PEM, its own.
        tokens: of those who may ask, by what they are called.
        strategy: of the job.
        samples: of each client, by its number.
        epochs_s: expected seconds of each client's part of a round, by its number; None: not known.
        others: where the organizer finds the others; empty for those.
        folder: for what it must know after a restart.
        incomplete_s: an update of which shards are missing is given up after so long.
    """

    model_config = ConfigDict(extra="forbid")

    number: int
    host: str
    port: int
    certificate: str
    key: str = Field(repr=False)
    tokens: dict[str, str] = Field(repr=False)
    strategy: HaleFed | FedSuda = Field(discriminator="kind")
    samples: list[int]
    epochs_s: list[float | None]
    others: dict[int, Place] = {}
    folder: Path
    incomplete_s: float = 120.0
