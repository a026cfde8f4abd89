"""What the server and brokers say to each other, in JSON."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from agents.federated.asynchronous.updates import UpdateId


class Model(BaseModel):
    """What the server says of its model."""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=0)
    size: int = Field(gt=0, le=1 << 32)


class Prepared(BaseModel):
    """What the server is told of the next version: no names of clients.

    Attributes:
        updates: number of them; 0: they have to be waited for.
        staleness_mean: versions between the model that they began with and the present one.
        staleness_most: of the oldest.
    """

    model_config = ConfigDict(extra="forbid")

    updates: int = 0
    staleness_mean: float = 0.0
    staleness_most: int = 0


class ComponentHead(BaseModel):
    """What comes before a broker's sum, in a line of its own.

    Attributes:
        samples: weights of its updates together.
        digest: of its list; sums of different lists do not add up to anything.
    """

    model_config = ConfigDict(extra="forbid")

    samples: int
    digest: str


class Agreement(BaseModel):
    """What the organizer tells the others."""

    model_config = ConfigDict(extra="forbid")

    version: int
    confirmed: list[UpdateId]
    discarded: list[UpdateId]


class Standing(BaseModel):
    """How a client stands, for whoever runs the job.

    Attributes:
        used: how many updates of it were used; a shadow counts each time.
        staleness: of its newest update that is held, in versions of the model; None: none is held.
        slow: whether that is a shadow, which is used again.
    """

    model_config = ConfigDict(extra="forbid")

    used: int
    staleness: int | None
    slow: bool
